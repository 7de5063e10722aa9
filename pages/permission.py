"""Why K and V may be kept: edit one token and see which of them change; then use the cache wrongly on purpose."""

from kvviz.features.permission.parts import NAME, below, controls, edited, hero, put, told
from kvviz.features.permission.spec import SPEC
from kvviz.ui import experiment, kit, state

kit.heading(SPEC)
run = state.current_run()
wish = controls(run)
experiment.live("permission-hero", NAME, edited, wish, lambda now: hero(now, wish))
result = experiment.job(NAME, edited).state().result_for(wish)
if result is not None:
    kit.proofs(NAME, result.checks, **told(result))
acts = {
    "last": lambda: put(edit=run.P - 1),
    "insert": lambda: put(edit_how="insert"),
    "open": lambda: put(causal="off"),
}
kit.tries(SPEC, acts)
below(result, run)
kit.onward(SPEC)
