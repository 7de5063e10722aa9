"""The table and the rotation, the proofs, and ALiBi."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import streamlit as st

from kvviz.core import Run, lessons
from kvviz.features.positions.figure import positions as figures
from kvviz.features.positions.parts.study import (
    NAME,
    OFFSETS,
    found,
    go_far,
    length_wish,
    read_table,
    rotate,
    rotation_wish,
    table_wish,
    values_of,
)
from kvviz.features.positions.record import Rotation, Table
from kvviz.features.positions.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import experiment, kit, sentences, state
from kvviz.ui.job import State
from kvviz.ui.language import t

ALIBI = 24  # positions of the matrix, at most
TABLE_TALL, ROTATION_TALL = 540, 620  # pixels kept free while a model is on its way: nothing jumps when it comes


def hero(run: Run, here: View) -> None:
    """What the run's own model does: a table, or a rotation."""
    kit.answer(NAME, f"answer_{run.model.positions}", **values_of(run, here))
    _part(run, here, run.model.positions)


def second(run: Run, here: View) -> None:
    """The other way, on the built-in model that goes it."""
    other = "learned" if run.model.positions == "rotary" else "rotary"
    values = values_of(run, here)
    st.subheader(t(NAME, f"{other}_title", **values), anchor=False)
    st.markdown(t(NAME, f"{other}_other", **values))
    _part(run, here, other)


def _part(run: Run, here: View, kind: str) -> None:
    if kind == "rotary":
        experiment.live("rotation", "rotation", rotate, rotation_wish(run, here), lambda now: _rotation(run, here, now))
    else:
        experiment.live("table", "table", read_table, table_wish(run), lambda now: _table(run, here, now))


def _table(run: Run, here: View, now: State) -> None:
    record: Table | None = now.result_for(table_wish(run))
    if record is None:
        st.skeleton(height=TABLE_TALL)
        return
    own = run.model.positions == "learned"
    position = min(int(run.steps[here.step].positions[-1]) if own else run.P - 1, len(record.values) - 1)
    values = figures.table_values(record, position) | _moved(record.shift)
    st.markdown(t(NAME, "table_says", **values))

    def draw(found_: Table, *, words: Mapping[str, str], dark: bool) -> Any:
        return figures.table(run, found_, position, words=words, dark=dark)

    def numbers(found_: Table, *, words: Mapping[str, str]) -> Any:
        return figures.table_table(run, found_, position, words=words)

    kit.chart(NAME, "table", draw, numbers, record, values=values, answer="")


def _moved(shift: Any) -> dict[str, object]:
    number = kit.number
    return {
        "by": shift.by,
        "shift_score": number(shift.max_abs_dscore),
        "shift_logit": number(shift.max_abs_dlogit),
        "largest_score": f"{shift.largest_score:.1f}",
    }


def _rotation(run: Run, here: View, now: State) -> None:
    if st.session_state.pop("kv_positions_moved", False):
        st.rerun()  # the whole page speaks of the place
    record: Rotation | None = now.result_for(rotation_wish(run, here))
    if record is None:
        st.skeleton(height=ROTATION_TALL)
        return
    head, pair, key = _controls(run, here, record)
    values = _quoted(figures.rotation_values(record, head, pair, key)) | _moved(record.shift)
    st.markdown(t(NAME, "rotation_says", **values))

    def draw(found_: Rotation, *, words: Mapping[str, str], dark: bool) -> Any:
        return figures.rotation(run, found_, head, pair, key, words=words, dark=dark)

    def numbers(found_: Rotation, *, words: Mapping[str, str]) -> Any:
        return figures.rotation_table(run, found_, head, pair, key, words=words)

    kit.chart(NAME, "rotation", draw, numbers, record, values=values, answer="")


def _controls(run: Run, here: View, record: Rotation) -> tuple[int, int, int]:
    """Layer and head are the place all pages share; pair and key are this page's own. Returns head, pair and key."""
    layer, head, pair, key = st.columns([2, 2, 4, 3])
    own = run.model.positions == "rotary"
    layers, heads = (run.model.layers, run.model.heads) if own else (6, len(record.q))
    st.session_state.positions_layer = min(here.layer, layers - 1)
    st.session_state.positions_head = min(here.head, heads - 1)
    layer.number_input(t(NAME, "control_layer"), 0, layers - 1, key="positions_layer", on_change=_go)
    head.number_input(t(NAME, "control_head"), 0, heads - 1, key="positions_head", on_change=_go)
    half, T = len(record.frequencies), len(record.ids)
    for name, first, most in (("positions_pair", 1, half - 1), ("positions_key", 3, T - 2)):
        st.session_state[name] = min(whole(name, first), most)
    names = [sentences.token_of(record.pieces, i) for i in record.ids]
    pair.slider(t(NAME, "control_pair"), 0, half - 1, key="positions_pair", persist_state="session")
    key.selectbox(
        t(NAME, "control_key"), range(T - 1), key="positions_key", format_func=lambda i: f"{i} {names[i]}",
        on_change=_choose, persist_state="session",
    )  # fmt: skip
    return min(here.head, heads - 1), st.session_state.positions_pair, st.session_state.positions_key


