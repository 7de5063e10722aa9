"""The ladder, frozen: the same tokens through several ways to run a model, and what the device can do at best.

Shape letters: R repeats begun, N tokens of a whole repeat, n passes of a lane so far (n = N once its first repeat is
through), W passes of its warm-up, T positions. Pass 0 is prefill; pass i >= 1 feeds one token to P + i positions.
Times are milliseconds, rates bytes or operations a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from kvviz.core.checks import Check
from kvviz.core.facts import MachineFacts, ModelFacts
from kvviz.features.race.record import ENOUGH, TIE, Allocator, Spread
from kvviz.theory import memory, roofline, work

CACHES = ("none", "concatenated", "preallocated")
KERNELS = ("eager", "sdpa")
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
WIDTH = 9  # passes of a running median
LEAST = 2  # complete repeats before lanes are compared

State = Literal["running", "done", "stopped"]


@dataclass(frozen=True)
class Rates:
    """What a device was measured to do, over several rounds."""

    bandwidth: Spread  # bytes/s of a large copy, read and written bytes both counted
    flop_rate: Spread  # FLOP/s of a large matrix product


@dataclass(frozen=True)
class Rung:
    """One lane: what is kept between passes, the attention kernel, the precision. `ms` is NaN where a repeat has not
    come (or was stopped)."""

    cache: str  # one of CACHES
    kernel: str  # one of KERNELS
    dtype: str  # of weights and cache: "float32", "float16", "bfloat16"
    N: int  # passes of a whole repeat
    ms: np.ndarray  # (R, n) float64
    warm_up: np.ndarray  # (W,) float64, its first passes ever, prefill and later ones: they count for nothing
    ready_ms: float  # making the lane ready: a copy in another precision, compiling
    allocate_ms: float  # making the buffers of its cache; NaN where nothing is allocated in advance
    held: np.ndarray  # (n,) int64, bytes of K and V after each pass, counted on the storages
    chosen: np.ndarray  # (n,) int64; -1 where rows of the batch, or repeats, disagreed
    compiled: bool = False

    @property
    def name(self) -> str:
        """Cache and kernel, "compiled" where it is; without the precision, which most ladders have in common."""
        return f"{self.cache}, {self.kernel}" + (", compiled" if self.compiled else "")

    @property
    def value_bytes(self) -> int:
        """Bytes of one weight or cached value."""
        return VALUE_BYTES[self.dtype]

    @property
    def n(self) -> int:
        return len(self.chosen)

    @property
    def ttft(self) -> Spread:
        """Time to first token: pass 0, over the repeats."""
        return Spread.of(self.ms[:, :1])

    @property
    def means(self) -> np.ndarray:
        """(R,) float64: each repeat's mean time a token after the first, NaN for one that is not complete."""
        if self.n < self.N or self.N < 2:
            return np.full(len(self.ms), np.nan)
        return self.ms[:, 1:].mean(axis=1)

    @property
    def tpot(self) -> Spread:
        """Time per output token: every pass but the first, over positions and repeats, as in records.race.Lane."""
        return Spread.of(self.ms[:, 1:])

    @property
    def medians(self) -> np.ndarray:
        """(R,) float64: each repeat's median time a token after the first, NaN for one that is not complete. A single
        pass that was held up is not in it."""
        if self.n < 2:
            return np.full(len(self.ms), np.nan)
        return np.where(np.isfinite(self.means), np.median(self.ms[:, 1:], axis=1), np.nan)  # NaN if one of them is

    @property
    def complete(self) -> int:
        """Repeats that are through."""
        return int(np.isfinite(self.ms).all(axis=1).sum()) if self.n == self.N else 0

    @cached_property
    def per_pass(self) -> np.ndarray:
        """(3, n) float64: first quartile, median and third quartile over the repeats, by pass."""
        return np.nanpercentile(self.ms, (25, 50, 75), axis=0) if self.ms.size else np.zeros((3, 0))

    @property
    def cumulative(self) -> np.ndarray:
        """(n,) float64: sum of the medians up to and including each pass."""
        return np.cumsum(self.per_pass[1])


