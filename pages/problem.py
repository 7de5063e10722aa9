"""Without a cache: the triangle of rows that are computed again and again, counted."""

from kvviz.features.problem import figure as figures
from kvviz.features.problem.parts import LONG, MIDDLE, NAME, SMALL, Last, controls, curves, growth, hero, take
from kvviz.features.problem.spec import SPEC
from kvviz.ui import browser, experiment, kit, sentences, state
from kvviz.ui.fragment import fragment
from kvviz.ui.held import held
from kvviz.ui.language import t

kit.heading(SPEC)
run = state.current_run()
wish = controls(run)
experiment.live("problem-hero", NAME, growth, wish, hero, by_itself=False)
whole = held(Last).growth
kit.proofs(NAME, whole.checks, **figures.growth_values(whole))
acts = {
    "small": lambda: take(run, *SMALL),
    "middle": lambda: take(run, *MIDDLE),
    "long": lambda: take(run, *LONG),
}
kit.tries(SPEC, acts, off=experiment.why_not(wish) is not None)
values = sentences.step_facts(run, state.view(run)) | figures.growth_values(whole)
kit.read(NAME, **values)
kit.table(t(NAME, "table_heading"), figures.growth_table, NAME, whole)
fragment(curves, key="curves")(whole)
kit.code(NAME, **values)
kit.questions(SPEC, **values)
kit.onward(SPEC)
browser.show_own(SPEC)
