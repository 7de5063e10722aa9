"""The race on its page: controls that are in the link, the lanes while they run, and what came of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import streamlit as st

import kvviz
from kvviz.core import Run, lessons
from kvviz.core.refusal import Refusal
from kvviz.features.race import figure as figures
from kvviz.features.race.parts import race_lanes
from kvviz.features.race.parts.runner import Racer, State, Wish
from kvviz.features.race.parts.view import Plan
from kvviz.features.race.record import Race
from kvviz.features.race.spec import SPEC
from kvviz.models import catalog
from kvviz.theory.work import rows_with_cache, rows_without_cache
from kvviz.ui import charts, links, state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
from kvviz.ui.language import current, t

POLL_SECONDS = 0.2
NEW_TOKENS = 20
SHORT, LONG = (5, 20), (100, 100)  # P, N of "Try this"


def racer() -> Racer:
    """This session's races."""
    if "kv_racer" not in st.session_state:
        st.session_state.kv_racer = Racer()
    return st.session_state.kv_racer


def controls(run: Run) -> Wish:
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
    reason = why_not(run)
    busy = racer().state().busy
    start.button(
        t("race", "start"),
        key="race_start",
        type="primary",
        width="stretch",
        disabled=busy or reason is not None,
        on_click=_start,
        args=(run,),
    )
    stop.button(t("race", "stop"), key="race_stop", width="stretch", disabled=not busy, on_click=racer().stop)
    if reason:
        st.caption(reason)
    return wish


def _start(run: Run) -> None:
    """With the numbers that the fields hold at the click: they may have been typed a moment before it."""
    racer().start(wish_for(run, *(st.session_state.get(name) for name in ("race_P", "race_N", "race_repeats"))))


def wish_for(run: Run, length: int | None, new: int | None, repeats: int | None = None) -> Wish:
    return Wish(run.model.name, run.prompt, new or NEW_TOKENS, repeats, length, run.sampling, run.model.dtype)


def why_not(run: Run) -> str | None:
    """The sentence that says why Start is off: the shown run's model is not on this machine."""
    try:
        found = catalog.entry(run.model.name)
    except Refusal as refusal:
        return refused(refusal)
    return None if found.on_disk else refused(Refusal("not_on_disk", model=found.name))


def lanes(run: Run, wish: Wish) -> None:
    """The hero. While a race is on, it looks for new tokens five times a second."""
    now = racer().state()
    polling = now.busy and not now.measuring_waits
    fragment(_lanes, key="race", run_every=POLL_SECONDS if polling else None)(run, wish)


@guarded
def _lanes(run: Run, wish: Wish) -> None:
    now = racer().state()
    race_lanes(
        shown(now, run, wish),
        key="race-lanes",
        race_key=now.race_key,
        language=current(),
        presenter=bool(state.shared().presenter),
    )
    _say(now, run)
    _rerun_at_end("race", now.busy and not now.measuring_waits)


def shown(now: State, run: Run, wish: Wish) -> Race | Plan:
    """The race at hand or the last one; before the first, or while one has no token yet, what it will be."""
    if now.busy and not now.measuring_waits and now.stage != "racing":
        return Plan(now.wish.length or run.P, now.wish.new, now.stage, now.before)
    if now.race is not None and now.race.n:
        return now.race
    return Plan(wish.length or run.P, wish.new)


def _say(now: State, run: Run) -> None:
    if now.refusal:
        st.warning(refused(now.refusal))
    if now.failed:
        st.error(t("race", "failed"))
    if now.measuring_waits:
        _say_waits(now)
    raced = now.race
    if raced is not None and not now.busy and (raced.prompt, raced.model.name) != (run.prompt, run.model.name):
        names = {"prompt": lessons.literal(links.shorten(raced.prompt)), "model": lessons.literal(raced.model.name)}
        st.caption(t("race", "other_prompt", **names))


def _say_waits(now: State) -> None:
    """What the question about the first token has found, where its button is: the chart may be below the fold."""
    if now.busy:
        said = t("race", "waits_running")
    elif now.waits is not None and now.waits.state == "done":
        values = figures.waits_values(now.waits)
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
    _try(waits, "waits", run, lambda: racer().start(wish_for(run, None, 1), waits=True))


def _try(column, name: str, run: Run, act: Callable[[], None], **numbers: str) -> None:
    off = racer().state().busy or why_not(run) is not None
    column.button(t("race", f"try_{name}"), key=f"try-race-{name}", on_click=act, disabled=off, width="stretch")
    column.caption(t("race", f"try_{name}_says", **numbers))


def _take(run: Run, P: int, N: int) -> None:
    st.session_state.race_P, st.session_state.race_N = P, N
    racer().start(wish_for(run, P, N, st.session_state.get("race_repeats")))


def waits() -> None:
    """The experiment with the first token, once it has been asked for."""
    now = racer().state()
    if now.waits is None and not (now.busy and now.measuring_waits):
        return
    st.subheader(t("race", "waits_title"), anchor=False)
    polling = now.busy and now.measuring_waits
    fragment(_waits, key="race-waits", run_every=POLL_SECONDS if polling else None)()


@guarded
def _waits() -> None:
    now = racer().state()
    found, measuring = now.waits, now.busy and now.measuring_waits
    if measuring:
        st.caption(t("race", "waits_running"))
    elif found is not None and found.state == "done":
        values = figures.waits_values(found)
        _chart("waits", figures.waits, figures.waits_table, found, f"waits_answer_{values['case']}", values)
    _rerun_at_end("waits", measuring)


def results() -> None:
    """The race in numbers, once it is over and has passes to compare."""
    now = racer().state()
    race = now.race
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
