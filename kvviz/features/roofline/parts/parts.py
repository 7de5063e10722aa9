"""The picture with its cards, what was proved, and what follows below the fold."""

from __future__ import annotations

import streamlit as st

from kvviz.core import lessons
from kvviz.features.roofline.figure import batches as several
from kvviz.features.roofline.figure import roofline as figures
from kvviz.features.roofline.parts.wishes import NAME, batch, roofline, wish_of
from kvviz.features.roofline.record import Point, Roofline, lanes_of
from kvviz.features.roofline.spec import SPEC
from kvviz.ui import experiment, kit, state
from kvviz.ui.guard import guarded
from kvviz.ui.job import State
from kvviz.ui.language import t


def values_of(roof: Roofline) -> dict[str, object]:
    """The numbers of the sentences, the model's name as code."""
    values = several.roofline_values(roof, batch()) | {"model": lessons.literal(roof.model.name)}
    if (top := roof.highest) is not None:
        words = kit.words(NAME)
        values["highest"] = f"{words[f'kind_{top.step.kind}']} ({words['batch']} {top.step.batch})"
    one = roof.step("decode")
    return values | {"one_intensity": figures.digits(one.intensity) if one else "n/a"}


def raced(roof: Roofline) -> tuple[Point, ...]:
    """Both lanes of the session's last race, if it is over and of this model."""
    held = experiment.job_named("race")
    race = held.state().fresh if held is not None else None
    return lanes_of(race, roof) if race is not None and race.state != "running" else ()


def hero(now: State) -> object:
    """The roofline; beside it what was measured and what the chosen step has to do, number by number."""
    found = now.result_for(wish_of(state.current_run()))
    roof = _kept(now, found)
    st.session_state.kv_roofline = roof
    if roof is None:
        kit.answer(NAME, "answer_empty")
        st.markdown(t(NAME, "waiting"))
        return None
    values = values_of(roof)
    kit.answer(NAME, f"answer_{values['case']}", **values)
    picture, side = st.columns([3.1, 1.75])
    with picture:
        kit.chart(
            NAME,
            "plan" if roof.rates is None else "roof",
            figures.drawing,
            figures.drawing_table,
            roof,
            values=values,
            answer="",
            key="hero",
            batch=batch(),
            lanes=raced(roof),
        )
    with side:
        _device(roof, values)
        _step(roof, values)
        if roof.planned:
            st.caption(t(NAME, "rounds", **values))
        if roof is not found:
            st.caption(t(NAME, "kept", done=found.rounds, **values))
        if values["skipped"]:
            st.caption(t(NAME, "skipped", **values))
        return st.container()


def _kept(now: State, found: Roofline | None) -> Roofline | None:
    """What was found; where that was stopped, an earlier measurement of the same that was complete."""
    if found is None or found.rates is None:
        return found
    if found.state == "done":
        st.session_state.kv_roofline_done = now.answers, found
    wish, done = st.session_state.get("kv_roofline_done", (None, None))
    return done if now.stopped and wish is not None and now.about(wish) else found


def _device(roof: Roofline, values: dict[str, object]) -> None:
    known = roof.rates is not None
    rows = [(t(NAME, f"fact_{name}"), str(values[name]) if known else "–") for name in ("bandwidth", "flop_rate")]
    rows.append((t(NAME, "fact_ridge"), t(NAME, "fact_ridge_value", **values) if known else "–"))
    kit.facts("roofline-device", rows, t(NAME, "card_device"))


def _step(roof: Roofline, values: dict[str, object]) -> None:
    names = ["bytes", "flops"]
    if roof.rates is not None:
        names.append("floor")
    if (point := roof.point("decode", batch())) is not None and point.enough:
        names += ["ms", "shares"]
    rows = [(t(NAME, f"fact_{name}", **values), t(NAME, f"fact_{name}_value", **values)) for name in names]
    kit.facts("roofline-step", rows, t(NAME, "card_step", **values))


def proofs(roof: Roofline | None) -> None:
    if roof is not None:
        kit.proofs(NAME, roof.checks, **values_of(roof))


@guarded
def below(roof: Roofline | None) -> None:
    """How to read it, batching, the lanes of the race, the table, the code, the questions."""
    if roof is None:
        return
    values = values_of(roof)
    kit.read(NAME, **values)
    if roof.rates is not None:
        st.markdown(t(NAME, "turning_none" if values["turning"] is None else "turning_some", **values))
    busy = experiment.job(NAME, roofline).state().busy
    if not busy and any(pt.step.kind == "decode" for pt in roof.points):
        st.subheader(t(NAME, "batches_heading"), anchor=False)
        answer = "batches_answer" if roof.enough else "batches_measuring"
        kit.chart(NAME, "batches", several.batches, several.batches_table, roof, values=values, answer=answer)
    _lanes(roof)
    st.subheader(t(NAME, "table_heading"), anchor=False)
    table = figures.drawing_table(roof, words=kit.words(NAME), lanes=raced(roof))
    st.dataframe(table, hide_index=True, key="table-roofline")
    kit.code(NAME, **values)
    kit.questions(SPEC, **values)


def _lanes(roof: Roofline) -> None:
    st.subheader(t(NAME, "lanes_heading"), anchor=False)
    lanes = raced(roof)
    if not lanes:
        st.markdown(t(NAME, "lanes_none"))
        return
    told: dict[str, object] = {}
    for name, lane in zip(("cached", "uncached"), lanes, strict=True):
        found = several.lane_values(lane)
        told |= {f"{name}_{part}": found[f"lane_{part}"] for part in ("ms", "floor", "distance")}
        told["lane_T"] = found["lane_T"]
    st.markdown(t(NAME, "lanes_some", **told))
