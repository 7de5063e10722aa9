"""What follows the step: the fragment below the player, and what its sentences may name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from kvviz.core import Run
from kvviz.core.refusal import Refusal
from kvviz.player.view import View
from kvviz.ui import browser, kit, state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
from kvviz.ui.held import held
from kvviz.ui.language import has, t
from kvviz.ui.sentences import step_facts, windowed
from kvviz.ui.spec import Place


@dataclass
class Followed:
    """The place that what follows the step was last drawn for."""

    view: View | None = None


def follow(body: Callable[[Run, View], None]) -> None:
    """Draws `body(run, view)` under the text so far; drawn again, by itself, when the step changes."""
    fragment(_follow, key="below")(body)


@guarded
def _follow(body: Callable[[Run, View], None]) -> None:
    run = state.current_run()
    view = held(Followed).view = state.view(run)
    text_so_far(run, view.step)
    body(run, view)
    show_address(view)


def show_address(view: View) -> None:
    """Keeps the place in the address bar; a link's own stays there until it has been reached."""
    if not state.place_waits():
        browser.show_address(Place(view.step, view.layer, view.head), key="address")


def figure(name: str, run: Run, view: View, *, key: str) -> None:
    """A chart that follows the step. Pandas and Plotly take most of a second to import: the player comes first."""
    from kvviz.ui import charts

    charts.draw(name, run, key=key, step=view.step, layer=view.layer, head=view.head)


def text_so_far(run: Run, step: int) -> None:
    """Prompt and chosen tokens up to `step`, exactly as they are, and where the model meant to end."""
    ids = run.ids[: run.P + step + 1]
    text = b"".join(run.pieces[int(i)] for i in ids).decode("utf-8", errors="replace")
    st.markdown(f"**{t('shell', 'text_so_far')}**")
    # Not st.code: the browser would fetch and start a syntax highlighter for it, which takes it a second.
    st.container(key="running_text").text(text)
    st.caption(t("shell", "signs"))
    ends = [s.index for s in run.steps[: step + 1] if s.is_end]
    if ends:
        section = "text_end_once" if len(ends) == 1 else "text_end"
        st.caption(t("shell", section, step=f"{ends[0]:,}", times=f"{len(ends):,}"))
    limit_reached(run)


def code(name: str, run: Run, view: View) -> None:
    """The pass in a few lines: section `code` of a lesson, or `code_window`, where there is one, for a layer that does
    not see all that is stored."""
    section = "code_window" if windowed(run, view) and has(name, "code_window") else "code"
    kit.code(name, section, heading="code_heading", **step_facts(run, view))


def limit_reached(run: Run) -> None:
    """The sentence at the end of the model's positions."""
    progress = state.learner().progress()
    if not (state.is_live(run) and progress.at_limit):
        return
    m = run.model
    if run.length >= m.max_positions:
        code = "limit_reached" if m.positions == "learned" else "limit_reached_rotary"
        refusal = Refusal(code, model=m.name, length=run.length, limit=m.max_positions)
    else:
        session = state.session()
        limit = session.keep_bytes if session else run.nbytes
        refusal = Refusal("run_full", bytes=run.nbytes, limit=limit, step=len(run.steps))
    st.warning(refused(refusal))
