"""The page "Roofline"."""

from kvviz.ui.roofline_page.parts import below, hero, proofs
from kvviz.ui.roofline_page.wishes import NAME, controls, take, wish_of

__all__ = ["NAME", "below", "controls", "hero", "proofs", "take", "wish_of"]
