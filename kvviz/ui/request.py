"""What came with this run of the script: its query, and whether the reader has just arrived by it."""

from __future__ import annotations

import time

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kvviz.ui import links

_SEEN = "kv_seen"
_FIRST = "kv_first"
HEAD_START = 0.7  # seconds


def query_values() -> dict[str, str]:
    """The query of the URL as the browser sent it. `st.query_params` can lag behind on Back."""
    ctx = get_script_run_ctx()
    return links.query(ctx.query_string) if ctx else {}


def by_history() -> bool:
    """Back or Forward caused this run."""
    return bool(getattr(get_script_run_ctx(), "is_history_navigation", False))


def arrived() -> bool:
    """This run opens a link: the first of the session, or one caused by Back or Forward."""
    return not st.session_state.get(_SEEN, False) or by_history()


def whole_page() -> bool:
    """This run draws the whole page, not some fragments of it."""
    ctx = get_script_run_ctx()
    return ctx is None or not ctx.fragment_ids_this_run


def settle() -> None:
    """Called once all widgets exist: from now on their values speak."""
    st.session_state[_FIRST] = not st.session_state.get(_SEEN, False)
    st.session_state[_SEEN] = True


def player_first() -> None:
    """In a session's first run, holds back what comes after the player until a browser has had time to draw it.

    Sent in one go, the rest of the page (and torch, whose import begins when the script has ended) keeps the browser
    busy for seconds while the player waits its turn.
    """
    if st.session_state.pop(_FIRST, False) and st.context.url:
        time.sleep(HEAD_START)


def take_own(page: str, **first: int | str | list[str]) -> None:
    """Sets a page's own controls to what a link says, once, and those that nothing has set yet to their `first`.

    Bound to the query they would forget their values with every change of page.
    """
    st.session_state.update(own_news(page))
    for name, value in first.items():
        st.session_state.setdefault(name, value)


def own_news(page: str) -> dict[str, int | float | str | list[str]]:
    """A page's own settings in the query, once each time they are other than before: from then on its widgets speak."""
    asked, key = links.own(page, query_values()), f"kv_own_{page}"
    if st.session_state.get(key, {}) == asked:
        return {}
    st.session_state[key] = asked
    return asked
