"""The roofline of one model on one device, frozen: what passes have to do by formula, and how long they took.

Shape letters: B sequences, P prompt tokens. Times are milliseconds, rates bytes or operations a second, intensity
FLOP a byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from kvviz.core.checks import Check
from kvviz.core.facts import MachineFacts, ModelFacts
from kvviz.features.ladder.record.ladder import Rates
from kvviz.features.race.record import ENOUGH, Race, Spread
from kvviz.theory import roofline

BATCHES = (1, 2, 4, 8, 16, 32, 64)
STEADY = 25.0  # % of a rate's median that its quartiles may lie apart, and still make one line

Kind = Literal["prefill", "decode", "race_cached", "race_uncached"]


@dataclass(frozen=True)
class Step:
    """One pass by formula: `batch` texts with `held` positions in the cache and `new` rows each."""

    kind: Kind
    batch: int  # B
    held: int  # 0 in prefill, P in decode
    new: int  # P in prefill, 1 in decode
    flops: int  # attention as full rectangles
    weights: int  # bytes of the matrices, read once
    kv: int  # bytes of K and V, read and written
    copied: int  # bytes that a cache grown by concatenation reads and writes besides: not in `moved`

    @property
    def moved(self) -> int:
        """Bytes at the least: weights and K/V. Activations, biases and tables are left out."""
        return self.weights + self.kv

    @property
    def intensity(self) -> float:
        return self.flops / self.moved


@dataclass(frozen=True)
class Point:
    """A pass that was timed, under the roof of its device."""

    step: Step
    ms: Spread
    rates: Rates

    @property
    def achieved(self) -> float:
        """FLOP/s, by the median."""
        return self.step.flops / (self.ms.median / 1000)

    @property
    def mbu(self) -> float:
        """Share of the measured bandwidth: bytes at the least, a second."""
        return roofline.share(self.step.moved, self.ms.median, self.rates.bandwidth.median)

    @property
    def mfu(self) -> float:
        """Share of the measured arithmetic rate."""
        return roofline.share(self.step.flops, self.ms.median, self.rates.flop_rate.median)

    @property
    def floor_ms(self) -> float:
        return floor_ms(self.step, self.rates)

    @property
    def distance(self) -> float:
        """Time in parts of the floor: 1 is as quick as the measured rates allow."""
        return self.ms.median / self.floor_ms

    @property
    def of_roof(self) -> float:
        """The achieved rate in parts of the roof at its upper quartiles: more than 1 is above it."""
        b, f = self.rates.bandwidth.high, self.rates.flop_rate.high
        return self.achieved / roofline.attainable(self.step.intensity, f, b)

    @property
    def enough(self) -> bool:
        return self.ms.count >= ENOUGH


@dataclass(frozen=True)
class Skipped:
    """A batch that was not measured: bytes needed, and bytes free then."""

    kind: Kind
    batch: int
    needed: int
    there: int


@dataclass(frozen=True)
class Roofline:
    """`steps` are there from the start, by formula; rates and points come with the measurement."""

    key: str
    model: ModelFacts
    machine: MachineFacts
    P: int
    matrix_values: int  # values of the layers' matrices
    steps: tuple[Step, ...]
    rates: Rates | None = None  # None: not measured yet in this process
    points: tuple[Point, ...] = ()  # the steps timed so far, in their order
    skipped: tuple[Skipped, ...] = ()
    rounds: int = 0  # complete
    planned: int = 0  # rounds asked for
    counted: tuple[Check, ...] = ()  # operations by formula against those that PyTorch counted
    state: Literal["planned", "running", "done", "stopped"] = "planned"

    @property
    def ridge(self) -> float | None:
        """The intensity from which arithmetic decides; None before the rates are known."""
        return roofline.ridge(self.rates.flop_rate.median, self.rates.bandwidth.median) if self.rates else None

    def step(self, kind: Kind, batch: int = 1) -> Step | None:
        return next((s for s in self.steps if (s.kind, s.batch) == (kind, batch)), None)

    def point(self, kind: Kind, batch: int = 1) -> Point | None:
        return next((p for p in self.points if (p.step.kind, p.step.batch) == (kind, batch)), None)

    @property
    def enough(self) -> bool:
        """Every point is the median of enough passes."""
        return bool(self.points) and all(p.enough for p in self.points)

    @property
    def turning(self) -> int | None:
        """The batch from which arithmetic would decide a decode step; None: no rates yet, or never."""
        one = self.step("decode")
        if one is None or self.ridge is None:
            return None
        return roofline.fed_to_reach(self.ridge, one.weights, self.model.kv_bytes_per_token, one.flops, one.held)

    @cached_property
    def highest(self) -> Point | None:
        """The point that comes nearest to its roof, or is furthest above it."""
        return max((p for p in self.points if p.enough), key=lambda p: p.of_roof, default=None)

    @property
    def checks(self) -> tuple[Check, ...]:
        """Operations, and once measured: the rates hold still, and no point lies above its roof."""
        found = list(self.counted)
        if self.rates is not None:
            wide = unsteady(self.rates)
            found.append(Check("steady", "holds" if wide <= STEADY else "fails", wide, STEADY))
        if self.highest is not None:
            reached = 100 * self.highest.of_roof
            side = "bytes" if self.highest.step.intensity < (self.ridge or 0) else "arithmetic"
            found.append(Check(f"roof_{side}", "holds" if reached <= 100 else "fails", reached, 100))
        return tuple(found)


def unsteady(rates: Rates) -> float:
    """How far apart the quartiles of a rate are, in % of its median: of the rate where they are further."""
    return 100 * max((s.high - s.low) / s.median for s in (rates.bandwidth, rates.flop_rate))


def floor_ms(step: Step, rates: Rates) -> float:
    """What such a pass can't be quicker than, by the measured rates."""
    return roofline.floor_ms(step.flops, step.moved, rates.flop_rate.median, rates.bandwidth.median)


