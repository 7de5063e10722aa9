"""What the page "Prefill" is."""

from kvviz.ui.spec import PageSpec, Place, Try

SPEC = PageSpec(
    "prefill",
    "through",
    4,
    tries=(
        Try("mask", Place(step=0), substep=4),
        Try("neighbour", Place(0, 2, 2), substep=5, recorded=True),
        Try("kept", Place(step=0), substep=9),
    ),
    player="prefill",
)
