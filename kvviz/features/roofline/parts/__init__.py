"""The page "Roofline"."""

from kvviz.features.roofline.parts.parts import below, hero, proofs
from kvviz.features.roofline.parts.wishes import NAME, controls, roofline, take, wish_of

__all__ = ["NAME", "below", "controls", "hero", "proofs", "roofline", "take", "wish_of"]
