"""What each head looks at, as shares of its attention: measured on a run's own rows, and on a repeated sequence.

Sources of the definitions: previous token and induction, Olsson et al. 2022 ("In-context Learning and Induction
Heads"); the first token as a sink, Xiao et al. 2023 ("Efficient Streaming Language Models with Attention Sinks");
entropy of a head, Clark et al. 2019 ("What Does BERT Look At?").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from kvviz.core.run import Run

Habit = Literal["previous", "first", "itself", "entropy", "induction"]
HABITS: tuple[Habit, ...] = ("previous", "first", "itself", "entropy", "induction")
NAMED = 0.4  # a head is named for a share if more than that part of its attention goes there, on average
FROM = 2  # the first query that counts: before it, previous, first and itself are not three different keys


@dataclass(frozen=True)
class HeadFacts:
    """Averages over the queries at positions FROM .. T-1, one number a head; NaN where no query counts.

    A key that a layer's window hides has no share.
    """

    queries: int
    previous: np.ndarray  # (L, H) float64, share on the key one position before the query
    first: np.ndarray  # (L, H) float64, share on position 0
    itself: np.ndarray  # (L, H) float64, share on the query's own position
    entropy: np.ndarray  # (L, H) float64, bits: -Σ w · log2 w
    entropy_most: float  # bits: the same average for a head that spreads evenly over all earlier keys and itself


@dataclass(frozen=True)
class Induction:
    """Random tokens, said twice: how much of the second time's attention goes to what followed the first time."""

    model: str
    score: np.ndarray  # (L, H) float64, mean share of the query at n + i on the key at i + 1
    chance: float  # the same mean for a head that spreads evenly
    tokens: int  # n, tokens of a sequence before it is said again
    sequences: int
    seed: int


class Strongest(NamedTuple):
    """The head that does most of something. `named` says whether it is above the threshold NAMED."""

    layer: int
    head: int
    value: float
    named: bool


def head_facts(run: Run, step: int) -> HeadFacts:
    """From the attention rows of all passes up to `step`: the record's float16, summed in float64."""
    m, T = run.model, run.P + step
    sums = np.zeros((4, m.layers, m.heads))
    most = 0.0
    for record in run.steps[: step + 1]:
        for row, position in enumerate(record.positions.tolist()):
            if position < FROM:
                continue
            w = record.attention[:, :, row, : position + 1].astype(np.float64)  # (L, H, position + 1)
            sums += (w[..., -2], w[..., 0], w[..., -1], bits(w))
            most += np.log2(position + 1)
    queries = max(0, T - FROM)
    means = sums / queries if queries else np.full_like(sums, np.nan)
    return HeadFacts(queries, *means, entropy_most=most / queries if queries else np.nan)


def bits(weights: np.ndarray) -> np.ndarray:
    """Entropy over the last axis, in bits; 0 · log 0 counts as 0."""
    logs = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
    return -(weights * logs).sum(axis=-1)


def strongest(scores: np.ndarray, *, lowest: bool = False) -> Strongest | None:
    """Of (L, H) shares the largest (or, of entropies, the smallest); None where nothing was measured.

    The smallest entropy has no threshold: there is always a most focused head, and it is named.
    """
    if not np.isfinite(scores).any():
        return None
    at = int(np.nanargmin(scores) if lowest else np.nanargmax(scores))
    layer, head = divmod(at, scores.shape[1])
    value = float(scores[layer, head])
    return Strongest(layer, head, value, lowest or value > NAMED)


def ranking(scores: np.ndarray, *, lowest: bool = False) -> list[tuple[int, int]]:
    """(layer, head), the strongest first; by layer and head where scores are equal or missing."""
    signed = np.nan_to_num(scores if lowest else -scores, nan=np.inf).ravel()
    return [divmod(int(i), scores.shape[1]) for i in np.argsort(signed, kind="stable")]
