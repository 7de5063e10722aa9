"""All heads at a glance, as a Streamlit component: a click or a key picks one. `view.py` says what it is sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

_HERE = Path(__file__).parent


@cache
def _component() -> Any:
    js, css = ((_HERE / f"heads.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
    return st.components.v2.component("kvviz_heads", js=js, css=css, isolate_styles=False)


def heads(data: bytes, *, key: str, on_pick: Callable[[int, int, int, int], None], on_lack: Callable[[], None]) -> None:
    """Draws what `view.view` made. `on_pick(step, layer, head, times)` hears where the learner has gone, before a
    rerun; `times` counts what the browser has said. `on_lack` hears that it does not have the tiles it was to have."""

    def heard() -> None:
        said = st.session_state[key].get("at")
        names = ("step", "layer", "head", "times")
        if isinstance(said, dict) and all(type(said.get(n)) is int for n in names):
            on_pick(*(said[n] for n in names))

    _component()(key=key, data=data, on_at_change=heard, on_lack_change=on_lack)
