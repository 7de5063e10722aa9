"""The whole prompt in one pass: the square under the mask, what is kept, what is thrown away."""

import streamlit as st

from kvviz.records import Run
from kvviz.ui import charts, links, page
from kvviz.ui.language import t
from kvviz.ui.player import View


def below(run: Run, view: View) -> None:
    values = page.facts(run, View(0, view.layer, view.head))
    st.subheader(t("prefill", "read_heading"), anchor=False)
    st.markdown(t("prefill", "read", **values))
    for figure in ("square", "predictions"):
        charts.draw(figure, run, key=f"prefill-{figure}", step=0, layer=view.layer, head=view.head)
    st.subheader(t("prefill", "code_heading"), anchor=False)
    st.markdown(t("prefill", "code", **values))
    page.questions("prefill", run, View(0, view.layer, view.head))


TRIES = (
    page.Try("mask", links.Place(step=0), substep=4),
    page.Try("neighbour", links.Place(0, 2, 2), substep=5, recorded=True),
    page.Try("kept", links.Place(step=0), substep=9),
)

page.page("prefill", "prefill", TRIES, below)
