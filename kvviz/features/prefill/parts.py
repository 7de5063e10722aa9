"""The whole prompt in one pass: the square under the mask, what is kept, what is thrown away."""

import streamlit as st

from kvviz.core import Run
from kvviz.player.view import View
from kvviz.ui import links, page
from kvviz.ui.language import t


def below(run: Run, view: View) -> None:
    view = View(0, view.layer, view.head)  # this page is about pass 0, wherever the others stand
    values = page.facts(run, view)
    st.subheader(t("prefill", "read_heading"), anchor=False)
    read = "read_one" if run.P == 1 else "read_window" if page.windowed(run, view) else "read"
    st.markdown(t("prefill", read, **values))
    for figure in ("square", "predictions"):
        page.figure(figure, run, view, key=f"prefill-{figure}")
    page.code("prefill", run, view)
    page.questions("prefill", run, view)


TRIES = (
    page.Try("mask", links.Place(step=0), substep=4),
    page.Try("neighbour", links.Place(0, 2, 2), substep=5, recorded=True),
    page.Try("kept", links.Place(step=0), substep=9),
)
