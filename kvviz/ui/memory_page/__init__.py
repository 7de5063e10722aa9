"""The page "Memory"."""

from kvviz.ui.memory_page.controls import asked, configured, take
from kvviz.ui.memory_page.engine import cases, engine
from kvviz.ui.memory_page.parts import carried, fits, growth, hero, kinds, values_of

__all__ = [
    "asked", "carried", "cases", "configured", "engine", "fits", "growth", "hero", "kinds", "take", "values_of",
]  # fmt: skip
