"""No cache against cache, live on this device: what the work saved is worth in time."""

import streamlit as st

from kvviz.core import Run
from kvviz.features.race.parts import panel
from kvviz.player.view import View
from kvviz.ui import page, shell, stage, state
from kvviz.ui.fragment import fragment
from kvviz.ui.language import t


def below(run: Run, view: View) -> None:
    st.subheader(t("race", "code_title"), anchor=False)
    st.markdown(t("race", "code_note"))
    st.code(panel.lane_source(), language="python")
    page.questions("race", run, view)


shell.heading("race")
run = state.current_run()
wish = panel.controls(run)
panel.lanes(run, wish)
panel.tries(run)
panel.waits()
panel.results()
st.subheader(t("race", "player_title"), anchor=False)
stage.stage("race", "run")
fragment(page.follow, key="below")("race", below)
page.onward("race")
