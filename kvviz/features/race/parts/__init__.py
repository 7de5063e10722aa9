"""The two lanes of a race, as a Streamlit component. `view.py` says what they show."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from kvviz.features.race.parts.view import Plan, view
from kvviz.features.race.record import Race

_HERE = Path(__file__).parent
_JS = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in ("draw.js", "replay.js", "main.js"))
_mount = st.components.v2.component(
    "kvviz.race_lanes", css=(_HERE / "lanes.css").read_text(encoding="utf-8"), js=_JS, isolate_styles=False
)


def race_lanes(race: Race | Plan, *, key: str, race_key: str, language: str, presenter: bool = False) -> None:
    """Draw `race` as it stands. `key` is the widget's, `race_key` names the race: its end is replayed once."""
    _mount(key=key, data=view(race, key=race_key, language=language, presenter=presenter))
