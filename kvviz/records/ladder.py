"""The ladder, frozen: the same tokens through several ways to run a model, and what the device can do at best.

Shape letters: R rounds, N new tokens. Times are milliseconds, rates bytes or operations a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.records.facts import MachineFacts, ModelFacts
from kvviz.records.race import Spread
from kvviz.theory import memory, roofline, work


@dataclass(frozen=True)
class Rates:
    """What a device was measured to do, over several rounds."""

    bandwidth: Spread  # bytes/s of a large copy, read and written bytes both counted
    flop_rate: Spread  # FLOP/s of a large matrix product


@dataclass(frozen=True)
class Rung:
    """One way to run the model: what is kept between passes, and the attention kernel."""

    cache: str  # "none", "concatenated", "preallocated"
    kernel: str  # "eager", "sdpa"
    ttft: np.ndarray  # (R,) float64, prefill
    later: np.ndarray  # (R, N-1) float64, every pass after it
    held: int  # bytes of K and V at the end, counted on the storages
    chosen: np.ndarray  # (N,) int64

    @property
    def name(self) -> str:
        return f"{self.cache}, {self.kernel}"

    @property
    def tpot(self) -> np.ndarray:
        """(R,) float64: each round's mean time a token after the first."""
        return self.later.mean(axis=1)


@dataclass(frozen=True)
class Ladder:
    """All rungs choose greedily from the same prompt; `generate` is transformers' own loop."""

    model: ModelFacts
    machine: MachineFacts
    P: int
    N: int
    rungs: tuple[Rung, ...]
    generate: np.ndarray  # (R,) float64, a token: (all N tokens less the first alone) / (N - 1)
    rates: Rates
    matrix_values: int  # values of the layers' matrices

    @property
    def fastest(self) -> Rung:
        """The rung with a cache whose tokens take the least time, by the median of its rounds. ValueError: none."""
        return min((r for r in self.rungs if r.cache != "none"), key=lambda r: np.median(r.tpot))

    @property
    def to_generate(self) -> Spread:
        """Time a token of the fastest rung with a cache, in parts of `generate`'s in the same round."""
        return Spread.of(self.fastest.tpot / self.generate)

    @property
    def moved(self) -> int:
        """Bytes that the middle pass after prefill has to move: the matrices read, and K and V of every position."""
        m = self.model
        matrices = (self.matrix_values + m.vocab_size * m.width) * m.value_bytes
        return matrices + (self.P + self.N // 2) * m.kv_bytes_per_token

    @property
    def flops(self) -> int:
        """Floating-point operations of that pass."""
        m = self.model
        return work.flops(
            1, self.P + self.N // 2, 1, matrix_values=self.matrix_values, heads=m.heads, head_dim=m.head_dim,
            layers=m.layers, output_values=m.vocab_size * m.width,
        )  # fmt: skip

    @property
    def floor_ms(self) -> float:
        """What no such pass can be quicker than on this device, by the measured rates."""
        return roofline.floor_ms(self.flops, self.moved, self.rates.flop_rate.median, self.rates.bandwidth.median)

    @property
    def copied(self) -> int:
        """Bytes of older rows that concatenation copies in the whole run, by the formula."""
        return memory.copied_by_concatenation(self.P, self.N, self.model.kv_bytes_per_token)

    @property
    def written(self) -> int:
        """Bytes that the passes after prefill add, by the formula."""
        return memory.written_after_prefill(self.N, self.model.kv_bytes_per_token)
