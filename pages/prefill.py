"""The whole prompt in one pass: the square under the mask, what is kept, what is thrown away."""

from kvviz.features.prefill.parts import below
from kvviz.features.prefill.spec import SPEC
from kvviz.ui import kit, request, stage, steps

kit.heading(SPEC)
stage.stage(SPEC)
request.player_first()
kit.tries(SPEC)
steps.follow(below)
kit.onward(SPEC)
