"""What came with this run of the script: its query, and whether the reader has just arrived by it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kvviz.ui import links
from kvviz.ui.held import begin, held, put
from kvviz.ui.spec import PageSpec

HEAD_START = 0.7  # seconds
KNOWN = 20  # addresses of a page that a late message may still hold


@dataclass
class _Arrival:
    """Whether the session has drawn a page, and whether this run of the script is its first."""

    seen: bool = False
    first: bool = False


def query_values() -> dict[str, str]:
    """The query of the URL as the browser sent it. `st.query_params` can lag behind on Back."""
    ctx = get_script_run_ctx()
    return links.query(ctx.query_string) if ctx else {}


def by_history() -> bool:
    """Back or Forward caused this run."""
    return bool(getattr(get_script_run_ctx(), "is_history_navigation", False))


def arrived() -> bool:
    """This run opens a link: the first of the session, or one caused by Back or Forward."""
    return not held(_Arrival).seen or by_history()


def whole_page() -> bool:
    """This run draws the whole page, not some fragments of it."""
    ctx = get_script_run_ctx()
    return ctx is None or not ctx.fragment_ids_this_run


def settle() -> None:
    """Called once all widgets exist: from now on their values speak."""
    arrival = held(_Arrival)
    arrival.first, arrival.seen = not arrival.seen, True


def player_first() -> None:
    """In a session's first run, holds back what comes after the player until a browser has had time to draw it.

    Sent in one go, the rest of the page (and torch, whose import begins when the script has ended) keeps the browser
    busy for seconds while the player waits its turn.
    """
    arrival = held(_Arrival)
    first, arrival.first = arrival.first, False
    if first and st.context.url:
        time.sleep(HEAD_START)


def take_own(page: PageSpec) -> None:
    """Sets a page's own controls to what a link says, once, and those that nothing has set yet to their defaults.

    Bound to the query they would forget their values with every change of page.
    """
    put(page.own, **_news(page))
    begin(page.own)


def _news(page: PageSpec) -> dict[str, int | float | str | list[str]]:
    """A page's own settings in the query, once each time they are other than before: from then on its widgets speak.

    What stood there earlier is no news either, unless by Back or Forward: a click can be quicker than the address that
    the run before it wrote.
    """
    asked = links.own(page.fields, query_values())
    known = _known(page)
    news = asked not in known or (by_history() and asked != known[-1])
    _keep(page, asked)
    return asked if news else {}


def own_address(page: PageSpec) -> dict[str, object]:
    """What the query must hold for a reload to come back to the page's own settings as they are; None: nothing.

    Settings that nobody has changed and no link has set are left out. To be called once the widgets exist.
    """
    session, query, address = st.session_state, query_values(), _address(page)
    fields = [name for name in page.fields if name in session]
    for name in fields:
        address.first.setdefault(name, session[name])
    address.shown |= {name for name in page.fields if name in query}
    address.shown |= {name for name in fields if session[name] != address.first[name]}
    values = {name: session.get(name) for name in page.fields if name in address.shown}
    _keep(page, links.own(page.fields, links.written(values)))  # the browser will send them: no news
    return values


@dataclass
class _Address:
    """Of one page: values its controls had first, those that are in the address, and the addresses it has had."""

    first: dict[str, object] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    known: list[dict[str, object]] = field(default_factory=lambda: [{}])  # the newest last


@dataclass
class _Addresses:
    of: dict[str, _Address] = field(default_factory=dict)


def _address(page: PageSpec) -> _Address:
    return held(_Addresses).of.setdefault(page.name, _Address())


def _known(page: PageSpec) -> list[dict[str, object]]:
    return _address(page).known


def _keep(page: PageSpec, own: dict[str, object]) -> None:
    address = _address(page)
    address.known = [*(each for each in address.known if each != own), own][-KNOWN:]
