"""Two prompts that differ in one place: which keys and values differ then, with the causal mask and without it.

Shape letters: L layers, T positions of either prompt, n passes of the cached runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kvviz.core.checks import Check
from kvviz.core.facts import MachineFacts, ModelFacts


@dataclass(frozen=True)
class Change:
    """How far K and V of the two prefills lie apart. Zeros are exact."""

    dk: np.ndarray  # (L, T) float64, max |ΔK| over KV heads and their values
    dv: np.ndarray  # (L, T) float64, max |ΔV|


@dataclass(frozen=True)
class CachedRun:
    """The first prompt continued with a cache, each pass against one that computes everything again.

    Both see what the mask says; where there is none, every query sees every key there is.
    """

    ids: np.ndarray  # (n,) int64, chosen by the passes that compute everything again
    cached_ids: np.ndarray  # (n,) int64, what the cached passes would have chosen, given the same prefix
    dlogit: np.ndarray  # (n,) float64, max |Δlogit|; pass 0 is prefill, the same work in both


@dataclass(frozen=True)
class Permission:
    key: str
    model: ModelFacts
    machine: MachineFacts
    pieces: Mapping[int, bytes]
    ids: np.ndarray  # (T,) int64, the prompt
    edited: np.ndarray  # (T,) int64, the prompt with another token, or with one put in and its last one fallen out
    position: int  # the first place where they differ
    q_shape: tuple[int, int, int, int]  # (B, H, Tq, D) of a decode pass, from its tensors
    kv_shape: tuple[int, int, int, int]  # (B, Hkv, T, D)
    masked: Change
    unmasked: Change
    masked_run: CachedRun
    unmasked_run: CachedRun
    tolerance: float
    checks: tuple[Check, ...]  # "before", "layer0", "after", "unmasked", "cached", "cached_unmasked"

    @property
    def T(self) -> int:
        return len(self.ids)
