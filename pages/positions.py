"""How a position gets into attention, what a wrong one does, and what lies past the trained length."""

import streamlit as st

from kvviz.features.positions import parts as positions_page
from kvviz.features.positions.spec import SPEC
from kvviz.ui import kit, state
from kvviz.ui.language import t

kit.heading(SPEC)
run = state.current_run()
state.settle_place(run)
here = state.view(run)
positions_page.hero(run, here)
positions_page.tries(run, here)
positions_page.proofs(run, here)
st.subheader(t("positions", "read_heading"), anchor=False)
st.markdown(t("positions", f"read_{run.model.positions}", **positions_page.values_of(run, here)))
positions_page.second(run, here)
positions_page.shifted(run, here)
positions_page.wrong_place(run)
positions_page.lengths(run)
positions_page.alibi(run, here)
kit.questions(SPEC, **positions_page.values_of(run, here))
kit.onward(SPEC)
positions_page.bring_up(run, here)
