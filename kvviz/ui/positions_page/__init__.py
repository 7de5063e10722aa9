"""The page "Positions"."""

from kvviz.ui.positions_page.parts import alibi, hero, proofs, second, shifted, tries
from kvviz.ui.positions_page.places import lengths, wrong_place
from kvviz.ui.positions_page.study import bring_up, read_link, values_of

__all__ = [
    "alibi", "bring_up", "hero", "lengths", "proofs", "read_link", "second", "shifted", "tries", "values_of",
    "wrong_place",
]  # fmt: skip
