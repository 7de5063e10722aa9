"""A run: the passes of one prompt through one model, with what is needed to read them again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kvviz.core.facts import MachineFacts, ModelFacts, Sampling
from kvviz.core.step import StepRecord


@dataclass(frozen=True)
class Run:
    """Immutable: `with_step` gives a longer run. `pieces` maps every id in it to its bytes."""

    key: str  # random; two runs of one prompt differ in it
    prompt: str
    prompt_ids: np.ndarray  # (P,) int64
    model: ModelFacts
    machine: MachineFacts
    sampling: Sampling
    pieces: Mapping[int, bytes]  # prompt, chosen, candidates, predictions
    steps: tuple[StepRecord, ...] = ()
    compared: bool = False  # every pass has its twin
    source: str = "live"  # "live", "bundled", or the file's name
    repeats: int = 1  # a recorded run's times are medians over so many
    created: str = ""  # ISO date, for recorded runs
    notes: tuple[str, ...] = field(default=())

    @property
    def P(self) -> int:
        """Prompt length in tokens."""
        return len(self.prompt_ids)

    @property
    def recorded(self) -> bool:
        return self.source != "live"

    @cached_property
    def new_ids(self) -> np.ndarray:
        """(N,) int64: the chosen tokens; the last of them has not been fed."""
        return np.array([s.chosen for s in self.steps], dtype=np.int64)

    @cached_property
    def ids(self) -> np.ndarray:
        """(P + N,) int64: prompt and chosen tokens."""
        return np.concatenate([self.prompt_ids, self.new_ids])

    @property
    def length(self) -> int:
        """Positions the cache holds after the last pass: P + N - 1, or 0 before prefill."""
        return self.steps[-1].length_after if self.steps else 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory the records occupy."""
        return sum(s.nbytes for s in self.steps)

    def with_step(self, step: StepRecord, pieces: Mapping[int, bytes]) -> Run:
        """This run and one more pass; `pieces` may add bytes for ids not seen before."""
        return dataclasses.replace(self, steps=(*self.steps, step), pieces={**self.pieces, **pieces})

    def keys(self, layer: int, kv_head: int, step: int) -> np.ndarray:
        """(T, D) float16: K rows held after pass `step`."""
        return np.concatenate([s.k[layer, kv_head] for s in self.steps[: step + 1]])

    def values(self, layer: int, kv_head: int, step: int) -> np.ndarray:
        """(T, D) float16: V rows held after pass `step`."""
        return np.concatenate([s.v[layer, kv_head] for s in self.steps[: step + 1]])

    def queries(self, layer: int, head: int, step: int) -> np.ndarray:
        """(T, D) float16: the Q rows of every pass up to `step`. None of these is kept in a cache."""
        return np.concatenate([s.q[layer, head] for s in self.steps[: step + 1]])

    def attention_row(self, layer: int, head: int, position: int) -> np.ndarray:
        """(position + 1,) float16: how the query at `position` spread its attention.

        Raises IndexError for a position that has not been fed (the last chosen token, say).
        """
        if not 0 <= position < self.length:
            raise IndexError(f"position {position} has not been fed; the cache holds {self.length}")
        step = max(0, position - self.P + 1)
        row = position if step == 0 else 0
        return self.steps[step].attention[layer, head, row, : position + 1]
