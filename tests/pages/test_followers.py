"""What is below the player follows the player's place, however Python came to know it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kvviz.player.view import View
from kvviz.ui import request, stage, state


@pytest.fixture
def page(monkeypatch):
    """A script run in which only the player speaks; `asked` lists the fragments that are to run again."""
    held: dict = {}
    monkeypatch.setattr(request, "whole_page", lambda: False)
    session = type("Held", (dict,), {"__getattr__": dict.get, "__setattr__": dict.__setitem__})(held)
    asked: list = []
    st = SimpleNamespace(session_state=session, rerun=asked.append)
    monkeypatch.setattr(stage, "st", st)
    monkeypatch.setattr(state, "st", st)
    return SimpleNamespace(session=session, asked=asked)


def test_a_new_place_is_followed_once(page):
    page.session["kv_followed"] = View(3, 0, 0)
    stage._moved("run")(View(3, 0, 0), False)
    assert page.asked == []
    stage._moved("run")(View(4, 0, 0), False)
    assert page.asked == [list(stage.FOLLOWERS)]


def test_a_place_that_a_question_told_first_is_followed_too(page):
    """The player asked for more passes and said where it stands: nothing below has been drawn for that yet."""
    page.session["kv_followed"] = View(3, 0, 0)
    state.told(View(9, 0, 0))
    stage._moved("run")(View(9, 0, 0), False)
    assert page.asked == [list(stage.FOLLOWERS)]


def test_a_player_whose_last_words_may_be_lost_is_drawn_too(page):
    """Streamlit takes back what a fragment has drawn and not sent, as the fragment starts again to hear of a move."""
    page.session["kv_followed"] = View(3, 0, 0)
    stage._moved("run")(View(4, 0, 0), True)
    assert page.asked == [["player", *stage.FOLLOWERS]]
