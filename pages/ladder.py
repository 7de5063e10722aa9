"""Every lane from no cache to a preallocated one, on this device: which is quickest, from what length, and why."""

import streamlit as st

from kvviz.features.ladder import parts as ladder_page
from kvviz.ui import experiment, page, shell, state
from kvviz.ui.experiments import ladder
from kvviz.ui.language import t

NAME = ladder_page.NAME

shell.heading(NAME)
run = state.current_run()
wish = ladder_page.controls(run)
experiment.live("ladder-hero", NAME, ladder, wish, ladder_page.hero, by_itself=False)
now = experiment.experimenter(NAME, ladder).state()
off = experiment.why_not(wish) is not None
experiment.tries(
    NAME,
    [
        experiment.Try("short", lambda: ladder_page.take(run, ladder_P=5, ladder_N=20), off=off),
        experiment.Try(
            "every", lambda: ladder_page.take(run, ladder_N=128, ladder_lanes=list(ladder_page.EVERY)), off=off
        ),
        experiment.Try("half", lambda: ladder_page.take(run, ladder_more=["half"], ladder_N=48), off=off),
    ],
)
over = None if now.busy else now.found
ladder_page.proofs(over)
ladder_page.below(over)
ladder_page.reading(run)
ladder_page.kept(over)
experiment.code(NAME)
experiment.questions(NAME)
st.caption(t(NAME, "elsewhere"))
page.onward(NAME)
