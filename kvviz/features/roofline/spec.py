"""What the page "Roofline" is."""

from dataclasses import dataclass

from kvviz.features.roofline.record import BATCHES
from kvviz.ui.spec import OneOf, PageSpec, Try, Whole, setting


@dataclass(frozen=True)
class Own:
    """Positions, precision and batch of the pass that is explained."""

    roofline_P: int = setting(Whole(1, 1023), 256)
    roofline_dtype: str | None = setting(OneOf(("float32", "float16", "bfloat16")))
    roofline_B: str = setting(OneOf(tuple(map(str, BATCHES))), "1")


SPEC = PageSpec("roofline", "price", 11, own=Own, tries=(Try("batch"), Try("short"), Try("half")))
