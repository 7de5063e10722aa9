"""What the page "Attention" is."""

from dataclasses import dataclass

from kvviz.ui.spec import OneOf, PageSpec, Try, Whole, setting


@dataclass(frozen=True)
class Own:
    """In which order the heads stand, which rows are shown, and at which stage."""

    attention_order: str = setting(OneOf(("place", "previous", "first", "itself", "entropy", "induction")), "place")
    attention_rows: str = setting(OneOf(("all", "one")), "all")
    attention_stage: str = setting(OneOf(("scores", "scaled", "masked", "softmax", "values")), "softmax")
    attention_query: int | None = setting(Whole(0, 1023))


SPEC = PageSpec(
    "attention",
    "through",
    6,
    own=Own,
    tries=(Try("previous"), Try("first"), Try("entropy")),
    follows=("hero", "tries", "below", "share"),
    asks=("no_q", "changed", "rope"),
)
