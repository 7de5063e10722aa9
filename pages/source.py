"""The lines of the installed transformers that this pass goes through, with what their variables hold."""

import streamlit as st

from kvviz.core import Run
from kvviz.features.source import parts as walk
from kvviz.player.view import View
from kvviz.ui import experiment, page, request, shell
from kvviz.ui.fragment import fragment
from kvviz.ui.language import t

NAME = "source"


def below(run: Run, view: View) -> None:
    values = walk.values(run, view)
    experiment.read(NAME, **values)
    st.subheader(t(NAME, "ten_heading"), anchor=False)
    lines = walk.ten_lines(run, view)
    st.markdown(t(NAME, "ten_unknown" if lines is None else "ten_says", **values))
    if lines is not None:
        st.code(lines, language=None)
    st.subheader(t(NAME, "names_heading"), anchor=False)
    st.markdown(t(NAME, "names_renamed" if values["renamed"] != "?" else "names_old", **values))
    st.markdown(t(NAME, "names", **values))
    experiment.questions(NAME, **values)


shell.heading(NAME)
walk.stage()
request.player_first()
experiment.tries(
    NAME,
    [
        experiment.Try("cut", lambda: walk.go("cut", 3)),
        experiment.Try("append", lambda: walk.go("append_k", 3)),
        experiment.Try("prefill", lambda: walk.go("append_k", 0)),
    ],
)
fragment(walk.follow, key="below")(below)
page.onward(NAME)
