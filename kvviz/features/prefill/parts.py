"""The whole prompt in one pass: the square under the mask, what is kept, what is thrown away."""

import streamlit as st

from kvviz.core import Run
from kvviz.features.prefill.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import kit, sentences, steps
from kvviz.ui.language import t


def below(run: Run, view: View) -> None:
    view = View(0, view.layer, view.head)  # this page is about pass 0, wherever the others stand
    values = sentences.step_facts(run, view)
    st.subheader(t("prefill", "read_heading"), anchor=False)
    read = "read_one" if run.P == 1 else "read_window" if sentences.windowed(run, view) else "read"
    st.markdown(t("prefill", read, **values))
    for figure in ("square", "predictions"):
        steps.figure(figure, run, view, key=f"prefill-{figure}")
    steps.code("prefill", run, view)
    kit.questions(SPEC)
