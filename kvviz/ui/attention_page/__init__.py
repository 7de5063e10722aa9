"""The page "Attention and masks"."""

from kvviz.ui.attention_page.below import drawn_lines, found_heads, gallery, tries
from kvviz.ui.attention_page.study import proofs
from kvviz.ui.attention_page.top import hero

__all__ = ["drawn_lines", "found_heads", "gallery", "hero", "proofs", "tries"]
