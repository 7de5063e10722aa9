"""Why K and V may be kept: edit one token and see which of them change; then use the cache wrongly on purpose."""

from kvviz.features.permission.parts import NAME, below, controls, hero, put, told
from kvviz.ui import experiment, page, shell, state
from kvviz.ui.experiments import edited, found

shell.heading(NAME)
run = state.current_run()
experiment.live("permission-hero", NAME, edited, controls(run), hero)
result = found(experiment.experimenter(NAME, edited).state(), run)
if result is not None:
    experiment.proofs(NAME, result.checks, **told(result))
experiment.tries(
    NAME,
    [
        experiment.Try("last", lambda: put(edit=run.P - 1)),
        experiment.Try("insert", lambda: put(edit_how="insert")),
        experiment.Try("open", lambda: put(causal="off")),
    ],
)
below(result, run)
page.onward(NAME)
