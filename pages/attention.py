"""All heads at a glance and one of them stage by stage; what was measured of them; and the masks programs use."""

from kvviz.core import Run
from kvviz.features.attention import parts as attention
from kvviz.features.attention.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import kit, state, steps


def below(run: Run, view: View) -> None:
    attention.drawn_lines(run, view)
    attention.found_heads(run, view)
    steps.code("decode" if view.step else "prefill", run, view)
    kit.questions(SPEC)


kit.heading(SPEC)
run = state.current_run()
attention.hero()
attention.tries()
attention.proofs(run)
attention.gallery(run)
steps.follow(below)
kit.onward(SPEC)
