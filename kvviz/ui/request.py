"""What came with this run of the script: its query, and whether the reader has just arrived by it."""

from __future__ import annotations

import time

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kvviz.ui import links

_SEEN = "kv_seen"
_FIRST = "kv_first"
HEAD_START = 0.7  # seconds
KNOWN = 20  # addresses of a page that a late message may still hold


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
    """A page's own settings in the query, once each time they are other than before: from then on its widgets speak.

    What stood there earlier is no news either, unless by Back or Forward: a click can be quicker than the address that
    the run before it wrote.
    """
    asked = links.own(page, query_values())
    known = _known(page)
    news = asked not in known or (by_history() and asked != known[-1])
    _keep(page, asked)
    return asked if news else {}


def own_address(page: str) -> dict[str, object]:
    """What the query must hold for a reload to come back to the page's own settings as they are; None: nothing.

    Settings that nobody has changed and no link has set are left out. To be called once the widgets exist.
    """
    held, query = st.session_state, query_values()
    fields = [name for name in links.OWN[page] if name in held]
    first, shown = held.setdefault(f"kv_first_{page}", {}), held.setdefault(f"kv_shown_{page}", set())
    for name in fields:
        first.setdefault(name, held[name])
    shown |= {name for name in links.OWN[page] if name in query}
    shown |= {name for name in fields if held[name] != first[name]}
    values = {name: held.get(name) for name in links.OWN[page] if name in shown}
    _keep(page, links.own(page, links.written(values)))  # the browser will send them: no news
    return values


def _known(page: str) -> list[dict[str, object]]:
    """The page's own settings that the query has held, the newest last."""
    return st.session_state.setdefault(f"kv_own_{page}", [{}])


def _keep(page: str, own: dict[str, object]) -> None:
    known = _known(page)
    st.session_state[f"kv_own_{page}"] = [*(each for each in known if each != own), own][-KNOWN:]
