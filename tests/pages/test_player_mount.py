"""What Python does around the player: what it sends each rerun, and what it makes of what the browser says."""

from __future__ import annotations

import json
import struct
from types import SimpleNamespace

import pytest
from factories import PLAYER_CASES, make_run, next_step
from streamlit.testing.v1 import AppTest

from kvviz.player import component as player_module
from kvviz.player.view import View

APP = """
import streamlit as st
from kvviz.player.component import player

state = st.session_state
place = player(state.run, key="player", language=state.get("language", "en"), view=state.view, can_extend=True,
               on_extend=state.on_extend, on_move=state.get("on_move"), room=10)
st.text(repr(place))
"""


class Mounted:
    """The app with the browser's part played by the test: `say` is what a trigger or state would bring."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, run, view: View) -> None:
        self.sent: list[dict] = []
        self.callbacks: dict = {}
        self.extended: list[int] = []
        self.moved: list[View] = []
        self.words: dict = {}
        self.said: tuple[str, dict] | None = None
        monkeypatch.setattr(player_module, "_renderer", lambda: self.render)
        self.at = AppTest.from_string(APP, default_timeout=60)
        self.at.session_state["run"] = run
        self.at.session_state["view"] = view
        self.at.session_state["on_extend"] = self.extended.append
        self.unsure: list[bool] = []
        self.at.session_state["on_move"] = lambda view, unsure: (self.moved.append(view), self.unsure.append(unsure))

    def render(self, *, key: str, data: bytes, **callbacks: object) -> None:
        import streamlit as st

        (length,) = struct.unpack_from("<I", data)
        self.sent.append(json.loads(data[4 : 4 + length]))
        st.session_state[key] = {}  # as Streamlit does when it registers the widget
        if self.said:
            event, value = self.said
            self.said = None
            st.session_state[key] = {event: value}
            callbacks[f"on_{event}_change"]()

    def rerun(self, **changes: object) -> str:
        for name, value in changes.items():
            self.at.session_state[name] = value
        self.at.run()
        assert not self.at.exception, self.at.exception
        return self.at.text[0].value

    def say(self, event: str, view: list, **more: object) -> str:
        """A word from the browser, then the rerun that it causes."""
        last = self.sent[-1]
        self.said = (event, {"run": last["run"], "move": last["caller"]["move"], "view": view, **more})
        self.rerun()
        return self.rerun()


@pytest.fixture
def mounted(monkeypatch):
    run = make_run(**PLAYER_CASES["shared"])  # 12 passes, 20 positions, 6 layers, 8 heads
    return Mounted(monkeypatch, run, View(3, 1, 2))


def test_the_first_message_has_the_words_and_the_passes(mounted) -> None:
    assert mounted.rerun() == repr(View(3, 1, 2))
    first = mounted.sent[0]
    assert (first["from"], first["to"], first["total"]) == (0, 12, 12)
    assert first["caller"]["words"]["prefill"] == "Prefill"
    assert first["caller"]["view"] == [3, 1, 2, "all", None]
    mounted.rerun()
    second = mounted.sent[1]
    assert (second["from"], second["to"], second["passes"]) == (12, 12, [])
    assert "words" not in second["caller"]
    assert second["caller"]["move"] == first["caller"]["move"]
    mounted.rerun(language="zh")
    assert mounted.sent[2]["caller"]["words"]["prefill"] == "预填充"


def test_where_the_learner_rests_is_where_they_stand(mounted) -> None:
    mounted.rerun()
    move = mounted.sent[-1]["caller"]["move"]
    assert mounted.say("view", [7, 2, 5, "layer", None]) == repr(View(7, 2, 5, "layer"))
    assert mounted.moved == [View(7, 2, 5, "layer")]
    assert mounted.sent[-1]["caller"]["move"] == move  # the same `view` from the caller moves nobody
    assert mounted.rerun(view=View(7, 2, 5, "layer")) == repr(View(7, 2, 5, "layer"))
    assert mounted.sent[-1]["caller"]["move"] == move  # nor does the place that the browser told
    assert mounted.rerun(view=View(1, 0, 0)) == repr(View(1, 0, 0))
    assert mounted.sent[-1]["caller"]["move"] != move


def test_a_place_given_back_late_does_not_call_the_learner_back(mounted) -> None:
    """The page hands on what the last rerun returned; the browser may have told of a newer place in between."""
    mounted.rerun()
    move = mounted.sent[-1]["caller"]["move"]
    assert mounted.say("view", [7, 2, 5, "all", None]) == repr(View(7, 2, 5))
    run = mounted.sent[-1]["run"]
    mounted.said = ("view", {"run": run, "move": move, "view": [8, 2, 5, "all", None]})
    assert mounted.rerun() == repr(View(7, 2, 5))  # heard while this one was under way
    assert mounted.rerun(view=View(7, 2, 5)) == repr(View(8, 2, 5))
    assert mounted.sent[-1]["caller"]["move"] == move


def test_places_out_of_range_are_clamped(mounted) -> None:
    mounted.rerun()
    assert mounted.say("view", [999, -4, 99, "head", 44]) == repr(View(11, 0, 7, "head", 9))
    for nonsense in ([1, 2], ["a", 0, 0, "all", None], [0, 0, 0, "cellar", None], None):
        assert mounted.say("view", nonsense) == repr(View(11, 0, 7, "head", 9))
    assert mounted.rerun(view=View(500, 50, 50)) == repr(View(11, 5, 7))


def test_n_asks_for_a_number_of_passes(mounted) -> None:
    mounted.rerun()
    mounted.say("extend", [11, 1, 2, "all", None], to=13, have={"passes": 12, "language": "en"})
    assert mounted.extended == [13]
    assert mounted.sent[-1]["caller"]["answered"] == 13
    mounted.say("extend", [11, 1, 2, "all", None], to=12, have={"passes": 12, "language": "en"})
    assert mounted.extended == [13]  # twelve are there already
    longer = mounted.at.session_state["run"]
    longer = longer.with_step(next_step(longer), {})
    mounted.rerun(run=longer)
    assert (mounted.sent[-1]["from"], mounted.sent[-1]["to"]) == (12, 13)


def test_what_the_browser_lacks_is_sent_again(mounted) -> None:
    mounted.rerun()
    mounted.say("want", [3, 1, 2, "all", None], have={"passes": 4, "language": ""})
    assert (mounted.sent[-1]["from"], mounted.sent[-1]["to"]) == (4, 12)
    assert "words" in mounted.sent[-1]["caller"]


def test_what_may_not_have_been_sent_is_said_to_the_page(mounted, monkeypatch) -> None:
    """A message that says something new may still wait in the server for a second; the same again is nothing new."""
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr(player_module, "time", clock)
    for _ in range(3):  # passes and words; no passes; the same
        mounted.rerun()
    clock.now = 100.9
    mounted.say("view", [7, 2, 5, "all", None], passes=12)
    clock.now = 102.1  # the place it moved to brought rows of another head, at 100.9, and nothing since
    mounted.say("view", [8, 2, 5, "all", None], passes=12)
    assert mounted.unsure == [True, False]


def test_passes_that_did_not_arrive_are_sent_again_with_the_next_move(mounted, monkeypatch) -> None:
    monkeypatch.setattr(player_module, "time", SimpleNamespace(monotonic=lambda: 100.0 * len(mounted.sent)))
    mounted.rerun()
    mounted.say("view", [3, 1, 2, "all", None], passes=12)
    assert mounted.unsure == [False]
    mounted.say("view", [2, 1, 2, "all", None], passes=4)  # the browser holds four of the twelve
    assert mounted.unsure == [False, True]
    assert (mounted.sent[-1]["from"], mounted.sent[-1]["to"]) == (4, 12)
    assert "words" not in mounted.sent[-1]["caller"]


def test_words_about_another_run_are_not_taken(mounted) -> None:
    mounted.rerun()
    last = mounted.sent[-1]
    other = make_run(**PLAYER_CASES["six"])
    mounted.rerun(run=other, view=View(0, 0, 0))
    mounted.said = ("view", {"run": last["run"], "move": last["caller"]["move"], "view": [5, 1, 1, "all", None]})
    mounted.rerun()
    assert mounted.rerun() == repr(View(0, 0, 0))
    assert mounted.moved == []


def test_the_real_component_mounts(root) -> None:
    at = AppTest.from_file(str(root / "tests/browser/apps/player_app.py"), default_timeout=60)
    at.query_params["case"] = "shared"
    at.query_params["step"] = "3"
    at.run()
    assert not at.exception
    proto = at.get("bidi_component")[0].proto
    assert proto.component_name == "kvviz_player"
    assert not proto.isolate_styles
    assert "kv-player" in proto.js_content and ".kvp" in proto.css_content
    (length,) = struct.unpack_from("<I", proto.bytes)
    assert json.loads(proto.bytes[4 : 4 + length])["to"] == 12
    assert at.text[0].value == "at 3 0 0 all None"
