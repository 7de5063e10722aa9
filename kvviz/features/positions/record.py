"""What was found out about a model's positions: its table or its rotation, and what a wrong place does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvviz.core.checks import Check

Scaling = Literal["none", "linear", "yarn", "dynamic"]
SCALINGS: tuple[Scaling, ...] = ("none", "linear", "yarn", "dynamic")


@dataclass(frozen=True)
class Shift:
    """The same text, all of it `by` positions further on."""

    by: int
    max_abs_dscore: float  # over all layers, heads and visible pairs, of q · k times the scale
    max_abs_dlogit: float
    largest_score: float
    same_token: bool
    limit: float  # tolerance of logits


@dataclass(frozen=True)
class Table:
    """A learned table: row p is added to the embedding of whatever token stands at p."""

    model: str
    values: np.ndarray  # (n, width) float32, the checkpoint's own
    shift: Shift

    def cosine(self, every: int = 1) -> np.ndarray:
        """(n', n') float32: cosine similarity of every `every`-th pair of rows."""
        rows = self.values[::every]
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return (unit @ unit.T).astype(np.float32)


@dataclass(frozen=True)
class Rotation:
    """Q and K of one layer before and after RoPE, and what the cache holds. Pairs are dimensions i and i + D/2."""

    model: str
    layer: int
    ids: np.ndarray  # (T,) int64
    pieces: Mapping[int, bytes]
    q: np.ndarray  # (H, T, D) float32, before
    k: np.ndarray  # (Hkv, T, D) float32, before
    q_rotated: np.ndarray  # (H, T, D) float32, as used in the scores
    k_rotated: np.ndarray  # (Hkv, T, D) float32, as used in the scores
    cached: np.ndarray  # (Hkv, T, D) float32, from the cache
    frequencies: np.ndarray  # (D/2,) float64, radians a position, from the model's rotary module
    scaling: float  # what q and k are multiplied by besides; 1 for plain RoPE
    trained: int  # positions
    shift: Shift
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Evicted:
    """A cache from which the middle was dropped, and the next token fed at two positions."""

    held: int  # positions before
    first: int  # kept of the oldest
    last: int  # kept of the newest
    right: int  # the position of the next token in the text: `held`
    default: int  # what a model left to itself takes: first + last, a position that is in use
    max_abs_dlogit: float  # between the two
    limit: float


@dataclass(frozen=True)
class Misplaced:
    """The run's own decode steps with each new token `offset` positions from its place; K and V before are right."""

    model: str
    pieces: Mapping[int, bytes]
    P: int
    offsets: np.ndarray  # (n,) int64
    max_abs_dlogit: np.ndarray  # (n,) float64, at the first decode step, to the step with the right position
    chosen: np.ndarray  # (n, new) int64, what each goes on to write, greedily
    evicted: Evicted
    limit: float

    def at(self, offset: int) -> int:
        """Index of that offset. ValueError if it was not run."""
        return self.offsets.tolist().index(offset)


@dataclass(frozen=True)
class Curve:
    """Loss by position on held-out text: -ln p of the token that follows, in nats, mean over `rows` texts."""

    model: str
    scaling: Scaling
    factor: float
    trained: int
    loss: np.ndarray  # (n,) float64; position i predicts token i + 1
    rows: int

    def blocks(self, size: int) -> np.ndarray:
        """(ceil(n / size),) float64: means over blocks of positions."""
        starts = range(0, len(self.loss), size)
        return np.array([self.loss[s : s + size].mean() for s in starts])


@dataclass(frozen=True)
class Kept:
    """A cached run against a recomputed one, at several lengths."""

    scaling: Scaling
    lengths: np.ndarray  # (n,) int64
    max_abs_dlogit: np.ndarray  # (n,) float64
    limit: float
    trained: int

    @property
    def check(self) -> Check:
        worst = float(self.max_abs_dlogit.max())
        return Check(f"kept_{self.scaling}", "holds" if worst <= self.limit else "fails", worst, self.limit)


@dataclass(frozen=True)
class Lengths:
    """Everything about going past the trained length, as far as it has been measured."""

    curves: tuple[Curve, ...] = ()
    kept: tuple[Kept, ...] = ()
    done: int = 0
    of: int = 1
    table_end: tuple[str, int] | None = None  # a learned model's name and the position it refuses

    def curve(self, model: str, scaling: Scaling = "none") -> Curve | None:
        return next((c for c in self.curves if (c.model, c.scaling) == (model, scaling)), None)
