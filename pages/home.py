"""What kvviz is, on a run that is already there; then the learner's own."""

from kvviz.features.home.parts import below
from kvviz.features.home.spec import SPEC
from kvviz.ui import kit, request, stage, steps

kit.heading(SPEC)
stage.stage(SPEC)
request.player_first()
kit.tries(SPEC)
steps.follow(below)
kit.onward(SPEC)
