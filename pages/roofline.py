"""Bytes or arithmetic: what this device was measured to do, and where the passes of the run's model lie under it."""

import streamlit as st

from kvviz.features.roofline import parts as roofline_page
from kvviz.ui import experiment, page, shell, state
from kvviz.ui.experiments import roofline

NAME = roofline_page.NAME

shell.heading(NAME)
run = state.current_run()
wish = roofline_page.controls(run)
experiment.live("roofline-hero", NAME, roofline, wish, roofline_page.hero)
off = experiment.why_not(wish) is not None
experiment.tries(
    NAME,
    [
        experiment.Try("batch", lambda: roofline_page.take(run, roofline_B="64"), off=off),
        experiment.Try("short", lambda: roofline_page.take(run, roofline_P=1), off=off),
        experiment.Try("half", lambda: roofline_page.take(run, roofline_dtype="bfloat16"), off=off),
    ],
)
found = st.session_state.kv_roofline
roofline_page.proofs(found)
roofline_page.below(found)
page.onward(NAME)
