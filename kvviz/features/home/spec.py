"""What the page "Home" is."""

from kvviz.ui.spec import LAST, PageSpec, Place, Try

SPEC = PageSpec(
    "home",
    "idea",
    1,
    tries=(
        Try("grow", Place(step=0)),
        Try("looks_back", Place(6, 3, 2), recorded=True),
        Try("cost", Place(step=LAST)),
    ),
    player="run",
)
