"""Several ways to run one model, side by side: what is kept between passes, the kernel, the precision.

All of it is transformers' own (`lanes`), beside its own `generate`. Lanes take turns of CHUNK passes, the order turns
with every round; what comes before a lane's first pass is timed apart, and its first passes count for nothing. The
device is idle at both readings of the clock, and nobody else's pass comes into one (the model's lock, taken a pass at
a time). Runs without Streamlit.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from kvviz.core.refusal import Refusal
from kvviz.engine import failures
from kvviz.engine.lanes import FIRST, RUNGS, Lane, Modules, Passed, Way, available, checked, kernels
from kvviz.features.ladder.record.ladder import VALUE_BYTES, Ladder, Rates, Rung
from kvviz.features.problem import measure as growth
from kvviz.features.race.measure import MOST_REPEATS, least_repeats, prompt_ids
from kvviz.features.race.record import Allocator
from kvviz.measure import rates
from kvviz.measure.clock import timed
from kvviz.models import memory
from kvviz.models.device import allocator
from kvviz.models.loading import LoadedModel
from kvviz.theory.memory import kv_bytes, working_bytes

__all__ = ["RUNGS", "Way", "available", "check_memory", "climb", "kernels"]
CHUNK = 16  # passes of a lane before the next one's
BUDGET_S = 10.0  # repeats are added while all of them fit in about this
PAUSE_S = 0.1  # between two results, once the first round is through


class _Sheet:
    """What one lane has measured so far, as lists."""

    def __init__(self, way: Way, N: int) -> None:
        self.way, self.N = way, N
        self.ready_ms = self.allocate_ms = float("nan")
        self.warm_up: list[float] = []
        self.ms: list[list[float]] = []  # a list a repeat
        self.held: list[int] = []
        self.chosen: list[int] = []

    def note(self, i: int, done: Passed) -> None:
        """Pass `i` of the repeat at hand."""
        self.ms[-1].append(done.ms)
        token = done.chosen if done.agreed else -1
        if i == len(self.chosen):
            self.held.append(done.held)
            self.chosen.append(token)
        elif token != self.chosen[i]:  # one repeat that differs is enough to say so
            self.chosen[i] = -1

    def rung(self) -> Rung:
        ms = np.full((len(self.ms), len(self.chosen)), np.nan)  # (R, n)
        for row, values in zip(ms, self.ms, strict=True):
            row[: len(values)] = values
        held, chosen = (np.array(values, dtype=np.int64) for values in (self.held, self.chosen))
        cache, kernel, dtype, compiled = self.way
        warm_up = np.array(self.warm_up, dtype=np.float64)
        return Rung(cache, kernel, dtype, self.N, ms, warm_up, self.ready_ms, self.allocate_ms, held, chosen, compiled)


@failures.ends_with_a_sentence
def climb(
    model: LoadedModel,
    prompt: str,
    P: int | None,
    N: int,
    *,
    rungs: Sequence[Way | tuple] = RUNGS,
    batch: int = 1,
    repeats: int | None = None,
    stop: threading.Event | None = None,
    beside_generate: bool = True,
    measure_rates: bool = True,
    known: Rates | None = None,
    backend: str | None = None,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Ladder]:
    """Greedy, N tokens after the first P of `prompt` (said again where it ends; None: all of it), in every lane and
    every round.

    Yields the ladder so far: after each pass until the first round is through, then about ten times a second; the last
    one is "done" or "stopped". `stop` is looked at between passes. `repeats` None: at least `least_repeats`, more while
    they fit in `budget_s` seconds. `known`: rates measured before, in the model's precision. `backend`: the compiler's,
    to try a compiled lane where there are no CUDA graphs. Raises ValueError for N < 2, a batch < 1 or no such lane, a
    Refusal from `limits`, `lanes.checked` or `check_memory` at the first `next`, later one from `failures`.
    """
    if N < 2 or batch < 1:
        raise ValueError("a time a token needs two tokens or more, and a batch at least one row")
    ids = prompt_ids(model, prompt, N, P)
    ways = checked(model, tuple(rungs), compiler=model.device.type == "cuda" or backend is not None)
    check_memory(model, ways, len(ids), N, batch)
    climber = _Climber(model, ids, N, ways, batch, beside_generate, clock)
    climber.planned = repeats or least_repeats(N)
    climber.rates = known
    yield from climber.climb(stop or threading.Event(), repeats is None, measure_rates, budget_s, backend)


class _Climber:
    """One climb: its sheets, and the frozen Ladder made of them after each pass."""

    def __init__(self, model, ids, N, ways, batch, beside_generate, clock) -> None:
        self.model, self.ids, self.N, self.batch = model, ids, N, batch
        self.beside_generate, self.clock = beside_generate, clock
        self.key, self.planned = secrets.token_hex(8), 1
        self.sheets = [_Sheet(way, N) for way in ways]
        self.generate: list[float] = []
        self.rates: Rates | None = None
        self.other_rates: dict[str, Rates] = {}
        self.matrix_values = growth.matrix_values(model)
        self.modules = Modules(model)

    def snapshot(self, state: str = "running") -> Ladder:
        memory = allocator(self.model.device)
        return Ladder(
            key=self.key,
            model=self.model.facts,
            machine=self.model.machine,
            P=len(self.ids),
            N=self.N,
            rungs=tuple(sheet.rung() for sheet in self.sheets),
            matrix_values=self.matrix_values,
            batch=self.batch,
            repeats=self.planned,
            generate=np.array(self.generate, dtype=np.float64),
            rates=self.rates,
            other_rates=dict(self.other_rates),
            state=state,
            allocator=None if memory.allocated is None else Allocator(memory.allocated, memory.reserved, memory.peak),
        )

    def climb(self, stop, may_grow: bool, measure_rates: bool, budget_s: float, backend: str | None):
        lanes: list[Lane] = []
        for sheet in self.sheets:
            if stop.is_set():
                yield self.snapshot("stopped")
                return
            lane = Lane(self.model, self.modules, sheet.way, self.ids, self.N, self.batch, backend)
            sheet.ready_ms, sheet.allocate_ms = lane.ready_ms, lane.allocate_ms
            lanes.append(lane)
            yield self.snapshot()
        for lane, sheet in zip(lanes, self.sheets, strict=True):
            for _ in range(min(FIRST, self.N)):
                if stop.is_set():
                    yield self.snapshot("stopped")
                    return
                with self.model.lock:
                    sheet.warm_up.append(lane.step().ms)
                yield self.snapshot()
        begun, told, repeat = self.clock(), self.clock(), 0
        while repeat < self.planned:
            for sheet, lane in zip(self.sheets, lanes, strict=True):
                sheet.ms.append([])
                lane.begin()
            for at, i in self._turns(repeat):
                if stop.is_set():
                    yield self._stopped()
                    return
                with self.model.lock:
                    done = lanes[at].step()
                self.sheets[at].note(i, done)
                if repeat == 0 or self.clock() - told >= PAUSE_S:
                    told = self.clock()
                    yield self.snapshot()
            if self.beside_generate:
                if stop.is_set():
                    yield self._stopped()
                    return
                beside = self._beside(stop)
                if beside is None:
                    yield self._stopped()
                    return
                self.generate.append(beside)
            if repeat == 0:
                if may_grow:
                    fits = int(budget_s / max(self.clock() - begun, 1e-9))
                    self.planned = min(MOST_REPEATS, max(self.planned, fits))
                if measure_rates:
                    yield self.snapshot()
                    self._measure(stop)
            repeat += 1
            yield self.snapshot("done" if repeat == self.planned else "running")

    def _turns(self, repeat: int) -> Iterator[tuple[int, int]]:
        """(lane, pass) of one round in the order they run: chunk by chunk, every lane's before the next chunk."""
        lanes = range(len(self.sheets))
        for start in range(0, self.N, CHUNK):
            for at in lanes if repeat % 2 == 0 else reversed(lanes):
                for i in range(start, min(start + CHUNK, self.N)):
                    yield at, i

    def _stopped(self) -> Ladder:
        """The last ladder of a climb that was stopped, without a repeat that never began."""
        if not any(sheet.ms[-1] for sheet in self.sheets):
            for sheet in self.sheets:
                sheet.ms.pop()
        return self.snapshot("stopped")

    def _beside(self, stop) -> float | None:
        """Milliseconds a token of transformers' own loop, with the kernel it would pick: all N less the first alone.
        None if it was stopped."""
        module, _ = self.modules.get(kernels(self.model)[-1], self.model.facts.dtype)
        whole, first = (_generate(self.model, module, self.ids, n, self.batch, stop) for n in (self.N, 1))
        return None if stop.is_set() else (whole - first) / (self.N - 1)

    def _measure(self, stop) -> None:
        """The device's rates in every precision that runs and where there is room for it."""
        own = self.model.facts.dtype
        for dtype in dict.fromkeys(sheet.way.dtype for sheet in self.sheets):
            there = memory.there(str(self.model.device))
            if stop.is_set() or (there is not None and there < 2 * rates.COPIED + memory.MARGIN):
                return
            if dtype != own:
                self.other_rates[dtype] = rates.of(self.model.device, getattr(torch, dtype), turn=self.model.lock)
            elif self.rates is None:
                self.rates = rates.of(self.model.device, getattr(torch, dtype), turn=self.model.lock)


