"""One token at a time: a row of attention, a column of cache, and the same pass without the cache."""

import streamlit as st

from kvviz.core import Run
from kvviz.player.view import View
from kvviz.ui import links, page
from kvviz.ui.language import t


def below(run: Run, view: View) -> None:
    values = page.facts(run, view)
    st.subheader(t("decode", "read_heading"), anchor=False)
    first = "read_prefill" if len(run.steps) > 1 else "read_prefill_alone"
    read = first if view.step == 0 else "read_window" if page.windowed(run, view) else "read"
    st.markdown(t("decode", read, **values))
    for figure in ("row", "rows", "bytes", "time", "candidates"):
        page.figure(figure, run, view, key=f"decode-{figure}")
    page.code("decode" if view.step else "prefill", run, view)
    page.questions("decode", run, view)


TRIES = (
    page.Try("one_query", links.Place(step=3), substep=3),
    page.Try("open_head", links.Place(6, 3, 2), opened="head", recorded=True),
    page.Try("no_q", links.Place(step=3), substep=1),
)
