"""The page "Memory"."""

from kvviz.features.memory.parts.controls import asked, configured, take
from kvviz.features.memory.parts.engine import cases, engine
from kvviz.features.memory.parts.parts import carried, fits, growth, hero, kinds, values_of

__all__ = [
    "asked", "carried", "cases", "configured", "engine", "fits", "growth", "hero", "kinds", "take", "values_of",
]  # fmt: skip