def _generate(model: LoadedModel, module: torch.nn.Module, ids: list[int], N: int, batch: int, stop) -> float:
    """Milliseconds of transformers' own loop for N tokens, or for those until `stop` was set."""
    fed = torch.tensor([ids] * batch, device=model.device)  # (B, P)
    ended = [torch.full((batch,), value, device=model.device) for value in (False, True)]  # made once, off the clock
    options = {"do_sample": False, "max_new_tokens": N, "min_new_tokens": N, "pad_token_id": 0}
    options["stopping_criteria"] = [lambda *_, **__: ended[stop.is_set()]]
    with model.lock, torch.inference_mode(), timed(model.device) as watch:
        module.generate(fed, attention_mask=torch.ones_like(fed), **options)
    return watch.ms


def check_memory(model: LoadedModel, ways: Sequence[Way], P: int, N: int, batch: int) -> None:
    """Raises Refusal "no_room_for_lanes" if these lanes' caches, `generate`'s, their weights in another precision and
    the arrays of the largest pass do not fit at once."""
    facts, T = model.facts, P + N - 1
    needed = kv_bytes(facts.layers, facts.kv_heads, facts.head_dim, T, facts.value_bytes, batch)
    for way in ways:
        if way.cache != "none":
            needed += kv_bytes(facts.layers, facts.kv_heads, facts.head_dim, T, VALUE_BYTES[way.dtype], batch)
    for dtype in {way.dtype for way in ways} - {facts.dtype}:
        needed += facts.parameters * VALUE_BYTES[dtype]
    largest = 0
    for way in ways:
        rows, size = (T if way.cache == "none" else P), VALUE_BYTES[way.dtype]
        inside = 4 * 4 * facts.width * rows * size  # an MLP four times as wide, and what its activation makes of it
        arrays = working_bytes(rows, T, facts.heads, facts.head_dim, facts.width, facts.vocab_size, size) + inside
        largest = max(largest, batch * arrays)
    needed, there = needed + largest + memory.MARGIN, memory.there(str(model.device))
    if there is not None and needed > there:
        said = {"needed": memory.gib(needed), "there": memory.gib(there), "device": str(model.device)}
        raise Refusal("no_room_for_lanes", positions=T, batch=batch, **said)