def whole(name: str, first: int) -> int:
    """A choice of before, as the number it is: of a list, browser and link keep the line's text, number first."""
    held = st.session_state.get(name)
    if isinstance(held, str):
        number = held.partition(" ")[0]
        held = int(number) if number.lstrip("+-").isdecimal() else None
    return first if held is None else int(held)


def _go() -> None:
    here = state.view(state.current_run())
    moved = dataclasses.replace(
        here, layer=int(st.session_state.positions_layer), head=int(st.session_state.positions_head), substep=None
    )
    if state.told_elsewhere(moved):
        st.session_state.kv_positions_moved = True


def _choose() -> None:
    st.session_state.kv_positions_moved = True


def _quoted(values: Mapping[str, object]) -> dict[str, object]:
    return {k: lessons.literal(str(v)) if k.endswith("token") else v for k, v in values.items()}


def shifted(run: Run, here: View) -> None:
    """The same text further on: nothing for a rotation, another text for a table."""
    turned, listed = (
        found("rotation", rotate, rotation_wish(run, here)),
        found("table", read_table, table_wish(run)),
    )
    st.subheader(t(NAME, "shift_title"), anchor=False)
    if turned is not None:
        _distance(run, here, turned)
    st.markdown(t(NAME, "shift"))
    for name, record in (("rotary", turned), ("learned", listed)):
        if record is None:
            st.markdown(t(NAME, f"shift_{name}_none", **values_of(run, here)))
        else:
            st.markdown(t(NAME, f"shift_{name}", **values_of(run, here), **_moved(record.shift)))


def _distance(run: Run, here: View, record: Rotation) -> None:
    """The score of the chosen key with the newest query, at every distance."""
    head = min(here.head, len(record.q) - 1)
    key = min(whole("positions_key", 3), len(record.ids) - 2)
    values = _quoted(figures.distance_values(record, head, key))

    def draw(found_: Rotation, *, words: Mapping[str, str], dark: bool) -> Any:
        return figures.distance(run, found_, head, key, words=words, dark=dark)

    def numbers(found_: Rotation, *, words: Mapping[str, str]) -> Any:
        return figures.distance_table(run, found_, head, key, words=words)

    kit.chart(NAME, "distance", draw, numbers, record, values=values)


def tries(run: Run, here: View) -> None:
    """A fast pair, a slow one, and the long experiment."""
    slow = (run.model.head_dim if run.model.positions == "rotary" else 32) // 2 - 1
    far = experiment.job("lengths", go_far)
    above = run.model.positions == "rotary"
    where = {"where": t(NAME, "where_above" if above else "where_below")}
    acts = {
        "fast": lambda: _set(positions_pair=0, positions_key=1),
        "slow": lambda: _set(positions_pair=slow, positions_key=1),
        "wrong": lambda: _set(positions_offset=OFFSETS[-1]),
        "far": lambda: far.start(length_wish()),
    }
    kit.tries(SPEC, acts, values={"fast": where, "slow": where}, off=["far"] if far.state().busy else False)


def _set(**values: object) -> None:
    st.session_state.update(values)


def proofs(run: Run, here: View) -> None:
    """What was asserted so far; what fails stands first, with the reason."""
    checks = []
    if turned := found("rotation", rotate, rotation_wish(run, here)):
        checks += turned.checks
    if far := found("lengths", go_far, length_wish()):
        checks += [k.check for k in far.kept]
    if checks:
        by = turned.shift.by if turned else 0
        kit.proofs(NAME, checks, **values_of(run, here), by=by)


def alibi(run: Run, here: View) -> None:
    """By formula: no model here has it."""
    T = min(ALIBI, max(2, run.P + here.step))
    st.subheader(t(NAME, "alibi_title"), anchor=False)
    heads = run.model.heads
    slopes = figures.theory.alibi_slopes(heads)
    values = {"T": T, "H": heads, "head": here.head, "slope": f"{slopes[here.head]:.4g}", "last": T - 1}
    values |= {"most": f"{slopes[here.head] * (T - 1):.4g}", "first": f"{slopes[0]:.4g}", "least": f"{slopes[-1]:.4g}"}

    def draw(record: Run, *, words: Mapping[str, str], dark: bool) -> Any:
        return figures.alibi(record, here.head, T, words=words, dark=dark)

    def numbers(record: Run, *, words: Mapping[str, str]) -> Any:
        return figures.alibi_table(record, here.head, T, words=words)

    kit.chart(NAME, "alibi", draw, numbers, run, values=values)
