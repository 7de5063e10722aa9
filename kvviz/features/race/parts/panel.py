"""The race on its page: controls that are in the link, the lanes while they run, and what came of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import streamlit as st

import kvviz
from kvviz.core import Run, lessons
from kvviz.features.race import figure as figures
from kvviz.features.race.parts import race_lanes
from kvviz.features.race.parts import wish as work
from kvviz.features.race.parts.view import Plan
from kvviz.features.race.parts.wish import RaceWish, WaitsWish
from kvviz.features.race.record import Race, Waits
from kvviz.features.race.spec import SPEC
from kvviz.theory.work import rows_with_cache, rows_without_cache
from kvviz.ui import charts, experiment, links, state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
from kvviz.ui.job import Job, State
from kvviz.ui.language import current, t

POLL_SECONDS = 0.2
NEW_TOKENS = 20
SHORT, LONG = (5, 20), (100, 100)  # P, N of "Try this"


def racer() -> Job:
    """This session's races."""
    return experiment.job("race", work.race)


def waiter() -> Job:
    """This session's measurements of first tokens."""
    return experiment.job("race_waits", work.waits)


def controls(run: Run) -> RaceWish:
    """P, N, repeats, Start and Stop. Returns what Start would race."""
    length, new, repeats, start, stop = st.columns([3, 2, 3, 1.6, 1.6], vertical_alignment="bottom")
    numbers = (
        length.number_input(
            t("race", "control_P"),
            *SPEC.fields["race_P"],
            None,
            placeholder=t("race", "control_P_unset", P=f"{run.P:,}"),
            help=t("race", "control_P_help"),
            key="race_P",
            persist_state="session",
        ),
        new.number_input(
            t("race", "control_N"),
            *SPEC.fields["race_N"],
            help=t("race", "control_N_help"),
            key="race_N",
            persist_state="session",
        ),
        repeats.number_input(
            t("race", "control_repeats"),
            *SPEC.fields["race_repeats"],
            None,
            placeholder=t("race", "control_repeats_unset"),
            help=t("race", "control_repeats_help"),
            key="race_repeats",
            persist_state="session",
        ),
    )
    wish = wish_for(run, *numbers)
    experiment.start_and_stop(
        "race", work.race, wish, t("race", "start"), where=(start, stop), asked=lambda: asked(run), beside=[waiter()]
    )
    if reason := experiment.why_not(wish):
        st.caption(reason)
    return wish


def asked(run: Run) -> RaceWish:
    """With the numbers that the fields hold at the click: they may have been typed a moment before it."""
    return wish_for(run, *(st.session_state.get(name) for name in ("race_P", "race_N", "race_repeats")))


def wish_for(run: Run, length: int | None, new: int | None, repeats: int | None = None) -> RaceWish:
    return RaceWish(run.model.name, run.model.dtype, run.prompt, new or NEW_TOKENS, repeats, length, run.sampling)


def waits_wish(run: Run) -> WaitsWish:
    return WaitsWish(run.model.name, run.model.dtype, run.prompt)


def lanes(run: Run, wish: RaceWish) -> None:
    """The hero. While a race is on, it looks for new tokens five times a second."""
    fragment(_lanes, key="race", run_every=POLL_SECONDS if racer().state().busy else None)(run, wish)


@guarded
def _lanes(run: Run, wish: RaceWish) -> None:
    now = racer().state()
    race_lanes(
        shown(now, run, wish),
        key="race-lanes",
        race_key=now.key,
        language=current(),
        presenter=bool(state.shared().presenter),
    )
    _say(now, run, wish)
    _rerun_at_end("race", now.busy)


def shown(now: State, run: Run, wish: RaceWish) -> Race | Plan:
    """The race at hand or the last one; before the first, or while one has no token yet, what it will be."""
    found: Race | None = now.fresh
    if found is not None and found.n:
        return found
    if now.busy:
        stage = "warming" if now.stage == "running" else now.stage
        return Plan(now.wish.length or run.P, now.wish.new, stage, now.before if stage == "waiting" else 0)
    return Plan(wish.length or run.P, wish.new)


def _say(now: State, run: Run, wish: RaceWish) -> None:
    measuring = waiter().state()
    for job in (now, measuring):
        if job.refusal:
            st.warning(refused(job.refusal))
        if job.failed:
            st.error(t("race", "failed"))
    if measuring.started > now.started:
        _say_waits(measuring, run)
    raced: Race | None = now.fresh
    if raced is not None and not now.busy and now.result_for(wish) is None:
        names = {"prompt": lessons.literal(links.shorten(raced.prompt)), "model": lessons.literal(raced.model.name)}
        st.caption(t("race", "other_prompt", **names))


