"""What the page "The problem" is."""

from dataclasses import dataclass

from kvviz.ui.spec import PageSpec, Try, Whole, setting


@dataclass(frozen=True)
class Own:
    """Prompt and new tokens of the generation without a cache."""

    work_P: int | None = setting(Whole(1, 1000))
    work_N: int = setting(Whole(1, 200), 20)


SPEC = PageSpec(
    "problem",
    "idea",
    2,
    own=Own,
    tries=(Try("small"), Try("middle"), Try("long")),
    asks=("rope", "mask", "prefill"),
)
