"""The hero: controls, one sentence, all heads at a glance and the one picked, stage by stage."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import streamlit as st

from kvviz.core import Run, lessons
from kvviz.features.attention.figure import stages
from kvviz.features.attention.parts.heads import heads, view
from kvviz.features.attention.parts.study import NAME, scores, study, written
from kvviz.features.attention.record.heads import HABITS, ranking
from kvviz.features.attention.spec import SPEC
from kvviz.figures import text
from kvviz.player.view import View
from kvviz.ui import charts, kit, request, sentences, state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded
from kvviz.ui.held import held
from kvviz.ui.language import current, t
from kvviz.ui.steps import Followed

PARTS = ("picked", "said", "head", "below", "share")  # what follows the head, the picture first
FOLLOWERS = ("hero", "tries", "below", "share")  # what follows the step; the hero draws the other parts itself
POLL_SECONDS = 0.5
ROWS = ("all", "one")


def hero() -> None:
    """Controls, answer, all heads and the one picked. While the run grows, it looks for new passes."""
    st.session_state.kv_hero_drawn = state.current_run().key, state.learner().progress().busy
    busy = st.session_state.kv_hero_drawn[1]
    fragment(_hero, key="hero", run_every=POLL_SECONDS if busy else None)()


@guarded
def _hero() -> None:
    run = state.current_run()
    if (run.key, state.learner().progress().busy) != st.session_state.kv_hero_drawn:
        st.rerun()
    state.settle_place(run)
    here = state.view(run)
    _controls(run, here)
    fragment(_said, key="said")()
    left, right = st.columns([6, 5])
    with left:
        _overview(run, here)
        fragment(_head, key="head")()
    with right:
        fragment(_picked, key="picked")()
    if not request.whole_page() and here not in (held(Followed).view, st.session_state.get("kv_hero_leads")):
        st.rerun()  # the run has come to the place that a link asked for: the rest of the page speaks of another


def _in_view() -> tuple[Run, View, int | None, dict[str, object]]:
    """Run, place, the query asked for, and what sentences may name of them."""
    run = state.current_run()
    here = state.view(run)
    query = asking(run, here)
    return run, here, query, values_of(run, here, query)


@guarded
def _said() -> None:
    values = _in_view()[-1]
    kit.answer(NAME, f"answer_{values['case']}", **values)


def _controls(run: Run, here: View) -> None:
    """Step, order, rows and query, in one line."""
    step, order, rows, query = st.columns([2.6, 2.8, 3.1, 2.7], vertical_alignment="bottom")
    last = len(run.steps) - 1
    key = _slider(here.step)
    step.slider(t(NAME, "control_step"), 0, max(last, 1), key=key, on_change=_stepped, args=(key,), disabled=last == 0)
    order.selectbox(
        t(NAME, "control_order"),
        ("place", *HABITS),
        key="attention_order",
        format_func=lambda name: t(NAME, f"order_{name}"),
        persist_state="session",
    )
    rows.segmented_control(
        t(NAME, "control_rows"),
        ROWS,
        key="attention_rows",
        format_func=lambda name: t(NAME, f"rows_{name}"),
        persist_state="session",
        on_change=_asked_otherwise,
    )
    newest = run.P + here.step - 1
    query.number_input(
        t(NAME, "control_query"),
        *SPEC.fields["attention_query"],
        None,
        placeholder=t(NAME, "control_query_unset", newest=newest),
        key="attention_query",
        disabled=st.session_state.get("attention_rows") != "one",
        persist_state="session",
        on_change=_asked_otherwise,
    )


def _asked_otherwise() -> None:
    """The lines below show the same rows."""
    if not request.whole_page():
        st.rerun(list(FOLLOWERS))


def asking(run: Run, here: View) -> int | None:
    """The query whose row is asked for: the newest unless another is chosen; None for all rows."""
    newest = run.P + here.step - 1
    chosen = st.session_state.get("attention_query")
    one = st.session_state.get("attention_rows") == "one"
    return min(newest, newest if chosen is None else int(chosen)) if one else None


def _slider(step: int) -> str:
    """The slider's key. Moved by anything but itself it is another slider: the browser goes on telling the value of
    the one it shows, and that is not to be taken for a move of the learner's."""
    held, times = st.session_state.get("kv_slider", (None, 0))
    times += held != step
    st.session_state.kv_slider = step, times
    key = f"attention_step_{times}"
    st.session_state[key] = step
    return key


