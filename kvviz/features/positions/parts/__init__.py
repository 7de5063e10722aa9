"""The page "Positions"."""

from kvviz.features.positions.parts.parts import alibi, hero, proofs, second, shifted, tries
from kvviz.features.positions.parts.places import lengths, wrong_place
from kvviz.features.positions.parts.study import bring_up, values_of

__all__ = [
    "alibi", "bring_up", "hero", "lengths", "proofs", "second", "shifted", "tries", "values_of",
    "wrong_place",
]  # fmt: skip
