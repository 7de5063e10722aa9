"""Several ways to run one model, round by round in turning order: what is kept between passes, and the kernel.

All of it is transformers' own: the model's module with its masks and kernels, its cache that grows by concatenation or
its preallocated one, beside its own `generate`. Load and warm-up are left out; the device is idle at both readings of
the clock. Runs without Streamlit.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
import torch

from kvviz.engine import cache_api, failures, growth, limits, rates
from kvviz.engine.timing import timed
from kvviz.models.loading import LoadedModel
from kvviz.records.ladder import Ladder, Rates, Rung

CACHES = ("none", "concatenated", "preallocated")
KERNELS = ("eager", "sdpa")
RUNGS = tuple((cache, kernel) for cache in CACHES for kernel in KERNELS)
ROUNDS = 5


def climb(
    model: LoadedModel,
    prompt: str,
    P: int,
    N: int,
    *,
    rungs: Sequence[tuple[str, str]] = RUNGS,
    rounds: int = ROUNDS,
    known: Rates | None = None,
) -> Ladder:
    """Greedy, N tokens after the first P of `prompt` (said again where it ends), on every rung in every round.

    `known`: rates measured before. Raises a Refusal from `limits` before anything runs and from
    `failures.run_or_end` later, ValueError for N < 2.
    """
    if N < 2:
        raise ValueError("a time a token needs two tokens or more")
    said = limits.check_prompt(model, prompt, keep_bytes=None)
    limits.check_room(model.facts, P, N)
    ids = list(islice(cycle(said), P))
    with model.lock:
        return failures.run_or_end(model, lambda: _climb(model, ids, N, tuple(rungs), rounds, known))


def _climb(model: LoadedModel, ids: list[int], N: int, rungs: tuple, rounds: int, known: Rates | None) -> Ladder:
    modules = {kernel: _module(model, kernel) for kernel in {kernel for _, kernel in rungs}}
    loop = modules.get("sdpa") or _module(model, "sdpa")
    found = known or rates.measure(model.device, next(loop.parameters()).dtype)
    times: dict[tuple[str, str], list[list[float]]] = {rung: [] for rung in rungs}
    last: dict[tuple[str, str], tuple[int, list[int]]] = {}
    alone: list[float] = []
    for r in range(-1, rounds):  # the first round is the warm-up
        for rung in rungs if r % 2 == 0 else rungs[::-1]:
            ms, *last[rung] = _run(modules[rung[1]], rung[0], ids, N, model.device)
            if r >= 0:
                times[rung].append(ms)
        whole, first = (_generate(loop, ids, n, model.device) for n in (N, 1))
        if r >= 0:
            alone.append((whole - first) / (N - 1))
    climbed = []
    for rung in rungs:
        ms, (held, chosen) = np.array(times[rung]), last[rung]  # (R, N)
        climbed.append(Rung(*rung, ms[:, 0], ms[:, 1:], held, np.array(chosen, dtype=np.int64)))
    values = growth.matrix_values(model)
    return Ladder(model.facts, model.machine, len(ids), N, tuple(climbed), np.array(alone), found, values)


def _module(model: LoadedModel, kernel: str) -> torch.nn.Module:
    """A copy that attends as transformers does: the one that is shared attends as kvviz does."""
    module = copy.deepcopy(model.module)
    module.set_attn_implementation(kernel)
    return module


@torch.inference_mode()
def _run(module: torch.nn.Module, kind: str, ids: list[int], N: int, device: torch.device):
    """Milliseconds of N passes, bytes of K and V held at the end, the tokens chosen."""
    cache = None
    if kind == "concatenated":
        cache = cache_api.new_cache()
    elif kind == "preallocated":
        cache = cache_api.preallocated(module, len(ids) + N - 1)
    prefix, times, chosen = list(ids), [], []
    for i in range(N):
        start = 0 if i == 0 or cache is None else len(prefix) - 1
        fed = torch.tensor([prefix[start:]], device=device)  # (1, Tq)
        positions = torch.arange(start, len(prefix), device=device)[None]  # (1, Tq)
        with timed(device) as watch:
            best = cache_api.forward(module, fed, positions, None, cache)[0, -1].argmax()
        times.append(watch.ms)
        chosen.append(int(best))
        prefix.append(chosen[-1])
    return times, cache_api.nbytes(cache) if cache is not None else 0, chosen


def _generate(module: torch.nn.Module, ids: list[int], N: int, device: torch.device) -> float:
    """Milliseconds of transformers' own loop for N tokens."""
    fed = torch.tensor([ids], device=device)
    options = {"do_sample": False, "max_new_tokens": N, "min_new_tokens": N, "pad_token_id": 0}
    with torch.inference_mode(), timed(device) as watch:
        module.generate(fed, attention_mask=torch.ones_like(fed), **options)
    return watch.ms
