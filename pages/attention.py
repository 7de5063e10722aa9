"""All heads at a glance and one of them stage by stage; what was measured of them; and the masks programs use."""

from kvviz.core import Run
from kvviz.features.attention import parts as attention
from kvviz.player.view import View
from kvviz.ui import page, shell, state
from kvviz.ui.fragment import fragment


def below(run: Run, view: View) -> None:
    attention.drawn_lines(run, view)
    attention.found_heads(run, view)
    page.code("decode" if view.step else "prefill", run, view)
    page.questions("attention", run, view)


shell.heading("attention")
run = state.current_run()
attention.hero()
attention.tries()
attention.proofs(run)
attention.gallery(run)
fragment(page.follow, key="below")("attention", below)
page.onward("attention")
