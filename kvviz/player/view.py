"""A place in a run: what the player shows, and every page that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class View:
    """Where the learner stands. `substep` is one of the parts of a pass (0 embed .. 8 choose, 9 kept)."""

    step: int
    layer: int
    head: int
    opened: Literal["all", "layer", "head"] = "all"
    substep: int | None = None