def _stepped(key: str) -> None:
    here = state.view(state.current_run())
    _, times = st.session_state.kv_slider
    if key == f"attention_step_{times}":
        st.session_state.kv_slider = st.session_state[key], times
        go(st.session_state[key], here.layer, here.head)


def go(step: int, layer: int, head: int) -> None:
    """The learner went there, on this page; what follows the place is drawn anew, and no more: all of it takes a
    browser twice as long."""
    here = state.view(state.current_run())
    moved = dataclasses.replace(here, step=step, layer=layer, head=head, substep=None)
    if state.told_elsewhere(moved) and not request.whole_page():
        st.session_state.kv_hero_leads = state.view(state.current_run())  # to where the rest follows in the same run
        st.rerun(list(PARTS if step == here.step else FOLLOWERS))


def _overview(run: Run, here: View) -> None:
    order = st.session_state.get("attention_order") or "place"
    asked, progress = _asked(here), state.learner().progress()
    coming = progress.wanted if progress.busy and state.is_live(run) else 0
    induced = study(run)[0]
    named = f"{run.key}|{run.source}|{here.step}"
    whole = request.whole_page() or st.session_state.get("kv_heads_named") != named  # else the browser has the tiles
    st.session_state.kv_heads_named = named
    key = (named, whole, len(run.steps), order, asked.layer, asked.head, asked.times, asked.heard,
           coming, induced and induced.score.tobytes(), current())  # fmt: skip
    if st.session_state.get("kv_heads_sent", (None,))[0] != key:  # a pick by the browser asks for the same again
        st.session_state.kv_heads_sent = key, _view(run, here, order, asked, coming, named, whole)
    heads(st.session_state.kv_heads_sent[1], key="heads", on_pick=_clicked, on_lack=_send_whole)


def _send_whole() -> None:
    st.session_state.kv_heads_named = None


def _view(run: Run, here: View, order: str, asked: Asked, coming: int, named: str, whole: bool) -> bytes:
    measured = scores(run, here.step)
    m = run.model

    def note(layer: int, head: int) -> str:
        lines_ = [t(NAME, "tip_head", layer=layer, head=head)]
        lines_ += [f"{t(NAME, f'habit_{n}')}: {written(n, v[layer, head])}" for n, v in measured.items()]
        return "\n".join(lines_)

    ranked = order != "place"
    return view.view(
        run,
        here.step,
        asked.layer,
        asked.head,
        _tiles(run, here.step) if whole else b"",
        named,
        order=ranking(measured[order], lowest=order == "entropy") if ranked else None,
        notes=[[note(layer, head) for head in range(m.heads)] for layer in range(m.layers)],
        marks=[[_mark(order, layer, head, measured[order]) for head in range(m.heads)] for layer in range(m.layers)]
        if ranked
        else None,
        words={
            "keys": t(NAME, "keys"),
            "ranked": t(NAME, f"order_{order}"),
            "alt": t(NAME, "heads_alt", heads=m.layers * m.heads, L=m.layers, H=m.heads, T=run.P + here.step),
        },
        key=f"{asked.times}",
        heard=asked.heard,
        coming=coming,
    )


@guarded
def _head() -> None:
    """What is known of the head in view, and the shapes of this step."""
    run, here, _, values = _in_view()
    habits, shapes = st.columns(2)
    measured = scores(run, here.step)
    with habits:
        rows = [(t(NAME, f"habit_{n}"), written(n, v[here.layer, here.head])) for n, v in measured.items()]
        kit.facts("head", rows, t(NAME, "tip_head", layer=here.layer, head=here.head))
    with shapes:
        named = ("q_shape", "kv_shape", "weights_shape", "scale", "seen")
        kit.facts(
            "shapes", [(t(NAME, f"fact_{n}"), str(values[n])) for n in named], t(NAME, "facts_title", step=here.step)
        )


