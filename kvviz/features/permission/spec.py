"""What the page "Why it works" is."""

from dataclasses import dataclass

from kvviz.features.permission.record.breaks import KINDS
from kvviz.ui.spec import OneOf, PageSpec, Text, Try, Whole, setting


@dataclass(frozen=True)
class Own:
    """The edit, the mask, and the fault that is looked at."""

    edit: int | None = setting(Whole(0, 1023))
    edit_to: str = setting(Text(40), "")
    edit_how: str = setting(OneOf(("replace", "insert")), "replace")
    causal: str = setting(OneOf(("on", "off")), "on")
    broken: str | None = setting(OneOf(KINDS))


SPEC = PageSpec(
    "permission",
    "idea",
    3,
    own=Own,
    tries=(Try("last"), Try("insert"), Try("open")),
    asks=("rope", "mask", "prefill"),
    former=("allowed",),
)
