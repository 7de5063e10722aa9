"""A race, frozen: one prompt, the same tokens through two lanes, pass by pass, timed in turn.

Shape letters: R repeats begun, n tokens raced so far (n = N when the first repeat is through),
P prompt tokens. Pass 0 is prefill and chooses token 0; pass i feeds token i - 1 and chooses token i.
Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from kvviz.core.facts import MachineFacts, ModelFacts

ENOUGH = 16  # passes before a median is shown or compared
EXACT = 1e-3  # max |Δlogit| that counts as equal in every dtype
TIE = 1.05  # ratios within 1/TIE .. TIE are called even


class Spread(NamedTuple):
    """Median and quartiles of `count` values; NaN when there are none."""

    median: float
    low: float  # first quartile
    high: float  # third quartile
    count: int

    @classmethod
    def of(cls, values: np.ndarray) -> Spread:
        """Of the values that are not NaN. Quartiles interpolate linearly between order statistics."""
        kept = values[~np.isnan(values)]
        if not kept.size:
            return cls(np.nan, np.nan, np.nan, 0)
        low, median, high = np.percentile(kept, (25, 50, 75))
        return cls(float(median), float(low), float(high), int(kept.size))


@dataclass(frozen=True)
class Lane:
    """One side of a race. `ms` is NaN where a repeat has not come (or was stopped)."""

    ms: np.ndarray  # (R, n) float64
    rows: np.ndarray  # (n,) int64, token rows computed by each pass
    bytes_held: np.ndarray  # (n,) int64, counted bytes of K and V kept after each pass
    chosen: np.ndarray  # (n,) int64, this lane's own choice, given the common prefix

    @property
    def ttft(self) -> Spread:
        """Time to first token: pass 0, over the repeats."""
        return Spread.of(self.ms[:, :1])

    @property
    def tpot(self) -> Spread:
        """Time per output token: every pass but the first, over positions and repeats."""
        return Spread.of(self.ms[:, 1:])

    @property
    def totals(self) -> np.ndarray:
        """(R,) float64: milliseconds of each repeat, NaN for one that is not complete."""
        return self.ms.sum(axis=1)

    @cached_property
    def per_pass(self) -> np.ndarray:
        """(3, n) float64: first quartile, median and third quartile over the repeats, by pass."""
        return np.nanpercentile(self.ms, (25, 50, 75), axis=0) if self.ms.size else np.zeros((3, 0))

    @cached_property
    def cumulative(self) -> np.ndarray:
        """(n,) float64: time from the start up to and including each pass, median over the repeats that are through;
        while the first one runs, its time so far. Ends at the median of `totals`."""
        through = self.ms[np.isfinite(self.totals)]  # (repeats, n)
        return np.median(np.cumsum(through, axis=1), axis=0) if through.size else np.zeros(0)

    @property
    def by_medians(self) -> float:
        """What all passes would take at the medians: TTFT, and TPOT for each later one. NaN before there is one."""
        return self.ttft.median + (self.ms.shape[1] - 1) * self.tpot.median

    @property
    def gap(self) -> float:
        """A repeat's time in parts of `by_medians`: above 1 where slow passes, which no median holds, took long."""
        return float(self.cumulative[-1] / self.by_medians) if self.cumulative.size else np.nan


class Tail(NamedTuple):
    """The last passes of a race, where the two lanes' work differs most."""

    passes: int  # how many passes a lane the medians are over
    rows: int  # rows of the middle one of these passes without the cache; with it 1
    uncached_ms: float  # median
    cached_ms: float  # median


@dataclass(frozen=True)
class Allocator:
    """What the device's allocator says, in bytes. Not the size of the cache."""

    allocated: int
    reserved: int
    peak: int | None  # MPS counts none


Outcome = Literal["first_only", "measuring", "paid", "even", "lost"]


