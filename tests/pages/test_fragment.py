"""What a browser is left with when a fragment starts before all that the page drew has been sent.

Streamlit then takes back the messages of that fragment which are still waiting (`ForwardMsgQueue.clear`), and the
browser refuses a message whose place is beyond what it has: "Bad delta path index 8 (should be between [0, 7])".
"""

from __future__ import annotations

import pytest
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.testing.v1 import AppTest

from kvviz.features import pages

Told = list[tuple[tuple[int, ...], str]]  # the place of each message, and the fragment that it is of, in order


def told(monkeypatch, act) -> Told:
    """What a script run tells the browser, as `act` runs it."""
    found: Told = []

    def take(msg) -> None:
        if msg.HasField("delta"):
            found.append((tuple(msg.metadata.delta_path), msg.delta.fragment_id))

    monkeypatch.setattr(ForwardMsgQueue, "_before_enqueue_msg", staticmethod(take))
    act()
    return found


def beyond(messages: Told) -> list[tuple[int, ...]]:
    """The places that a browser which knows of nothing else refuses. A block's children are counted as they come."""
    known: set[tuple[int, ...]] = {(0,), (1,), (2,), (3,)}  # main, sidebar, event, bottom
    refused = []
    for place, _ in messages:
        before = [(*place[:-1], place[-1] - 1)] if place[-1] else []
        if all(p in known for p in [place[:-1], *before]):
            known.add(place)
        else:
            refused.append(place)
    return refused


def taken_back(messages: Told, name: str) -> Told:
    """The messages without those of the fragment `name` and of all that stands in it."""
    top = next(place for place, of in messages if of == name)
    return [(place, of) for place, of in messages if of != name and place[: len(top)] != top]


@pytest.mark.parametrize("page", [page.name for page in pages()])
def test_every_page_stays_whole_without_any_of_its_fragments(opened, no_models, monkeypatch, page):
    messages = told(monkeypatch, opened(page, step="3").run)
    assert beyond(messages) == []
    names = {of for _, of in messages if of}
    assert names, f"{page} draws no part by itself"
    for name in names:
        without = taken_back(messages, name)
        assert len(without) < len(messages)
        assert beyond(without) == []


def test_a_bare_fragment_leaves_a_gap(monkeypatch):
    """Worked out by hand: title 0, fragment 1 with its text 1.0, and 2 after it, which then follows on 0."""

    def bare() -> None:
        import streamlit as st

        st.title("a")
        st.fragment(lambda: st.text("b"), key="part")()
        st.text("c")

    messages = told(monkeypatch, AppTest.from_function(bare).run)
    assert [place for place, _ in messages] == [(0, 0), (0, 1), (0, 1, 0), (0, 2)]
    assert beyond(messages) == []
    assert beyond(taken_back(messages, messages[1][1])) == [(0, 2)]


def test_one_in_a_container_leaves_none(monkeypatch):
    def kept() -> None:
        import streamlit as st

        from kvviz.ui.fragment import fragment

        st.title("a")
        fragment(lambda: st.text("b"), key="part")()
        st.text("c")

    messages = told(monkeypatch, AppTest.from_function(kept).run)
    assert [place for place, _ in messages] == [(0, 0), (0, 1), (0, 1, 0), (0, 1, 0, 0), (0, 2)]
    assert beyond(taken_back(messages, messages[2][1])) == []
