"""What the page "Positions" is."""

from dataclasses import dataclass

from kvviz.ui.spec import OneOf, PageSpec, Try, Whole, setting

OFFSETS = (-64, -16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16, 64)


@dataclass(frozen=True)
class Own:
    """The pair of dimensions and the key of the rotation, and by how much a token is misplaced."""

    positions_pair: int = setting(Whole(0, 511), 1)
    positions_key: int = setting(Whole(0, 1023), 3)
    positions_offset: str = setting(OneOf(tuple(map(str, OFFSETS))), "-4")


SPEC = PageSpec(
    "positions",
    "through",
    7,
    own=Own,
    tries=(Try("fast"), Try("slow"), Try("wrong"), Try("far")),
    asks=("no_q", "changed", "mask", "prefill"),
)
