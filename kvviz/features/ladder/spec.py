"""What the page "Ladder" is."""

from dataclasses import dataclass

from kvviz.features.ladder.record.ladder import CACHES, KERNELS
from kvviz.ui.settings import MAX_NEW
from kvviz.ui.spec import OneOf, PageSpec, Several, Try, Whole, setting

LANES = tuple(f"{cache}-{kernel}" for cache in CACHES for kernel in KERNELS)


@dataclass(frozen=True)
class Own:
    """Lengths, batch and lanes, what besides, the view, and the length at which the layouts are read."""

    ladder_P: int | None = setting(Whole(1, 1023))
    ladder_N: int = setting(Whole(2, MAX_NEW), 64)
    ladder_B: int = setting(Whole(1, 64), 1)
    ladder_lanes: tuple[str, ...] = setting(Several(LANES), ("none-sdpa", "concatenated-sdpa", "preallocated-sdpa"))
    ladder_more: tuple[str, ...] = setting(Several(("half", "generate", "compiled")), ())
    ladder_view: str = setting(OneOf(("time", "clock", "tokens", "bytes")), "time")
    ladder_T: int | None = setting(Whole(1, 1023))


SPEC = PageSpec("ladder", "price", 10, own=Own, tries=(Try("short"), Try("every"), Try("half")))
