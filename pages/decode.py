"""One token at a time: a row of attention, a column of cache, and the same pass without the cache."""

from kvviz.features.decode.parts import below
from kvviz.features.decode.spec import SPEC
from kvviz.ui import kit, request, stage, steps

kit.heading(SPEC)
stage.stage(SPEC)
request.player_first()
kit.tries(SPEC)
steps.follow(below)
kit.onward(SPEC)
