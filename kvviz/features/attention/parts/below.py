"""Below the picture: what to try, the same head as lines, what was measured of all heads, and the gallery of masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import streamlit as st

from kvviz.core import Run, lessons
from kvviz.features.attention.figure import lines, masks
from kvviz.features.attention.parts.study import NAME, make_masks, scores, study, wishes, written
from kvviz.features.attention.parts.top import asking, go
from kvviz.features.attention.record.heads import HABITS, NAMED, HeadFacts, Induction, head_facts, ranking, strongest
from kvviz.features.attention.spec import SPEC
from kvviz.figures import text
from kvviz.player.view import View
from kvviz.ui import experiment, kit, sentences, state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded
from kvviz.ui.job import State
from kvviz.ui.language import t


def tries() -> None:
    """The strongest head of three kinds in the step in view, each put in view."""
    fragment(_tries, key="tries")()


@guarded
def _tries() -> None:
    run = state.current_run()
    here = state.view(run)
    measured = scores(run, here.step)
    acts, values, off = {}, {}, []
    for one in SPEC.tries:
        top = strongest(measured[one.name], lowest=one.name == "entropy")
        values[one.name] = {"layer": "–", "head": "–", "value": "–"}
        acts[one.name] = lambda: None
        if top:
            values[one.name] = {"layer": top.layer, "head": top.head, "value": written(one.name, top.value)}
            acts[one.name] = _to(top.layer, top.head)
        else:
            off.append(one.name)
    kit.tries(SPEC, acts, values=values, off=off)


def _to(layer: int, head: int) -> Callable[[], None]:
    return lambda: go(state.view(state.current_run()).step, layer, head)


def found_heads(run: Run, here: View) -> None:
    """The strongest head for each habit, or that there is none; then all of them in a table."""
    facts, (found, _) = head_facts(run, here.step), study(run)
    st.subheader(t(NAME, "habits_title"), anchor=False)
    values = {
        "queries": text.count(facts.queries),
        "named": f"{100 * NAMED:.0f} %",
        "model": sentences.step_facts(run, here)["model"],
    }
    st.markdown(t(NAME, "habits", **values))
    measured = scores(run, here.step)
    for name in HABITS:
        st.markdown(_sentence(name, measured[name], facts, found, values))
    _table(run, measured)


def _sentence(name: str, measured: np.ndarray, facts: HeadFacts, found: Induction | None, values: dict) -> str:
    top = strongest(measured, lowest=name == "entropy")
    if top is None:
        return t(NAME, "found_none_yet", habit=t(NAME, f"habit_{name}"))
    more = {"layer": top.layer, "head": top.head, "value": written(name, top.value)}
    more["most"] = written("entropy", facts.entropy_most)
    if found:
        more |= {"tokens": found.tokens, "sequences": found.sequences, "chance": text.percent(found.chance)}
    return t(NAME, f"found_{name}" if top.named else f"found_{name}_none", **values, **more)


def _table(run: Run, measured: dict[str, np.ndarray]) -> None:
    order = st.session_state.get("attention_order") or "place"
    habit = "previous" if order == "place" else order
    rows = ranking(measured[habit], lowest=habit == "entropy")
    columns: dict[str, list] = {t(NAME, "axis_layer"): [r[0] for r in rows], t(NAME, "axis_head"): [r[1] for r in rows]}
    for name, values in measured.items():
        digits = 2 if name == "entropy" else 3
        column = [None if np.isnan(values[r]) else round(float(values[r]), digits) for r in rows]
        columns[t(NAME, "column_entropy" if name == "entropy" else f"habit_{name}")] = column
    st.caption(t(NAME, "habits_table"))
    st.dataframe(
        columns,
        hide_index=True,
        height=250,
        key="attention_table",
        on_select=lambda: _chosen(rows),
        selection_mode="single-row",
    )


def _chosen(rows: list[tuple[int, int]]) -> None:
    chosen = st.session_state.attention_table["selection"]["rows"]
    if chosen and chosen[0] < len(rows):
        go(state.view(state.current_run()).step, *rows[chosen[0]])


def drawn_lines(run: Run, here: View) -> None:
    """The second view: lines in text order, for the rows chosen above."""
    query = asking(run, here)
    place = (here.step, here.layer, here.head, query)
    values = lines.lines_values(run, *place)
    quoted = {k: lessons.literal(str(v)) if k.endswith("token") else v for k, v in values.items()}
    st.subheader(t(NAME, "lines_title"), anchor=False)

    def draw(record: Run, *, words: dict, dark: bool):
        return lines.lines(record, *place, words=words, dark=dark)

    def table(record: Run, *, words: dict):
        return lines.lines_table(record, *place, words=words)

    kit.chart(NAME, "lines", draw, table, run, values=quoted, answer=f"lines_{values['case']}")


def gallery(run: Run) -> None:
    st.subheader(t(NAME, "masks_title"), anchor=False)
    experiment.live("masks", "masks", make_masks, wishes(run)[1], lambda now: _gallery(run, now))


def _gallery(run: Run, now: State) -> None:
    found = now.result_for(wishes(run)[1])
    if found is None:
        return
    equal = {c.name: kit.number(c.max_abs_dlogit) for c in found.comparisons}
    values: dict[str, object] = {f"d_{n}": v for n, v in equal.items()} | {"W": found.window, "n": len(found.ids)}
    chunk = found.of("chunk")[1]
    values |= {
        "causal": found.of("causal")[0].count,
        "cells": found.of("causal")[0].visible.size,
        "chunk_shape": f"{chunk.shape[0]} × {chunk.shape[1]}",
        "chunk_rows": ", ".join(map(str, chunk.by_row)),
        "pads": int((found.of("padding")[1].ids < 0).sum()),
    }
    rotary = run.model.positions == "rotary"
    own = len(wishes(run)[1].ids)
    where = t(NAME, "masks_text_first" if own == len(found.ids) else "masks_text_again", own=own, **values)
    st.markdown(t(NAME, "masks", masks_text=where, **values))
    for group, name in enumerate(("masks_plain", "masks_chunks", "masks_padding")):
        st.markdown(t(NAME, f"{name}_rotary" if name == "masks_padding" and rotary else name, **values))
        kit.chart(
            NAME,
            name,
            lambda record, *, words, dark, group=group: masks.masks(run, record, group, words=words, dark=dark),
            masks.masks_table,
            found,
            values=values,
            answer="",
        )
