"""What the browser is told of the passes it asked for, while they are still being made."""

from __future__ import annotations

import pytest
from factories import make_run
from streamlit.testing.v1 import AppTest


def _app() -> None:
    import streamlit as st

    from kvviz.player import component as module
    from kvviz.player.component import player
    from kvviz.player.view import View

    module._mount("p").answered = 5
    module._mount("p").reported_run = module.message.identity(st.session_state.run)
    st.session_state.setdefault("p", {})
    module._renderer = lambda: lambda **_: None
    module.message.build = lambda run, have, focus, header: st.session_state.seen.append(header) or b""
    player(
        st.session_state.run, key="p", language="en", view=View(0, 0, 0), can_extend=True, busy=st.session_state.busy
    )


@pytest.mark.parametrize(("busy", "answered"), [("4 of 5", 4), (None, 5)])
def test_passes_on_their_way_are_not_told_as_refused(monkeypatch, busy, answered):
    """Else the browser would forget the presses of N that came after: C20 wants exactly five."""
    from kvviz.player import component as module

    monkeypatch.setattr(module, "_renderer", module._renderer)
    monkeypatch.setattr(module.message, "build", module.message.build)
    seen: list[dict] = []
    app = AppTest.from_function(_app)
    app.session_state.run, app.session_state.busy, app.session_state.seen = make_run(N=4), busy, seen
    app.run()
    assert not app.exception
    assert seen[-1]["answered"] == answered
