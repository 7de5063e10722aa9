"""The lines of the installed transformers that this pass goes through, with what their variables hold."""

import streamlit as st

from kvviz.core import Run
from kvviz.features.source import parts as walk
from kvviz.features.source.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import kit, request
from kvviz.ui.fragment import fragment
from kvviz.ui.language import t

NAME = "source"


def below(run: Run, view: View) -> None:
    values = walk.values(run, view)
    kit.read(NAME, **values)
    st.subheader(t(NAME, "ten_heading"), anchor=False)
    lines = walk.ten_lines(run, view)
    st.markdown(t(NAME, "ten_unknown" if lines is None else "ten_says", **values))
    if lines is not None:
        st.code(lines, language=None)
    st.subheader(t(NAME, "names_heading"), anchor=False)
    st.markdown(t(NAME, "names_renamed" if values["renamed"] != "?" else "names_old", **values))
    st.markdown(t(NAME, "names", **values))
    kit.questions(SPEC, **values)


kit.heading(SPEC)
walk.stage()
request.player_first()
acts = {
    "cut": lambda: walk.go("cut", 3),
    "append": lambda: walk.go("append_k", 3),
    "prefill": lambda: walk.go("append_k", 0),
}
kit.tries(SPEC, acts)
fragment(walk.follow, key="below")(below)
kit.onward(SPEC)
