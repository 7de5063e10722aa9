"""What the page "Decode" is."""

from kvviz.ui.spec import PageSpec, Place, Try

SPEC = PageSpec(
    "decode",
    "through",
    5,
    tries=(
        Try("one_query", Place(step=3), substep=3),
        Try("open_head", Place(6, 3, 2), opened="head", recorded=True),
        Try("no_q", Place(step=3), substep=1),
    ),
    player="run",
    begins=1,  # who comes here has seen prefill
)
