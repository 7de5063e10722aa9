"""Bytes or arithmetic: what this device was measured to do, and where the passes of the run's model lie under it."""

import streamlit as st

from kvviz.features.roofline import parts as roofline_page
from kvviz.features.roofline.spec import SPEC
from kvviz.ui import experiment, kit, state

NAME = roofline_page.NAME

kit.heading(SPEC)
run = state.current_run()
wish = roofline_page.controls(run)
experiment.live("roofline-hero", NAME, roofline_page.roofline, wish, roofline_page.hero)
off = experiment.why_not(wish) is not None
acts = {
    "batch": lambda: roofline_page.take(run, roofline_B="64"),
    "short": lambda: roofline_page.take(run, roofline_P=1),
    "half": lambda: roofline_page.take(run, roofline_dtype="bfloat16"),
}
kit.tries(SPEC, acts, off=off)
found = st.session_state.kv_roofline
roofline_page.proofs(found)
roofline_page.below(found)
kit.onward(SPEC)
