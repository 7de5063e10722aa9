"""What kvviz is, on a run that is already there; then the learner's own."""

import streamlit as st

from kvviz.core import Run
from kvviz.player.view import View
from kvviz.ui import examples, links, page, state
from kvviz.ui.language import literal, t


def below(run: Run, view: View) -> None:
    st.subheader(t("home", "read_heading"), anchor=False)
    st.markdown(t("home", "read", **page.facts(run, view)))
    page.figure("rows_total", run, view, key="home-rows")
    st.subheader(t("home", "own_heading"), anchor=False)
    st.markdown(t("home", "own", model=literal(state.model_name())))
    examples.choices(state.model_name(), where="home")
    page.questions("home", run, view)


TRIES = (
    page.Try("grow", links.Place(step=0)),
    page.Try("looks_back", links.Place(6, 3, 2), recorded=True),
    page.Try("cost", links.Place(step=page.LAST)),
)
