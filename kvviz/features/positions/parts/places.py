"""Wrong positions on purpose, and positions that training never saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from kvviz.core import Run
from kvviz.core.refusal import Refusal
from kvviz.features.positions.figure import lengths as figures
from kvviz.features.positions.parts.parts import whole
from kvviz.features.positions.parts.study import NAME, OFFSET, go_far, length_wish, misplace, misplaced_wish
from kvviz.features.positions.record import Lengths, Misplaced
from kvviz.ui import experiment, kit
from kvviz.ui.guard import refused
from kvviz.ui.job import State
from kvviz.ui.language import t


def wrong_place(run: Run) -> None:
    st.subheader(t(NAME, "wrong_title"), anchor=False)
    experiment.live("wrong", "wrong", misplace, misplaced_wish(run), lambda now: _wrong(run, now))


def _wrong(run: Run, now: State) -> None:
    record: Misplaced | None = now.result_for(misplaced_wish(run))
    if record is None:
        return
    offsets = record.offsets.tolist()
    wished = [k for k in (whole("positions_offset", OFFSET), OFFSET) if k in offsets]
    st.session_state.positions_offset = [*wished, offsets[-1]][0]
    chosen = st.select_slider(
        t(NAME, "control_offset"), offsets, key="positions_offset", format_func=lambda k: f"{k:+d}" if k else "0",
        persist_state="session",
    )  # fmt: skip
    values = figures.misplaced_values(record, chosen)
    st.markdown(t(NAME, f"wrong_{values['case']}", **values))
    right, wrong = st.columns(2)
    for column, name in ((right, "right"), (wrong, "wrong")):
        column.caption(t(NAME, f"wrong_text_{name}", **values))
        column.container(key=f"positions_text_{name}", border=True).text(str(values[f"{name}_text"]))

    def draw(found: Misplaced, *, words: Mapping[str, str], dark: bool) -> Any:
        return figures.misplaced(run, found, chosen, words=words, dark=dark)

    def numbers(found: Misplaced, *, words: Mapping[str, str]) -> Any:
        return figures.misplaced_table(run, found, chosen, words=words)

    kit.chart(NAME, "misplaced", draw, numbers, record, values=values, answer="")
    st.markdown(t(NAME, f"evicted_{run.model.positions}", **values))


def lengths(run: Run) -> None:
    st.subheader(t(NAME, "far_title"), anchor=False)
    st.markdown(t(NAME, "far"))
    wish = length_wish()
    start, stop, _ = st.columns([3, 2, 5])
    experiment.start_and_stop("lengths", go_far, wish, t(NAME, "far_start"), where=(start, stop))
    experiment.live("far", "lengths", go_far, wish, lambda now: _lengths(run, now), by_itself=False)


def _lengths(run: Run, now: State) -> None:
    record: Lengths | None = now.result_for(length_wish())
    if record is None:
        return
    values = figures.loss_values(record)
    if now.busy:
        st.progress(record.done / record.of, t(NAME, "far_running", **values))

    def draw(name: str) -> Any:
        return lambda found, *, words, dark: getattr(figures, name)(run, found, words=words, dark=dark)

    def numbers(name: str) -> Any:
        return lambda found, *, words: getattr(figures, f"{name}_table")(run, found, words=words)

    complete = bool(record.kept)
    said = "loss_answer" if complete else ""
    kit.chart(NAME, "loss", draw("loss"), numbers("loss"), record, values=values, answer=said)
    if record.table_end:
        name, end = record.table_end
        refusal = Refusal("limit_reached", model=name, length=end - 1, limit=end - 1)
        st.markdown(t(NAME, "far_table", end=f"{end:,}"))
        st.info(refused(refusal))
    if not complete:
        return
    st.markdown(t(NAME, "kept"))
    worst = {k.scaling: kit.number(float(k.max_abs_dlogit.max())) for k in record.kept}
    more = {f"d_{s}": worst.get(s, "–") for s in ("none", "linear", "yarn", "dynamic")}
    more |= {"trained": f"{record.kept[0].trained:,}", "last": f"{int(record.kept[0].lengths[-1]):,}"}
    answer = "kept_answer" if len(record.kept) == 4 else ""
    kit.chart(NAME, "kept", draw("kept"), numbers("kept"), record, values=more, answer=answer)
