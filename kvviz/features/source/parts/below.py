"""What stands under the walk and follows it."""

from __future__ import annotations

from collections.abc import Callable

from kvviz.core import Run
from kvviz.features.source.parts.way import NAME, checks, values
from kvviz.player.view import View
from kvviz.ui import browser, kit, links, state, steps
from kvviz.ui.guard import guarded


@guarded
def follow(rest: Callable[[Run, View], None]) -> None:
    """The proofs, the text so far, then the rest of the page; drawn again when the step changes."""
    run = state.current_run()
    view = state.view(run)
    kit.proofs(NAME, checks(run, view), **values(run, view))
    steps.text_so_far(run, view.step)
    rest(run, view)
    if not state.place_waits():
        browser.show_address(links.Place(view.step, view.layer, view.head), key="address")