@dataclass(frozen=True)
class Asked:
    """Where Python sent the overview for the `times`-th time, having heard `heard` moves of the browser's by then;
    `own` is where the browser has gone since by itself."""

    layer: int
    head: int
    times: int
    heard: int
    own: tuple[int, int]


def _asked(here: View) -> Asked:
    """A place that the browser chose by itself is not sent back: what it gets stays the same, and need not travel."""
    held: Asked | None = st.session_state.get("kv_heads_asked")
    heard: int = st.session_state.get("kv_heads_heard", 0)
    place = (here.layer, here.head)
    if held is None or held.own != place:
        held = Asked(*place, held.times + 1 if held else 1, heard, place)
    elif request.whole_page():  # a page drawn anew may have a new overview, which knows of no place
        held = dataclasses.replace(held, layer=here.layer, head=here.head, heard=heard)
    st.session_state.kv_heads_asked = held
    return held


def _clicked(step: int, layer: int, head: int, times: int) -> None:
    st.session_state.kv_heads_heard = times
    held: Asked | None = st.session_state.get("kv_heads_asked")
    if held is not None:
        st.session_state.kv_heads_asked = dataclasses.replace(held, own=(layer, head))
    go(step, layer, head)


def _tiles(run: Run, step: int) -> bytes:
    """The picture of this step, kept until another is asked for."""
    key = (run.key, run.source, step)
    if st.session_state.get("kv_heads_tiles", (None,))[0] != key:
        st.session_state.kv_heads_tiles = key, view.tiles(run, step).tobytes()
    return st.session_state.kv_heads_tiles[1]


def _mark(order: str, layer: int, head: int, values: np.ndarray) -> str:
    value = values[layer, head]
    short = "–" if np.isnan(value) else f"{value:.1f}" if order == "entropy" else f"{100 * value:.0f}%"
    return f"{layer}.{head} {short}"


@guarded
def _picked() -> None:
    """The head in view, stage by stage."""
    run, here, query, values = _in_view()
    st.markdown(t(NAME, "picked" if query is None else "picked_row", **values))
    place = (run, here.step, here.layer, here.head)
    words = kit.words(NAME)
    if query is None:
        name = (
            st.segmented_control(
                t(NAME, "control_stage"),
                stages.STAGES,
                key="attention_stage",
                format_func=lambda name: t(NAME, f"axis_{name}"),
                persist_state="session",
                label_visibility="collapsed",
                width="stretch",
            )
            or "softmax"
        )
        charts.chart(
            stages.stage(*place, name, words=words, dark=False),
            key="attention-stage",
            answer="",
            how=t(NAME, f"stage_{name}_how", **values),
            table=lambda: stages.stage_table(*place, name, words=words),
            alt=kit.spoken(t(NAME, "stage_alt", stage=words[name], **values)),
        )
        return
    charts.chart(
        stages.row_stages(*place, query, words=words, dark=False),
        key="attention-row",
        answer="",
        how=t(NAME, "row_how", **values),
        table=lambda: stages.row_stages_table(*place, query, words=words),
        alt=kit.spoken(t(NAME, "row_alt", **values)),
    )


def values_of(run: Run, here: View, query: int | None = None) -> dict[str, object]:
    """What sentences of this page may name: of the step as elsewhere, and of the head and the query in view."""
    found = stages.stage_values(run, here.step, here.layer, here.head, query)
    quoted = {k: lessons.literal(str(v)) if k.endswith("token") else v for k, v in found.items()}
    m = run.model
    return sentences.step_facts(run, here) | quoted | {"heads": m.layers * m.heads, "square": text.count(run.P * run.P)}
