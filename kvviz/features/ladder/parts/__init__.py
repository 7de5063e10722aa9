"""The page "Ladder"."""

from kvviz.features.ladder.parts.controls import EVERY, NAME, controls, take
from kvviz.features.ladder.parts.kept import kept
from kvviz.features.ladder.parts.parts import below, hero, proofs, reading
from kvviz.features.ladder.parts.wish import ladder

__all__ = ["EVERY", "NAME", "below", "controls", "hero", "kept", "ladder", "proofs", "reading", "take"]
