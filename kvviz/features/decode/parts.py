"""One token at a time: a row of attention, a column of cache, and the same pass without the cache."""

import streamlit as st

from kvviz.core import Run
from kvviz.features.decode.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import kit, sentences, steps
from kvviz.ui.language import t


def below(run: Run, view: View) -> None:
    values = sentences.step_facts(run, view)
    st.subheader(t("decode", "read_heading"), anchor=False)
    first = "read_prefill" if len(run.steps) > 1 else "read_prefill_alone"
    read = first if view.step == 0 else "read_window" if sentences.windowed(run, view) else "read"
    st.markdown(t("decode", read, **values))
    for figure in ("row", "rows", "bytes", "time", "candidates"):
        steps.figure(figure, run, view, key=f"decode-{figure}")
    steps.code("decode" if view.step else "prefill", run, view)
    kit.questions(SPEC)
