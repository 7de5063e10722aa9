"""Without a cache: the triangle of rows that are computed again and again, counted."""

import streamlit as st

from kvviz.features.problem import figure as figures
from kvviz.features.problem.parts import LONG, MIDDLE, NAME, SMALL, controls, curves, hero, take
from kvviz.features.problem.record import Growth
from kvviz.ui import browser, experiment, page, shell, state
from kvviz.ui.experiments import growth
from kvviz.ui.fragment import fragment
from kvviz.ui.language import t

shell.heading(NAME)
run = state.current_run()
wish = controls(run)
experiment.live("problem-hero", NAME, growth, wish, hero, by_itself=False)
whole: Growth = st.session_state.kv_growth
experiment.proofs(NAME, whole.checks, **figures.growth_values(whole))
off = experiment.why_not(wish) is not None
experiment.tries(
    NAME,
    [
        experiment.Try("small", lambda: take(run, *SMALL), off=off),
        experiment.Try("middle", lambda: take(run, *MIDDLE), off=off),
        experiment.Try("long", lambda: take(run, *LONG), off=off),
    ],
)
values = page.facts(run, state.view(run)) | figures.growth_values(whole)
experiment.read(NAME, **values)
experiment.table(t(NAME, "table_heading"), figures.growth_table, NAME, whole)
fragment(curves, key="curves")(whole)
experiment.code(NAME, **values)
experiment.questions(NAME, **values)
page.onward(NAME)
browser.show_own(NAME)
