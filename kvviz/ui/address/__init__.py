"""The address bar follows the player: a component with nothing to see."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from kvviz.ui import links

_JS = (Path(__file__).parent / "address.js").read_text(encoding="utf-8")


@st.cache_resource(show_spinner=False)
def _component():
    return st.components.v2.component("kvviz_address", js=_JS, isolate_styles=False)


def show(place: links.Place, *, key: str) -> None:
    """Writes `place` into the query of the address bar."""
    _component()(key=key, data={"place": {name: getattr(place, name) for name in links.PLACE}}, height=1)
