"""One model pass, frozen. Shape letters: L layers, H heads, Hkv KV heads, Tq queries of this pass,
T positions stored after it, D head size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Proof:
    """A check that the engine made on live tensors: its verdict and the number behind it.

    `name` is one of
      "tokens"   the twin chose the same token, given the same prefix
      "logits"   `value` = max |Δlogit| against the twin, `limit` = tolerance of the dtype
      "same_kv"  `value` = max |ΔK|, |ΔV| between the cache and K, V computed again
      "bytes"    `value` = bytes counted from the cache's storages, `limit` = the formula's
      "length"   `value` = cache length after the pass, `limit` = what it must be
    """

    name: Literal["tokens", "logits", "same_kv", "bytes", "length"]
    verdict: Literal["holds", "rounding", "fails"]  # "rounding": half precision differs as it may
    value: float
    limit: float


@dataclass(frozen=True)
class TwinPass:
    """The same prefix through the model again, with no cache."""

    ms: float  # milliseconds of the pass, same kernel and logits_to_keep=1 as the cached one
    rows: int  # token rows computed: the whole prefix
    chosen: int
    same_token: bool
    max_abs_dlogit: float
    max_abs_dkv: float
    margin: float  # cached run's top-1 minus top-2 logit, to judge a differing token


@dataclass(frozen=True)
class StepRecord:
    """Pass `index` of a run: 0 is prefill, 1..N-1 are decode. All arrays are copies."""

    index: int
    phase: Literal["prefill", "decode"]
    ids: np.ndarray  # (Tq,) int64, token ids fed
    positions: np.ndarray  # (Tq,) int64, positions fed
    length_before: int  # cache length in positions
    length_after: int  # T
    kv_shape: tuple[int, int, int, int, int, int]  # (L, 2, B, Hkv, T, D) after the pass
    kv_tensors: int  # how many tensors the cache holds
    kv_bytes: int  # counted from their storages
    attention: np.ndarray  # (L, H, Tq, T) float16, after softmax
    q: np.ndarray  # (L, H, Tq, D) float16, as used in the scores (after RoPE)
    k: np.ndarray  # (L, Hkv, Tq, D) float16, the new rows, as stored (after RoPE)
    v: np.ndarray  # (L, Hkv, Tq, D) float16, the new rows
    top_ids: np.ndarray  # (C,) int64, candidates by probability, highest first
    top_probs: np.ndarray  # (C,) float32, softmax of the raw logits, before sampling filters
    chosen: int  # id of the token this pass chose
    chosen_prob: float  # its probability under the same softmax
    is_end: bool  # the chosen token is the model's end of text
    ms: float  # milliseconds of the pass, capture excluded
    proofs: tuple[Proof, ...]
    twin: TwinPass | None = None
    predictions: np.ndarray | None = None  # (Tq,) int64, prefill only: best next id at each position
    prediction_probs: np.ndarray | None = None  # (Tq,) float32

    @property
    def rows(self) -> int:
        """Token rows this pass computed with the cache (Tq)."""
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes this record itself occupies."""
        arrays = (v for v in vars(self).values() if isinstance(v, np.ndarray))
        return sum(a.nbytes for a in arrays)
