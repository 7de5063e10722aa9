"""What the page "Race" is."""

from dataclasses import dataclass

from kvviz.ui.settings import MAX_NEW
from kvviz.ui.spec import PageSpec, Try, Whole, setting


@dataclass(frozen=True)
class Own:
    """Prompt and new tokens, and how often both lanes run."""

    race_P: int | None = setting(Whole(1, 1023))
    race_N: int = setting(Whole(1, MAX_NEW), 20)
    race_repeats: int | None = setting(Whole(1, 25))


SPEC = PageSpec("race", "price", 9, own=Own, tries=(Try("short"), Try("long"), Try("waits")), player="run")
