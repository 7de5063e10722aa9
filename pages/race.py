"""No cache against cache, live on this device: what the work saved is worth in time."""

import streamlit as st

from kvviz.core import Run
from kvviz.features.race.parts import panel
from kvviz.features.race.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import kit, stage, state, steps
from kvviz.ui.language import t


def below(run: Run, view: View) -> None:
    st.subheader(t("race", "code_title"), anchor=False)
    st.markdown(t("race", "code_note"))
    st.code(panel.lane_source(), language="python")
    kit.questions(SPEC)


kit.heading(SPEC)
run = state.current_run()
wish = panel.controls(run)
panel.lanes(run, wish)
panel.tries(run)
panel.waits(run)
panel.results()
st.subheader(t("race", "player_title"), anchor=False)
stage.stage(SPEC)
steps.follow(below)
kit.onward(SPEC)