@dataclass(frozen=True)
class Race:
    """Both lanes choose from the same prefix; the cached lane's choice is fed to both."""

    key: str  # random; two races of one prompt differ in it
    prompt: str
    prompt_ids: np.ndarray  # (P,) int64
    model: ModelFacts
    machine: MachineFacts
    pieces: Mapping[int, bytes]  # prompt and chosen tokens
    new: int  # N, tokens asked for
    repeats: int  # planned; may grow while repeats are cheap
    ids: np.ndarray  # (n,) int64, the tokens both lanes were fed
    uncached: Lane
    cached: Lane
    max_abs_dlogit: np.ndarray  # (n,) float64, the largest of all repeats at each pass
    tolerance: float  # of the model's dtype
    state: Literal["running", "done", "stopped"] = "running"
    allocator: Allocator | None = None  # None on a CPU

    @property
    def P(self) -> int:
        return len(self.prompt_ids)

    @property
    def n(self) -> int:
        return len(self.ids)

    @cached_property
    def complete(self) -> int:
        """Repeats that both lanes have finished."""
        return int(np.isfinite(self.uncached.totals + self.cached.totals).sum()) if self.n == self.new else 0

    @property
    def passes(self) -> int:
        """Passes after the first token that a lane has run, over all repeats."""
        return min(self.uncached.tpot.count, self.cached.tpot.count)

    @property
    def same_token(self) -> np.ndarray:
        """(n,) bool: both lanes' own choices, in every repeat, are the token that was fed."""
        return (self.uncached.chosen == self.ids) & (self.cached.chosen == self.ids)

    @property
    def verdict(self) -> Literal["holds", "rounding", "fails"]:
        """As in a run's proofs: fp32 holds or fails; half precision may round, and a token may differ with it."""
        same, near = bool(self.same_token.all()), bool((self.max_abs_dlogit <= self.tolerance).all())
        if same and (self.max_abs_dlogit <= EXACT).all():
            return "holds"
        return "rounding" if near and (same or self.model.dtype != "float32") else "fails"

    @property
    def rows(self) -> tuple[int, int]:
        """Token rows computed so far in one repeat: without and with the cache."""
        return int(self.uncached.rows.sum()), int(self.cached.rows.sum())

    @property
    def bytes_formula(self) -> int:
        """What the cached lane must hold now: (P + n - 1) positions of 2 · L · Hkv · D values."""
        return (self.P + self.n - 1) * self.model.kv_bytes_per_token if self.n else 0

    @property
    def ratio(self) -> float:
        """Time without the cache over time with it, for all passes: the median of `ratios`, so within its quartiles."""
        return self.ratios.median

    @cached_property
    def ratios(self) -> Spread:
        """That quotient in each repeat that is through; while the first one runs, in what there is of it."""
        return Spread.of(self.uncached.totals / self.cached.totals) if self.n else Spread.of(np.array([]))

    @cached_property
    def later_ratio(self) -> float:
        """Ratio of the medians a token after the first (TPOT)."""
        return self.uncached.tpot.median / self.cached.tpot.median

    @property
    def work_ratio(self) -> float:
        """Rows without over rows with: 290 / 24 for 5 + 20 tokens."""
        without, with_ = self.rows
        return without / with_ if with_ else np.nan

    @cached_property
    def tail(self) -> Tail | None:
        """The last quarter of the passes, more if it holds fewer than ENOUGH; None if all do."""
        later = self.n - 1
        if self.passes < ENOUGH:
            return None
        width = min(later, max(later // 4, -(-ENOUGH // max(1, self.complete))))
        slow, fast = self.uncached.ms[:, -width:], self.cached.ms[:, -width:]
        both = ~np.isnan(slow + fast)
        rows = int(self.uncached.rows[-((width + 1) // 2)])
        return Tail(int(both.sum()), rows, float(np.median(slow[both])), float(np.median(fast[both])))

    @property
    def outcome(self) -> Outcome:
        """What may be said: nothing before ENOUGH passes; no winner within the spread or 5 %."""
        if self.new == 1:
            return "first_only"
        if self.passes < ENOUGH:
            return "measuring"
        if self.ratios.low > 1 and self.ratio > TIE:
            return "paid"
        if self.ratios.high < 1 and self.ratio < 1 / TIE:
            return "lost"
        return "even"


@dataclass(frozen=True)
class Waits:
    """How long the first token takes, and each later one with the cache, after prompts of several lengths."""

    key: str
    lengths: tuple[int, ...]  # P, tokens
    ttft_ms: np.ndarray  # (lengths, R) float64, NaN where not run
    tpot_ms: np.ndarray  # (lengths, R, m) float64
    model: ModelFacts
    machine: MachineFacts
    state: Literal["running", "done", "stopped"] = "running"

    @property
    def ttft(self) -> list[Spread]:
        return [Spread.of(row) for row in self.ttft_ms]

    @property
    def tpot(self) -> list[Spread]:
        return [Spread.of(row) for row in self.tpot_ms]
