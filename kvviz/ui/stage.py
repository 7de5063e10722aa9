"""The player on a page: which run, where it stands, and what happens when it asks for more."""

from __future__ import annotations

import dataclasses

import streamlit as st

from kvviz.core import Run
from kvviz.player.component import player
from kvviz.player.view import View
from kvviz.ui import request, state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded
from kvviz.ui.held import held
from kvviz.ui.language import current, t
from kvviz.ui.spec import PageSpec
from kvviz.ui.steps import Followed

POLL_SECONDS = 0.5
PATIENCE = 0.9  # seconds a press of N is worth waiting for in one go; slower passes are polled for
AHEAD_PATIENCE = 0.25  # and for passes that later presses will ask for


def stage(page: PageSpec) -> None:
    """Mounts the page's player. While the worker runs passes it looks for new ones twice a second."""
    st.session_state.kv_drawn = state.current_run().key
    state.learner().compare(bool(state.shared().compare))
    passes = state.learner().progress().stage == "passes"
    fragment(_stage, key="player", run_every=POLL_SECONDS if passes else None)(page)


@guarded
def _stage(page: PageSpec) -> None:
    mode = page.player
    run = state.current_run()
    if run.key != st.session_state.kv_drawn:
        st.rerun()  # the rest of the page still speaks of the run before
    progress = state.learner().progress()
    live = state.is_live(run)
    asked = state.asked(run)
    view = asked or _view_to_pass(page, run)
    if mode == "prefill":
        view = dataclasses.replace(view, step=0)
    here = player(
        run,
        key=f"player-{page.name}",
        language=current(),
        view=view,
        asks=state.asks(),
        asked=asked is not None or state.from_elsewhere(run),
        coming=progress.busy and not live,
        can_extend=live and mode == "run" and not progress.at_limit,
        mode=mode,
        presenter=bool(state.shared().presenter),
        on_extend=_extend if live else None,
        ahead=state.learner().next_runs if live and mode == "run" else (),
        preparing=live and progress.preparing,
        on_move=_moved(page),
        room=progress.room or 0,
        busy=t("shell", "busy_passes", done=f"{progress.done:,}", wanted=f"{progress.wanted:,}")
        if live and progress.busy
        else None,
    )
    st.session_state.kv_stands = ((page.name, run.key), here)
    state.told(_shared(here, mode))


def _view_to_pass(page: PageSpec, run: Run) -> View:
    """Where the player said it stands, which leaves it alone; another place when it has to move."""
    stands = st.session_state.get("kv_stands")
    if stands and stands[0] == (page.name, run.key):
        return stands[1]
    view = state.view(run)
    if view.step < page.begins < len(run.steps):
        return dataclasses.replace(view, step=page.begins)
    return view


def _shared(here: View, mode: str | None) -> View:
    """What this player says about the place all pages share: prefill's knows no step but its own."""
    last: View | None = st.session_state.get("kv_view")
    return dataclasses.replace(here, step=last.step, substep=None) if mode == "prefill" and last else here


def _moved(page: PageSpec):
    def moved(here: View, unsure: bool) -> None:
        # A run of the whole page draws the followers anyway. It may be the next page's, when the place and the click on
        # a link come in one message: asking for fragments would end it before its first element.
        place = _shared(here, page.player)
        st.session_state.kv_elsewhere = None
        state.told(place)  # Python may know it already, from a question of the player's, with nothing drawn for it
        if held(Followed).view != place and not request.whole_page():
            st.rerun(["player", *page.follows] if unsure else list(page.follows))

    return moved


def _extend(to: int) -> None:
    """N: the worker makes the passes; what is not there in a moment, the page looks for from now on."""
    learner = state.learner()
    learner.extend(to, wait=PATIENCE, wait_ahead=AHEAD_PATIENCE)
    if learner.progress().busy:
        st.rerun()
