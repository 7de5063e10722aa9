"""Masks that the engine handed to a model, and what came out of the pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

MaskKind = Literal["causal", "decode", "chunk", "padding", "window"]


@dataclass(frozen=True)
class MaskedPass:
    """One pass's mask, in its layers: what lies ahead of a query, and what is hidden besides.

    `visible` is the tensor that the model was given; `ahead` and `hidden` say why a cell of it is False.
    """

    kind: MaskKind
    index: int  # which chunk, which row of the batch; else 0
    of: int  # how many there are
    visible: np.ndarray  # (Tq, T) bool
    ahead: np.ndarray  # (Tq, T) bool, removed by the causal mask
    hidden: np.ndarray  # (Tq, T) bool, removed by padding or by a window, wherever that is
    ids: np.ndarray  # (T,) int64, what stands at each key; -1 for padding
    positions: np.ndarray  # (T,) int64, the position fed for each key
    cached: int  # keys that lay in the cache before the pass

    @property
    def shape(self) -> tuple[int, int]:
        return self.visible.shape

    @property
    def by_row(self) -> list[int]:
        """Visible keys of each query."""
        return self.visible.sum(axis=1).tolist()

    @property
    def count(self) -> int:
        return int(self.visible.sum())


@dataclass(frozen=True)
class Comparison:
    """Two ways to the same logits, or to others."""

    name: Literal["decode", "chunk", "padding", "padding_default", "window", "window_full"]
    max_abs_dlogit: float
    same_token: bool
    limit: float  # tolerance of the dtype
    must_equal: bool  # else the difference is the point

    @property
    def equal(self) -> bool:
        return self.max_abs_dlogit <= self.limit

    @property
    def holds(self) -> bool:
        return self.equal or not self.must_equal


@dataclass(frozen=True)
class MaskGallery:
    """The same tokens under five masks."""

    model: str
    ids: np.ndarray  # (n,) int64, of the passes without padding
    pieces: dict[int, bytes]
    window: int  # W
    passes: tuple[MaskedPass, ...]
    comparisons: tuple[Comparison, ...]

    def of(self, kind: MaskKind) -> list[MaskedPass]:
        return [p for p in self.passes if p.kind == kind]

    def comparison(self, name: str) -> Comparison:
        """KeyError for a comparison that was not made."""
        found = {c.name: c for c in self.comparisons}
        return found[name]
