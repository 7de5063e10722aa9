"""What is below the player follows the player's place, however Python came to know it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kvviz.features.decode.spec import SPEC as DECODE
from kvviz.player.view import View
from kvviz.ui import held as held_module
from kvviz.ui import request, stage, state
from kvviz.ui.held import held
from kvviz.ui.steps import Followed


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
    monkeypatch.setattr(held_module, "st", st)
    return SimpleNamespace(session=session, asked=asked)


def test_a_new_place_is_followed_once(page):
    held(Followed).view = View(3, 0, 0)
    stage._moved(DECODE)(View(3, 0, 0), False)
    assert page.asked == []
    stage._moved(DECODE)(View(4, 0, 0), False)
    assert page.asked == [list(DECODE.follows)]


def test_a_place_that_a_question_told_first_is_followed_too(page):
    """The player asked for more passes and said where it stands: nothing below has been drawn for that yet."""
    held(Followed).view = View(3, 0, 0)
    state.told(View(9, 0, 0))
    stage._moved(DECODE)(View(9, 0, 0), False)
    assert page.asked == [list(DECODE.follows)]


def test_a_player_whose_last_words_may_be_lost_is_drawn_too(page):
    """Streamlit takes back what a fragment has drawn and not sent, as the fragment starts again to hear of a move."""
    held(Followed).view = View(3, 0, 0)
    stage._moved(DECODE)(View(4, 0, 0), True)
    assert page.asked == [["player", *DECODE.follows]]
