"""The page "Attention and masks"."""

from kvviz.features.attention.parts.below import drawn_lines, found_heads, gallery, tries
from kvviz.features.attention.parts.study import proofs
from kvviz.features.attention.parts.top import hero

__all__ = ["drawn_lines", "found_heads", "gallery", "hero", "proofs", "tries"]
