"""Two small components with nothing to see, for what only the browser can do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from kvviz.ui import links, request
from kvviz.ui.spec import PageSpec

_HERE = Path(__file__).parent


@st.cache_resource(show_spinner=False)
def _component(name: str):
    js = (_HERE / f"{name}.js").read_text(encoding="utf-8")
    return st.components.v2.component(f"kvviz_{name}", js=js, isolate_styles=False)


def show_address(place: links.Place, *, key: str) -> None:
    """Writes `place` into the query of the address bar, without a history entry."""
    show_in_address({name: getattr(place, name) for name in links.PLACE}, key=key)


def show_in_address(values: Mapping[str, object], *, key: str) -> None:
    """Writes those values into the query of the address bar, without a history entry; None takes one out."""
    _component("address")(key=key, data={"place": dict(values)}, height=1)


def show_own(page: PageSpec) -> None:
    """Keeps a page's own settings in the address: to be called after its widgets, once a run of the whole page."""
    own = request.own_address(page)
    show_in_address(dict.fromkeys(own) | links.written(own), key="own")


def watch_typing(*, key: str) -> None:
    """Hands over the first text typed into an empty prompt, so that Run is on when it is clicked."""
    _component("typing")(key=key, height=1)
