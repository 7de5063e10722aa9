"""What kvviz is, on a run that is already there; then the learner's own."""

import streamlit as st

from kvviz.core import Run
from kvviz.features.home.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import examples, kit, sentences, state, steps
from kvviz.ui.language import literal, t


def below(run: Run, view: View) -> None:
    st.subheader(t("home", "read_heading"), anchor=False)
    st.markdown(t("home", "read", **sentences.step_facts(run, view)))
    steps.figure("rows_total", run, view, key="home-rows")
    st.subheader(t("home", "own_heading"), anchor=False)
    st.markdown(t("home", "own", model=literal(state.model_name())))
    examples.choices(state.model_name(), where="home")
    kit.questions(SPEC)
