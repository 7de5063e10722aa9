"""Every lane from no cache to a preallocated one, on this device: which is quickest, from what length, and why."""

import streamlit as st

from kvviz.features.ladder import parts as ladder_page
from kvviz.features.ladder.spec import SPEC
from kvviz.ui import experiment, kit, state
from kvviz.ui.language import t

NAME = ladder_page.NAME

kit.heading(SPEC)
run = state.current_run()
wish = ladder_page.controls(run)
experiment.live("ladder-hero", NAME, ladder_page.ladder, wish, ladder_page.hero, by_itself=False)
now = experiment.job(NAME, ladder_page.ladder).state()
off = experiment.why_not(wish) is not None
acts = {
    "short": lambda: ladder_page.take(run, ladder_P=5, ladder_N=20),
    "every": lambda: ladder_page.take(run, ladder_N=128, ladder_lanes=list(ladder_page.EVERY)),
    "half": lambda: ladder_page.take(run, ladder_more=["half"], ladder_N=48),
}
kit.tries(SPEC, acts, off=off)
over = None if now.busy else now.found
ladder_page.proofs(over)
ladder_page.below(over)
ladder_page.reading(run)
ladder_page.kept(over)
kit.code(NAME)
kit.questions(SPEC)
st.caption(t(NAME, "elsewhere"))
kit.onward(SPEC)
