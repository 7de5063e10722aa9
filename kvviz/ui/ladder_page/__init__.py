"""The page "Ladder"."""

from kvviz.ui.ladder_page.controls import EVERY, NAME, controls, take
from kvviz.ui.ladder_page.kept import kept
from kvviz.ui.ladder_page.parts import below, hero, proofs, reading

__all__ = ["EVERY", "NAME", "below", "controls", "hero", "kept", "proofs", "reading", "take"]
