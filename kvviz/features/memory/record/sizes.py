"""Questions about memory and their answers: a run's own bytes, a model at a length, a serving engine's budget."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

from kvviz.core.checks import Check
from kvviz.core.refusal import Refusal
from kvviz.core.run import Run
from kvviz.features.memory.record.architectures import MOST_BATCH, MOST_POSITIONS, Architecture, Format, of_facts
from kvviz.features.memory.record.gpus import Gpu
from kvviz.theory import capacity
from kvviz.theory.memory import kv_bytes, working_bytes


@dataclass(frozen=True)
class Held:
    """What a run held in the end. Bytes; `counted` on the cache's tensors, `formula` and `working` worked out."""

    key: str
    model: Architecture
    positions: int  # T
    batch: int
    value_bytes: int
    tensors: int
    counted: int
    weights: int
    working: int  # of its largest pass
    working_rows: int  # token rows of that pass

    def at(self, positions: int) -> int:
        """2 · L · Hkv · D · T · B · (bytes a value)."""
        m = self.model
        return kv_bytes(m.layers, m.kv_heads, m.head_dim, positions, self.value_bytes, batch=self.batch)

    @property
    def formula(self) -> int:
        return self.at(self.positions)

    @property
    def checks(self) -> tuple[Check, ...]:
        return (Check("bytes", "holds" if self.counted == self.formula else "fails", self.counted, self.formula),)


def of_run(run: Run) -> Held:
    """Raises IndexError for a run without a pass."""
    last, m = run.steps[-1], run.model
    room, rows = max(
        (working_bytes(s.rows, s.length_after, m.heads, m.head_dim, m.width, m.vocab_size, m.value_bytes), s.rows)
        for s in run.steps
    )
    return Held(
        run.key,
        of_facts(m),
        last.length_after,
        int(last.kv_shape[2]),
        m.value_bytes,
        last.kv_tensors,
        last.kv_bytes,
        m.weight_bytes,
        room,
        rows,
    )


@dataclass(frozen=True)
class Wanted:
    """A model at a length and a batch, with the precision of its cache and of its weights, on so many GPUs."""

    key: str
    model: Architecture
    positions: int
    batch: int
    kept: Format
    weights: Format
    gpus: int = 1

    @property
    def cache(self) -> int:
        """Bytes of the whole cache."""
        return self.model.cache_bytes(self.positions, self.kept, self.batch)

    @property
    def cache_a_gpu(self) -> int:
        return self.taken(self.positions, self.batch)

    @property
    def weights_a_gpu(self) -> int | None:
        return self.model.weight_bytes(self.weights, self.gpus)

    def taken(self, positions: int, batch: int) -> int:
        """Bytes of the cache on each GPU at another length and batch."""
        return self.model.cache_bytes(positions, self.kept, batch, gpus=self.gpus)

    def with_kept(self, kept: Format) -> Wanted:
        return dataclasses.replace(self, kept=kept)


@dataclass(frozen=True)
class Fit:
    """What of a model fits on a GPU's memory, beside its share of the weights. Bytes and counts on each GPU."""

    gpu: Gpu
    weights: int
    cache: int
    left: int  # for the cache; negative: not even the weights fit
    batch: int  # the largest at the length asked for
    positions: int  # the longest at the batch asked for
    read_ms: float | None  # least time of a decode pass; None where it reads some of the weights only

    @property
    def fits(self) -> bool:
        return self.cache <= self.left


def fit(wanted: Wanted, gpu: Gpu) -> Fit | None:
    """None while the number of parameters is unknown."""
    weights = wanted.weights_a_gpu
    if weights is None:
        return None
    left = gpu.memory_bytes - weights
    return Fit(
        gpu,
        weights,
        wanted.cache_a_gpu,
        left,
        capacity.largest(lambda batch: wanted.taken(wanted.positions, batch), left, MOST_BATCH),
        capacity.largest(lambda length: wanted.taken(length, wanted.batch), left, MOST_POSITIONS),
        None if wanted.model.experts else capacity.read_ms(weights, wanted.cache_a_gpu, gpu.bandwidth),
    )


LEAST_MEMORY, MOST_MEMORY = 0.01, 100_000.0  # GiB
LOGGED = 0.01  # GiB: engines' logs round to that


@dataclass(frozen=True)
class Budget:
    """A serving engine's memory, in GiB, and its blocks. `utilisation` is a share of the GPU's memory."""

    key: str
    memory: float
    utilisation: float
    weights: float
    activations: float  # peak of the first, largest pass; with weights 0 they are within it
    other: float
    block: int  # tokens
    token_bytes: int
    longest: int  # tokens of the longest request that is let in
    request: int  # tokens of a request as they come
    latent: bool = False  # the model keeps MLA's vector

    def __post_init__(self) -> None:
        """Raises Refusal "budget_memory" for no memory at all."""
        if not LEAST_MEMORY <= self.memory <= MOST_MEMORY:
            limits = {"least": LEAST_MEMORY, "most": f"{MOST_MEMORY:,.0f}"}
            raise Refusal("budget_memory", value=f"{self.memory:,.2f}", **limits)

    @property
    def room(self) -> float:
        """GiB for K and V. Negative: the engine can't start."""
        return capacity.left_for_cache(self.memory, self.utilisation, self.weights, self.activations, self.other)

    @property
    def within(self) -> bool:
        """The weights are not given apart: the peak includes them, as in some engines' logs."""
        return self.weights == 0

    @cached_property
    def blocks(self) -> int:
        return capacity.blocks(self.room * capacity.GIB, self.token_bytes * self.block)

    @property
    def logged(self) -> tuple[float, float]:
        """Between which GiB the room may lie if a log gives it rounded."""
        room = round(self.room / LOGGED) * LOGGED
        return max(0.0, room - LOGGED / 2), max(0.0, room + LOGGED / 2)

    @property
    def logged_blocks(self) -> tuple[int, int]:
        least, most = (capacity.blocks(room * capacity.GIB, self.token_bytes * self.block) for room in self.logged)
        return least, most

    @property
    def tokens(self) -> int:
        return self.blocks * self.block

    @property
    def whole(self) -> float:
        """Requests of the longest kind at once, as engines print it."""
        return capacity.at_once(self.blocks, self.block, self.longest)

    @property
    def each(self) -> int:
        """Blocks of a request as they come."""
        return capacity.blocks_of(self.request, self.block)

    @property
    def requests(self) -> int:
        """Such requests at once, by memory."""
        return self.blocks // self.each

    @property
    def case(self) -> str:
        return "negative" if self.room < 0 else "none" if not self.blocks else "refused" if self.whole < 1 else "starts"
