"""Jobs on a page: `at_hand` starts one, `live` looks for what it has found, `start_and_stop` are its buttons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from kvviz.core.refusal import Refusal
from kvviz.models import catalog
from kvviz.ui import state, warm
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
from kvviz.ui.job import Job, State, Wish, Work
from kvviz.ui.language import t

POLL_SECONDS = 0.3
COMING_SECONDS = 1.0  # while a model loads: each look takes time from the imports


def job(name: str, work: Work) -> Job:
    """This session's jobs of that name."""
    held: dict[str, Job] = st.session_state.setdefault("kv_jobs", {})
    return held.setdefault(name, Job(work))


def job_named(name: str) -> Job | None:
    """The same for those who can't start it: None while nobody has."""
    return st.session_state.get("kv_jobs", {}).get(name)


def at_hand(name: str, work: Work, wish: Wish, *, by_itself: bool = True) -> State:
    """Where the job is. A cheap one starts `by_itself` whenever it has to (`State.begins`), once its model is there."""
    mine = job(name, work)
    now = mine.state()
    if by_itself and (wish.model, wish.dtype) != (state.model_name(), state.dtype()) and _on_disk(wish):
        warm.request(wish.model, wish.dtype)  # the sidebar's own model comes up with every page
    if by_itself and now.begins(wish) and warm.loaded(wish.model, wish.dtype) is not None:
        mine.start(wish, by_itself=True)
        now = mine.state()
    return now


def live(key: str, name: str, work: Work, wish: Wish, body: Callable[[State], Any], *, by_itself: bool = True) -> None:
    """Draws `body(state)`, again and again while there is news to come; then the rest of the page follows once.

    `body` may return a container: what is being waited for is said there, else below.
    """
    now = at_hand(name, work, wish, by_itself=by_itself)
    every = POLL_SECONDS if now.busy else COMING_SECONDS if by_itself and coming(wish) else None
    st.session_state[f"kv_live_{key}"] = now.busy, now.key, every
    fragment(_live, key=key, run_every=every)(key, name, work, wish, body, by_itself)


@guarded
def _live(key: str, name: str, work: Work, wish: Wish, body: Callable[[State], None], by_itself: bool) -> None:
    now = at_hand(name, work, wish, by_itself=by_itself)
    place = body(now)
    with place or st.container():
        waits(now, wish, by_itself=by_itself)
        if by_itself and now.can_retry(wish) and why_not(wish) is None:
            st.button(t("shell", "try_again"), key=f"{key}_again", on_click=_again, args=(name, work, wish))
    was_busy, started, every = st.session_state[f"kv_live_{key}"]
    still_coming = by_itself and not now.busy and coming(wish)
    if was_busy != now.busy or started != now.key or (every is not None) != (now.busy or still_coming):
        st.rerun()


def _again(name: str, work: Work, wish: Wish) -> None:
    mine = job(name, work)
    if mine.state().can_retry(wish):  # else a second press
        mine.start(wish, by_itself=True)


def coming(wish: Wish) -> bool:
    """The model is on its way, and the experiment would begin without a click."""
    return _on_disk(wish) and warm.status(wish.model, wish.dtype).coming


def why_not(wish: Wish) -> str | None:
    """The sentence that says why there can be no job on that model, or None."""
    try:
        if catalog.entry(wish.model).on_disk:
            status = warm.status(wish.model, wish.dtype)
            return refused(status.refusal) if status.refusal else None
    except Refusal as refusal:
        return refused(refusal)
    return refused(Refusal("not_on_disk", model=wish.model))


def _on_disk(wish: Wish) -> bool:
    try:
        return catalog.entry(wish.model).on_disk
    except Refusal:
        return False


def waits(now: State, wish: Wish, *, by_itself: bool = True) -> None:
    """What is being waited for, or why nothing comes: a line that keeps its place."""
    line = "\u00a0"
    if reason := why_not(wish):
        line = reason
    elif now.busy or (by_itself and now.wish != wish and coming(wish)):
        status = warm.status(wish.model, wish.dtype)
        if now.stage == "waiting":
            line = t("shell", "experiment_waiting", before=f"{now.before:,}")
        elif now.before:
            line = t("shell", "experiment_queue", before=f"{now.before:,}")
        elif status.ready:
            line = t("shell", "experiment_running")
        else:
            line = t(
                "shell", "experiment_model", state=t("shell", f"status_{status.stage}", seconds=f"{status.seconds:.0f}")
            )
    elif now.stopped:
        line = t("shell", "experiment_stopped")
    st.caption(line)
    if now.refusal and not now.busy:
        st.warning(refused(now.refusal))
    if now.failed and not now.busy:
        st.error(t("shell", "experiment_failed"))


def start_and_stop(
    name: str,
    work: Work,
    wish: Wish,
    label: str,
    *,
    where: Sequence | None = None,
    asked: Callable[[], Wish] | None = None,
    off: bool = False,
    beside: Sequence[Job] = (),
) -> None:
    """Two buttons, for a job that takes its time. `where`: two columns. `asked`: the wish at the click, which may have
    ended the typing of a number. `off`: what is wished for can't be. `beside`: others that Start waits for and Stop
    ends. Stop is there whenever there is something to stop."""
    mine = job(name, work)
    every = (mine, *beside)
    busy = any(one.state().busy for one in every)

    def stop() -> None:
        for one in every:
            one.stop()

    begin, end = where or st.columns(2)
    begin.button(
        label,
        key=f"{name}_start",
        type="primary",
        width="stretch",
        disabled=off or busy or why_not(wish) is not None,
        on_click=lambda: mine.start(asked() if asked else wish),
    )
    end.button(t("shell", "stop"), key=f"{name}_stop", width="stretch", disabled=not busy, on_click=stop)
