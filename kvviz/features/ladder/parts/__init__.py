"""The page "Ladder"."""

from kvviz.features.ladder.parts.controls import EVERY, NAME, controls, take
from kvviz.features.ladder.parts.kept import kept
from kvviz.features.ladder.parts.parts import below, hero, proofs, reading

__all__ = ["EVERY", "NAME", "below", "controls", "hero", "kept", "proofs", "reading", "take"]
