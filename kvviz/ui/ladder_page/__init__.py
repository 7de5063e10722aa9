"""The page "Ladder"."""

from kvviz.ui.ladder_page.controls import NAME, controls, take
from kvviz.ui.ladder_page.kept import kept
from kvviz.ui.ladder_page.parts import below, hero, proofs, reading

__all__ = ["NAME", "below", "controls", "hero", "kept", "proofs", "reading", "take"]
