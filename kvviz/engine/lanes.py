"""One lane of the ladder: a copy of the module with its own kernel, its cache, one pass at a time.

All of it is transformers' own: masks, kernels, the cache that grows by concatenation or the preallocated one. A copy
shares the weights with the model, except in another precision.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch

from kvviz.core.refusal import Refusal
from kvviz.engine import cache_api
from kvviz.features.ladder.record.ladder import CACHES, KERNELS
from kvviz.measure.clock import timed
from kvviz.models import device as devices
from kvviz.models.loading import DTYPES, LoadedModel

FIRST = 4  # passes that count for nothing: prefill and three later ones


class Way(NamedTuple):
    """How a lane runs: what is kept between passes, the kernel, the precision ("": the model's own)."""

    cache: str
    kernel: str
    dtype: str = ""
    compiled: bool = False


RUNGS = tuple((cache, kernel) for cache in CACHES for kernel in KERNELS)


def kernels(model: LoadedModel) -> tuple[str, ...]:
    """The kernels that transformers has for this family: some (Gemma 2) are never given SDPA."""
    return KERNELS if getattr(model.module, "_supports_sdpa", True) else ("eager",)


def available(device: torch.device, dtype: str, kernels: tuple[str, ...] = KERNELS) -> tuple[Way, ...]:
    """What a model of that precision may be run as on that device: its own precision first, then the halves that the
    device computes in; on CUDA each with its decode step compiled, at the end. `kernels`: those of its family."""
    halves = [name for name in devices.dtypes(device) if name != "float32" and name != dtype]
    found = [Way(*rung, name) for name in (dtype, *halves) for rung in RUNGS if rung[1] in kernels]
    if device.type == "cuda" and "sdpa" in kernels:
        found += [Way("preallocated", "sdpa", name, True) for name in (dtype, *halves)]
    return tuple(found)


def checked(model: LoadedModel, ways: tuple, *, compiler: bool) -> tuple[Way, ...]:
    """The ways with their precision spelt out. ValueError for what there is not, or twice; a Refusal "bad_dtype",
    "dtype_not_here" or "no_compiler" for what this device can't do, "no_such_kernel" for what this family can't."""
    found = []
    for given in ways:
        way = Way(*given)
        way = way._replace(dtype=way.dtype or model.facts.dtype)
        if way.cache not in CACHES or way.kernel not in KERNELS:
            raise ValueError(f"no such lane: {given}")
        if way.compiled and way[:2] != ("preallocated", "sdpa"):
            raise ValueError("only the preallocated cache with SDPA keeps still enough to be compiled")
        devices.check_dtype(way.dtype, model.device)
        if way.kernel not in kernels(model):
            raise Refusal("no_such_kernel", kind=model.facts.architecture, kernel=way.kernel)
        if way.compiled and not compiler:
            raise Refusal("no_compiler", device=str(model.device))
        found.append(way)
    if not found or len(set(found)) < len(found):
        raise ValueError("lanes have to differ, and there has to be one")
    return tuple(found)


def sharing(module: torch.nn.Module, kernel: str, others: dict[int, torch.Tensor] | None = None) -> torch.nn.Module:
    """A copy with the very same weights that attends as transformers does: the one that is shared attends as kvviz
    does. `others`: weights to take instead, by the id of those they stand for."""
    memo: dict[int, Any] = {id(t): t for t in chain(module.parameters(), module.buffers())}
    made = copy.deepcopy(module, memo | (others or {}))
    made.set_attn_implementation(kernel)
    return made


def converted(module: torch.nn.Module, dtype: str) -> dict[int, torch.Tensor]:
    """Its weights in that precision, by the id of the original. Buffers stay: transformers keeps those in float32."""
    return {
        id(p): torch.nn.Parameter(p.detach().to(DTYPES[dtype]), requires_grad=False)
        for p in module.parameters()
        if p.is_floating_point()
    }


class Modules:
    """The copies that the lanes run on: one for each kernel and precision, weights once for each precision."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self._weights: dict[str, tuple[dict[int, torch.Tensor], float]] = {}
        self._made: dict[tuple[str, str], tuple[torch.nn.Module, float]] = {}

    def get(self, kernel: str, dtype: str) -> tuple[torch.nn.Module, float]:
        """The copy, and the milliseconds that making it took, its weights included."""
        if (kernel, dtype) not in self._made:
            weights, spent = self._of(dtype)
            with self.model.lock, timed(self.model.device) as watch:
                made = sharing(self.model.module, kernel, weights)
            self._made[kernel, dtype] = made, watch.ms + spent
        return self._made[kernel, dtype]

    def _of(self, dtype: str) -> tuple[dict[int, torch.Tensor], float]:
        if dtype == self.model.facts.dtype:
            return {}, 0.0
        if dtype not in self._weights:
            with self.model.lock, timed(self.model.device) as watch:
                made = converted(self.model.module, dtype)
            self._weights[dtype] = made, watch.ms
        return self._weights[dtype]


@dataclass(frozen=True)
class Passed:
    """What one pass took, what its lane holds after it, and what it chose."""

    ms: float
    held: int  # bytes of K and V, counted on the storages
    chosen: int
    agreed: bool  # all rows of the batch chose the same


class Lane:
    """Runs `ids` and what it chooses after them, `batch` times over, N passes at most."""

    def __init__(
        self, model: LoadedModel, modules: Modules, way: Way, ids: list[int], N: int, batch: int, backend: str | None
    ) -> None:
        self.way, self.ids, self.batch, self.device = way, ids, batch, model.device
        self.module, self.ready_ms = modules.get(way.kernel, way.dtype)
        self.cache: Any = None
        self.allocate_ms = float("nan")
        self.call: Callable[..., Any] | None = None
        if way.cache == "preallocated":
            with timed(model.device) as watch, self._mode():
                self.cache = cache_api.preallocated(self.module, len(ids) + N - 1)
                cache_api.allocate(self.cache, model.facts, batch, DTYPES[way.dtype], model.device)
            self.allocate_ms = watch.ms
        self.begin()
        if way.compiled:
            self._compile(backend, min(FIRST, N))

    def begin(self) -> None:
        """Forget what was run. Buffers that were made in advance are kept, and emptied."""
        self.prefix = list(self.ids)
        if self.way.cache == "preallocated":
            with self._mode():
                cache_api.empty(self.cache)
        elif self.way.cache == "concatenated":
            self.cache = cache_api.new_cache()

    def step(self) -> Passed:
        """The next pass; all rows are fed what the first one chooses."""
        first = len(self.prefix) == len(self.ids)
        start = 0 if first or self.cache is None else len(self.prefix) - 1
        fed = torch.tensor([self.prefix[start:]] * self.batch, device=self.device)  # (B, Tq)
        positions = torch.arange(start, len(self.prefix), device=self.device).repeat(self.batch, 1)  # (B, Tq)
        call = None if first else self.call  # prefill is another shape, and would be compiled for itself
        with self._mode():
            with timed(self.device) as watch:
                logits = cache_api.forward(self.module, fed, positions, None, self.cache, call=call)  # (B, 1, V)
                best = logits[:, -1].argmax(dim=-1)  # (B,)
            chosen = best.tolist()
        self.prefix.append(chosen[0])
        held = cache_api.nbytes(self.cache) if self.cache is not None else 0
        return Passed(round(watch.ms, 6), held, chosen[0], len(set(chosen)) == 1)  # nanoseconds

    def _mode(self):
        """Tensors of inference mode count no versions, which the compiler asks for."""
        return torch.no_grad() if self.way.compiled else torch.inference_mode()

    def _compile(self, backend: str | None, passes: int) -> None:
        """The decode step as `generate` compiles it: the module's call, "reduce-overhead" (CUDA graphs). The first
        call compiles, the second records, the third replays. It takes a minute, so nobody is kept waiting for it."""
        start = time.perf_counter()
        kind = {"backend": backend} if backend else {"mode": "reduce-overhead"}
        self.call = torch.compile(self.module.__call__, fullgraph=False, **kind)
        for _ in range(passes):
            self.step()
        self.begin()
        self.ready_ms += (time.perf_counter() - start) * 1e3