@dataclass(frozen=True)
class Ladder:
    """All lanes choose greedily from the same prompt, `batch` times over; `generate` is transformers' own loop."""

    key: str  # random; two climbs of one prompt differ in it
    model: ModelFacts
    machine: MachineFacts
    P: int
    N: int
    rungs: tuple[Rung, ...]
    matrix_values: int  # values of the layers' matrices
    batch: int = 1
    repeats: int = 1  # planned; may grow while repeats are cheap
    generate: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (R,) float64, a token: (all N tokens less the
    # first alone) / (N - 1); empty where it was not asked for
    rates: Rates | None = None  # of the model's own precision; None until measured
    other_rates: Mapping[str, Rates] = field(default_factory=dict)  # by precision, of the lanes in another one
    state: State = "running"
    allocator: Allocator | None = None  # None on a CPU
    title: str = ""  # until the learner names it

    @property
    def n(self) -> int:
        """Passes that every lane has made."""
        return min((r.n for r in self.rungs), default=0)

    @property
    def complete(self) -> int:
        """Repeats that all lanes have finished."""
        return min((r.complete for r in self.rungs), default=0)

    @property
    def same(self) -> np.ndarray:
        """(n,) bool: all lanes chose the same token, in every repeat."""
        if not self.rungs:
            return np.zeros(0, dtype=bool)
        chosen = np.stack([r.chosen[: self.n] for r in self.rungs])  # (lanes, n)
        return (chosen == chosen[0]).all(axis=0) & (chosen[0] >= 0)

    @property
    def fastest(self) -> Rung:
        """Of the lanes with a cache in the model's own precision, the one whose tokens take the least time. ValueError:
        none with a time."""
        lanes = (r for r in self.rungs if r.cache != "none" and r.dtype == self.model.dtype)
        return min((r for r in lanes if r.tpot.count), key=lambda r: r.tpot.median)

    @property
    def to_generate(self) -> Spread:
        """Mean time a token of the fastest lane, in parts of `generate`'s in the same repeat: a whole repeat each,
        since `generate` tells no single pass."""
        means = self.fastest.means
        both = min(len(means), len(self.generate))
        return Spread.of(means[:both] / self.generate[:both])

    @property
    def middle(self) -> int:
        """Positions that the middle pass after prefill attends to, its own among them."""
        return self.P + self.N // 2

    def moved(self, rung: Rung) -> int:
        """Bytes that the middle pass has to move: the weights read once, K and V of every position of every row of
        the batch. A lane that keeps nothing has no K and V to fetch. Activations are left out."""
        m = self.model
        weights = (self.matrix_values + m.vocab_size * m.width) * rung.value_bytes
        return weights + (self._kv(rung.dtype) * self.middle * self.batch if rung.cache != "none" else 0)

    def flops(self, rung: Rung) -> int:
        """Floating-point operations of that pass: one row a sequence, or all of them without a cache."""
        m, t = self.model, self.middle
        rows = 1 if rung.cache != "none" else t
        return self.batch * work.flops(
            rows, rows * t, 1, matrix_values=self.matrix_values, heads=m.heads, head_dim=m.head_dim,
            layers=m.layers, output_values=m.vocab_size * m.width,
        )  # fmt: skip

    def rates_of(self, rung: Rung) -> Rates | None:
        """The rates in that lane's precision; None where they are not measured."""
        return self.rates if rung.dtype == self.model.dtype else self.other_rates.get(rung.dtype)

    def floor_ms(self, rung: Rung) -> float:
        """What no such pass can be quicker than on this device, by the measured rates. NaN without them."""
        if (rates := self.rates_of(rung)) is None:
            return np.nan
        flops, moved = self.flops(rung), self.moved(rung)
        return roofline.floor_ms(flops, moved, rates.flop_rate.median, rates.bandwidth.median)

    def bandwidth_share(self, rung: Rung) -> float:
        """MBU: bytes of the middle pass in the median time a token, in parts of the measured bandwidth."""
        rates = self.rates_of(rung)
        return np.nan if rates is None else roofline.share(self.moved(rung), rung.tpot.median, rates.bandwidth.median)

    def arithmetic_share(self, rung: Rung) -> float:
        """MFU: its operations in that time, in parts of the measured rate of a matrix product."""
        rates = self.rates_of(rung)
        return np.nan if rates is None else roofline.share(self.flops(rung), rung.tpot.median, rates.flop_rate.median)

    @property
    def copied(self) -> int:
        """Bytes of older rows that concatenation copies in the whole run, by the formula, in the model's precision."""
        return memory.copied_by_concatenation(self.P, self.N, self.model.kv_bytes_per_token) * self.batch

    @property
    def written(self) -> int:
        """Bytes that the passes after prefill add, by the formula, in the model's precision."""
        return memory.written_after_prefill(self.N, self.model.kv_bytes_per_token) * self.batch

    def rows(self, rung: Rung) -> int:
        """Token rows computed so far in one repeat, over the whole batch."""
        rows = work.rows_with_cache if rung.cache != "none" else work.rows_without_cache
        return rows(self.P, rung.n) * self.batch if rung.n else 0

    def crossover(self, uncached: Rung, cached: Rung) -> int | None:
        """Positions from which a pass of the lane with a cache is quicker at every greater length that was measured.

        By running medians over WIDTH passes after prefill, each at the length of its middle pass, and by more than
        TIE. None: not up to P + N - 1, or fewer than WIDTH such passes.
        """
        n = min(uncached.n, cached.n)
        if n - 1 < WIDTH:
            return None
        slow, fast = (running_median(r.per_pass[1, 1:n]) for r in (uncached, cached))  # (n - WIDTH,)
        slower = np.flatnonzero(~(slow > TIE * fast))
        first = int(slower[-1]) + 1 if slower.size else 0
        return None if first == len(slow) else self.P + 1 + WIDTH // 2 + first

    @property
    def pairs(self) -> tuple[tuple[Rung, Rung], ...]:
        """Each lane with no cache beside the quickest one with a cache of the same kernel and precision; SDPA first."""
        found = []
        for slow in sorted((r for r in self.rungs if r.cache == "none"), key=lambda r: r.kernel != "sdpa"):
            same = [r for r in self.rungs if r.cache != "none" and (r.kernel, r.dtype) == (slow.kernel, slow.dtype)]
            if timed := [r for r in same if r.tpot.count and not r.compiled]:
                found.append((slow, min(timed, key=lambda r: r.tpot.median)))
        return tuple(found)

    @property
    def order(self) -> tuple[Rung, ...]:
        """The lanes that have a time a token, the quickest first."""
        return tuple(sorted((r for r in self.rungs if r.tpot.count), key=lambda r: r.tpot.median))

    @property
    def passes(self) -> int:
        """Passes after the first token that the slowest lane has been timed for, over its repeats."""
        return min((int(np.isfinite(r.ms[:, 1:]).sum()) for r in self.rungs), default=0)

    @property
    def enough(self) -> bool:
        """There are repeats to compare, and passes enough in the slowest lane."""
        return self.complete >= LEAST and self.passes >= ENOUGH

    @property
    def clear(self) -> bool:
        """One lane is the quickest: by the medians of the repeats its quartiles lie below the next one's, and it is
        more than TIE quicker."""
        if len(self.order) < 2 or not self.enough:
            return False
        first, second = (Spread.of(r.medians) for r in self.order[:2])
        return first.high < second.low and second.median > TIE * first.median

    def held_formula(self, rung: Rung) -> int:
        """Bytes that lane must hold after its passes so far: what has been fed, or all that will be."""
        if rung.cache == "none" or not rung.n:
            return 0
        positions = self.P + (rung.n if rung.cache == "concatenated" else self.N) - 1
        return positions * self._kv(rung.dtype) * self.batch

    @property
    def checks(self) -> tuple[Check, ...]:
        """Once a lane has made a pass: the same tokens in all lanes, and the bytes counted against the formula."""
        if not self.n:
            return ()
        same, held = self.same, [(r, int(r.held[-1])) for r in self.rungs if r.cache != "none"]
        exact = replace(self, rungs=tuple(r for r in self.rungs if r.dtype == "float32"))  # these have no excuse
        verdict: Literal["holds", "rounding", "fails"]
        verdict = "holds" if same.all() else "rounding" if exact.same[: self.n].all() else "fails"
        checks = [Check("same", verdict, float(same.sum()), float(self.n))]
        if held:
            off = sum(found != self.held_formula(rung) for rung, found in held)
            checks.append(Check("held", "fails" if off else "holds", float(len(held) - off), float(len(held))))
        return tuple(checks)

    def _kv(self, dtype: str) -> int:
        """Bytes of K and V of one position in that precision."""
        m = self.model
        return memory.kv_bytes(m.layers, m.kv_heads, m.head_dim, 1, VALUE_BYTES[dtype])


def running_median(values: np.ndarray, width: int = WIDTH) -> np.ndarray:
    """(n,) -> (n - width + 1,): the median of each `width` neighbours. Empty where there are fewer."""
    if len(values) < width:
        return np.zeros(0)
    return np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)


@dataclass(frozen=True)
class Read:
    """One layout of K and V in memory, and how long one query over all of it took in every layer."""

    layout: Literal["contiguous", "view", "blocks"]
    times: np.ndarray  # (R,) float64, gathering included
    gathers: np.ndarray  # (R,) float64, the gathering of the blocks alone; empty where nothing is gathered
    read: int  # bytes of K and V that attention reads: every position once
    moved: int  # bytes read and written to get there: `read`, and twice as many again where blocks are gathered

    @property
    def ms(self) -> Spread:
        return Spread.of(self.times)

    @property
    def gather_ms(self) -> Spread:
        return Spread.of(self.gathers)


@dataclass(frozen=True)
class Reads:
    """Does it matter where K and V lie? One tensor grown by concatenation, a view of the first T rows of a buffer
    with room for more, and blocks of `block` positions in shuffled order, read through a table."""

    key: str
    model: ModelFacts
    machine: MachineFacts
    T: int  # positions
    room: int  # rows of the buffer that the view is a part of
    block: int  # positions of a block
    repeats: int  # planned
    layouts: tuple[Read, ...]
    max_abs: float  # the largest difference between what attention gave in two layouts; NaN before the first repeat
    state: State = "running"
