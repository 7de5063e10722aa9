"""Where a model's passes lie under the roof of this device: prefill and decode steps of growing batches, timed.

The passes are transformers' own: SDPA, its own masks, its cache that grows by concatenation. They are timed round by
round in turning order; load and warm-up are left out, and the device is idle at both readings of the clock. Every pass
takes its turn at the model by itself. Runs without Streamlit.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from kvviz.core.checks import Check
from kvviz.core.refusal import Refusal
from kvviz.engine import cache_api, failures, limits
from kvviz.engine.lanes import sharing
from kvviz.features.ladder.record.ladder import Rates
from kvviz.features.problem import measure as growth
from kvviz.features.race.record import ENOUGH, Spread
from kvviz.features.roofline.record import BATCHES, Point, Roofline, Skipped, Step, step_of, steps_of
from kvviz.measure import rates
from kvviz.measure.clock import timed
from kvviz.models import memory
from kvviz.models.loading import LoadedModel
from kvviz.theory.memory import working_bytes

QUICK_MS = 100.0  # prefill of several prompts at once is timed while its pass would take no longer
AGREE = 1.0  # % that operations by formula may differ from PyTorch's counter


def known_rates(model: LoadedModel) -> Rates | None:
    """The rates of the model's device in its number format, if this process has measured them."""
    return rates.known(model.device, model.module.dtype)


def rates_of(model: LoadedModel) -> Rates:
    """The same, measured now if need be, with nobody's pass at this model beside it.

    Raises Refusal "no_memory_for_rates".
    """
    needed, there = 2 * rates.COPIED + memory.MARGIN, memory.there(str(model.device))
    if known_rates(model) is None and there is not None and there < needed:
        said = {"needed": memory.gib(needed), "there": memory.gib(there), "device": str(model.device)}
        raise Refusal("no_memory_for_rates", **said)
    return rates.of(model.device, model.module.dtype, turn=model.lock)


@failures.ends_with_a_sentence
def plan(model: LoadedModel, P: int, *, batches: Sequence[int] = BATCHES) -> Iterator[Roofline]:
    """What the passes have to do, by formula, and whether PyTorch counts the same operations in this very model.

    Yields once. Raises a Refusal from `limits.check_room`: a decode step after P tokens needs P + 1 positions.
    """
    limits.check_room(model.facts, P, 2)
    values = growth.matrix_values(model)
    steps = steps_of(model.facts, values, P, tuple(batches))
    key = f"{model.facts.name} {model.facts.dtype} {P}"
    found = Roofline(key, model.facts, model.machine, P, values, steps, known_rates(model))
    yield replace(found, counted=_counted(model, steps[0], step_of(model.facts, values, "decode", 1, P, 1)))


@failures.ends_with_a_sentence
def points(
    model: LoadedModel,
    P: int,
    *,
    batches: Sequence[int] = BATCHES,
    rounds: int = ENOUGH,
    stop: threading.Event | None = None,
    known: Rates | None = None,
    quick_ms: float = QUICK_MS,
) -> Iterator[Roofline]:
    """Yields `plan`'s record, then the record so far after the rates and after each pass; the last one is "done" or
    "stopped". `known`: rates measured before. A batch that memory has no room for is left out, and the record says so.

    Raises a Refusal as `plan` and `rates_of` do.
    """
    (found,) = plan(model, P, batches=batches)
    yield replace(found, state="running", planned=rounds, key=secrets.token_hex(8))
    found = replace(found, state="running", planned=rounds, key=secrets.token_hex(8), rates=known or rates_of(model))
    yield found
    passes = _Passes(model, P)
    alone = passes.timed(found.steps[0])  # the second of two: warmed up
    several = [b for b in batches if b > 1 and b * alone <= quick_ms]
    prefills = [step_of(model.facts, found.matrix_values, "prefill", b, 0, P) for b in several]
    steps = (found.steps[0], *prefills, *found.steps[1:])
    found = replace(found, steps=steps)
    times: dict[Step, list[float]] = {step: [] for step in steps}
    for r in range(-1, rounds):  # the first round is the warm-up
        for step in list(times)[:: -1 if r % 2 else 1]:
            if stop is not None and stop.is_set():
                yield replace(found, state="stopped")
                return
            if (lacks := _lacks(model, step)) is not None:
                del times[step]
                found = replace(found, skipped=(*found.skipped, lacks), points=_points(times, found.rates))
            else:
                ms = passes.timed(step)
                if r >= 0:
                    times[step].append(ms)
                    found = replace(found, points=_points(times, found.rates))
            yield found
        found = replace(found, rounds=r + 1)
    yield replace(found, state="done")


def _points(times: dict[Step, list[float]], known: Rates | None) -> tuple[Point, ...]:
    assert known is not None
    return tuple(Point(step, Spread.of(np.array(ms)), known) for step, ms in times.items() if ms)


def _lacks(model: LoadedModel, step: Step) -> Skipped | None:
    """What the device has too little of for that pass, or None: K and V twice while they are concatenated, one
    layer's arrays with scores that need not be held, and a margin."""
    m = model.facts
    arrays = working_bytes(step.new, step.held + step.new, m.heads, m.head_dim, m.width, m.vocab_size, m.value_bytes)
    needed = 2 * step.kv + step.batch * arrays + memory.MARGIN
    there = memory.there(str(model.device))
    return Skipped(step.kind, step.batch, needed, there) if there is not None and there < needed else None


class _Passes:
    """Times passes on a copy of the module that shares its weights and attends by SDPA."""

    def __init__(self, model: LoadedModel, P: int) -> None:
        self.model = model
        self.module = sharing(model.module, "sdpa")
        self.cache = cache_api.new_cache()  # of one sequence: a batch is made of it before the clock starts
        with model.lock:
            _forward(self.module, 1, 0, P, self.cache, model.device)

    def timed(self, step: Step) -> float:
        """Milliseconds of that pass. Each sequence has K and V in memory of its own."""
        device = self.model.device
        with self.model.lock:
            cache = cache_api.repeated(self.cache, step.batch) if step.held else cache_api.new_cache()
            with timed(device) as watch:
                _forward(self.module, step.batch, step.held, step.new, cache, device)
        return watch.ms


@torch.inference_mode()
def _forward(module: torch.nn.Module, B: int, held: int, new: int, cache: cache_api.Cache, device: torch.device):
    """Rows of some ids at the positions that come next, the same in each of B sequences. Logits (B, 1, V)."""
    ids = (torch.arange(held, held + new, device=device) % module.config.vocab_size).expand(B, new)  # (B, Tq)
    positions = torch.arange(held, held + new, device=device).expand(B, new)  # (B, Tq)
    return cache_api.forward(module, ids, positions, None, cache)


def _counted(model: LoadedModel, *steps: Step) -> tuple[Check, ...]:
    """For each step: by how many % the formula's operations differ from those of PyTorch's counter, which sees into
    eager attention alone."""
    module, checks = sharing(model.module, "eager"), []
    for step in steps:
        with model.lock:
            cache = cache_api.new_cache()
            if step.held:
                _forward(module, step.batch, 0, step.held, cache, model.device)
            with FlopCounterMode(display=False) as counter:
                _forward(module, step.batch, step.held, step.new, cache, model.device)
        apart = 100 * abs(step.flops / max(counter.get_total_flops(), 1) - 1)
        checks.append(Check(f"flops_{step.kind}", "holds" if apart <= AGREE else "fails", apart, AGREE))
    return tuple(checks)
