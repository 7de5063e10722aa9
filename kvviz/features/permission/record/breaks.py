"""Caches used wrongly on purpose: what was fed, and how far the logits lie from the right pass, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kvviz.core.facts import MachineFacts, ModelFacts

KINDS = ("twice", "stale", "narrow", "shifted", "restart")


@dataclass(frozen=True)
class BrokenStep:
    """One pass of the broken lane. What it should have been is known from the text alone."""

    fed: tuple[int, ...]  # token ids
    positions: tuple[int, ...]  # given to them
    held: int  # positions in the cache before the pass
    visible: int  # keys that its last query was shown, its own included
    right_position: int  # of its last token: tokens of the text before it
    chosen: int  # greedy
    right_choice: int  # of the right pass, given the same text
    dlogit: float  # max |Δlogit| between the two


@dataclass(frozen=True)
class Broken:
    """A lane with one fault, and the right one after the same text. N tokens each."""

    kind: str  # one of KINDS, or "right": the cache as it should be used
    text_ids: tuple[int, ...]  # what stands before the first chosen token, rightly read
    other_ids: tuple[int, ...]  # "stale": the prompt whose K and V were left; "restart": the second turn
    steps: tuple[BrokenStep, ...]
    right_ids: tuple[int, ...]  # (N,) what the model writes when nothing is broken

    @property
    def ids(self) -> tuple[int, ...]:
        """What this lane wrote."""
        return tuple(s.chosen for s in self.steps)

    @property
    def dlogit(self) -> np.ndarray:
        """(steps,) float64"""
        return np.array([s.dlogit for s in self.steps])

    @property
    def same(self) -> int:
        """How many tokens it wrote like the right lane, before the first that differs."""
        pairs = zip(self.ids, self.right_ids, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), len(self.ids))


@dataclass(frozen=True)
class Breaks:
    key: str
    model: ModelFacts
    machine: MachineFacts
    pieces: Mapping[int, bytes]
    prompt: str
    prompt_ids: np.ndarray  # (P,) int64
    new: int  # N
    tolerance: float
    right: Broken
    broken: Mapping[str, Broken]  # by kind, as far as they have been run