def step_of(model: ModelFacts, matrix_values: int, kind: Kind, batch: int, held: int, new: int) -> Step:
    """A pass of that model by the formulas of `theory.roofline`. Without a cache K and V are kept nowhere."""
    output = model.vocab_size * model.width
    weights = (matrix_values + output) * model.value_bytes
    token = 0 if kind == "race_uncached" else model.kv_bytes_per_token
    flops = roofline.pass_flops(
        batch, held, new, matrix_values=matrix_values, heads=model.heads, head_dim=model.head_dim,
        layers=model.layers, output_values=output,
    )  # fmt: skip
    kv = roofline.moved(0, batch, held, new, token)
    return Step(kind, batch, held, new, flops, weights, kv, roofline.copied_by_a_pass(batch, held, token))


def steps_of(model: ModelFacts, matrix_values: int, P: int, batches: tuple[int, ...] = BATCHES) -> tuple[Step, ...]:
    """Prefill of one prompt of P tokens, and a decode step after it for each batch."""
    prefill = step_of(model, matrix_values, "prefill", 1, 0, P)
    return (prefill, *(step_of(model, matrix_values, "decode", b, P, 1) for b in batches))


def lanes_of(race: Race | None, roof: Roofline) -> tuple[Point, ...]:
    """Both lanes of a race of that model under this roof: the middle pass after the first token, and the time a token.

    Empty while there is no roof, no race of the same model and precision, or too few passes to speak of.
    """
    same = race is not None and (race.model.name, race.model.dtype) == (roof.model.name, roof.model.dtype)
    if not same or roof.rates is None or race.passes < ENOUGH:
        return ()
    T = race.P + race.n // 2
    found = []
    for kind, lane, held, new in (("race_cached", race.cached, T - 1, 1), ("race_uncached", race.uncached, 0, T)):
        found.append(Point(step_of(roof.model, roof.matrix_values, kind, 1, held, new), lane.tpot, roof.rates))
    return tuple(found)