def _measuring(now: State) -> str:
    if now.stage == "waiting":
        return t("shell", "experiment_waiting", before=f"{now.before:,}")
    return t("race", "waits_running")


def _say_waits(now: State, run: Run) -> None:
    """What the question about the first token has found, where its button is: the chart may be below the fold."""
    found: Waits | None = now.result_for(waits_wish(run))
    if now.busy:
        said = _measuring(now)
    elif found is not None and found.state == "done":
        values = figures.waits_values(found)
        said = t("race", f"waits_answer_{values['case']}", **values)
    else:
        return
    st.markdown(f"{said}{'' if current() == 'zh' else ' '}{t('race', 'waits_below')}")


def _rerun_at_end(what: str, busy: bool) -> None:
    """The rest of the page follows once the work is over."""
    key = f"kv_{what}_busy"
    was, st.session_state[key] = st.session_state.get(key, False), busy
    if was and not busy:
        st.rerun()


def tries(run: Run) -> None:
    """Two races to compare, and the wait for the first token."""
    short, long, waits = st.columns(3)
    for column, name, (P, N) in ((short, "short", SHORT), (long, "long", LONG)):
        without, with_ = rows_without_cache(P, N), rows_with_cache(P, N)
        numbers = {"without": f"{without:,}", "with_": f"{with_:,}", "times": f"{without / with_:.0f}"}
        _try(column, name, run, lambda P=P, N=N: _take(run, P, N), **numbers)
    _try(waits, "waits", run, lambda: waiter().start(waits_wish(run)))


def _try(column, name: str, run: Run, act: Callable[[], None], **numbers: str) -> None:
    busy = racer().state().busy or waiter().state().busy
    off = busy or experiment.why_not(wish_for(run, None, None)) is not None
    column.button(t("race", f"try_{name}"), key=f"try-race-{name}", on_click=act, disabled=off, width="stretch")
    column.caption(t("race", f"try_{name}_says", **numbers))


def _take(run: Run, P: int, N: int) -> None:
    st.session_state.race_P, st.session_state.race_N = P, N
    racer().start(wish_for(run, P, N, st.session_state.get("race_repeats")))


def waits(run: Run) -> None:
    """The experiment with the first token, once it has been asked for."""
    now = waiter().state()
    if now.result_for(waits_wish(run)) is None and not now.busy:
        return
    st.subheader(t("race", "waits_title"), anchor=False)
    fragment(_waits, key="race-waits", run_every=POLL_SECONDS if now.busy else None)(run)


@guarded
def _waits(run: Run) -> None:
    now = waiter().state()
    found: Waits | None = now.result_for(waits_wish(run))
    if now.busy:
        st.caption(_measuring(now))
    elif found is not None and found.state == "done":
        values = figures.waits_values(found)
        _chart("waits", figures.waits, figures.waits_table, found, f"waits_answer_{values['case']}", values)
    _rerun_at_end("waits", now.busy)


def results() -> None:
    """The race in numbers, once it is over and has passes to compare."""
    now = racer().state()
    race: Race | None = now.fresh
    if race is None or race.n < 2 or race.state == "running":
        return
    st.subheader(t("race", "charts_title"), anchor=False)
    values = figures.race_values(race)
    for name in ("per_token", "clock", "rows"):
        _chart(name, getattr(figures, name), getattr(figures, f"{name}_table"), race, f"{name}_answer", values)


def _chart(name: str, draw: Callable, table: Callable, record: object, answer: str, values: dict) -> None:
    """One chart with its sentence, explanation and table. Colours follow the theme in the browser."""
    sections = lessons.sections(current(), "race")
    words = {k.removeprefix("axis_"): v for k, v in sections.items() if k.startswith("axis_")}
    charts.chart(
        draw(record, words=words, dark=False),
        key=f"race-{name}",
        answer=t("race", answer, **values),
        how=t("race", f"{name}_how", **values),
        table=table(record, words=words),
        alt=t("race", f"{name}_alt", **values),
    )


@st.cache_data(show_spinner=False)
def lane_source() -> str:
    """The two lanes' own code, read from the engine's file without importing it."""
    source = (Path(kvviz.__file__).parent / "features" / "race" / "measure.py").read_text(encoding="utf-8")
    wanted = [n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name in ("Cached", "Uncached")]
    return "\n\n".join(ast.get_source_segment(source, node) or "" for node in wanted)
