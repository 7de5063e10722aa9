"""The player alone on the recorded run of a file, for its benchmark: streamlit run player_app.py -- FILE PASSES

It shows the first PASSES passes; asked for more, it goes on with those that the file holds.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import streamlit as st

from kvviz.core import Run, storage
from kvviz.player.component import player
from kvviz.player.view import View
from kvviz.ui.fragment import fragment


@st.cache_resource
def recorded(file: Path) -> Run:
    return storage.load(file)


def shown(whole: Run, first: int) -> None:
    passes = st.session_state.setdefault("passes", first)

    def extend(to: int) -> None:
        st.session_state["passes"] = min(to, len(whole.steps))

    run = dataclasses.replace(whole, steps=whole.steps[:passes])
    room = len(whole.steps) - passes
    player(run, key="player", language="en", view=View(60, 5, 3), can_extend=True, on_extend=extend, room=room)


st.set_page_config(layout="wide")
fragment(shown, key="shown")(recorded(Path(sys.argv[1])), int(sys.argv[2]))
