"""The same tokens with and without a cache, on this device, pass by pass in turn.

Both lanes are given the same prefix and run the same kernel with `logits_to_keep=1`; nothing is captured. Who goes
first changes with every token and every repeat. Load and warm-up are excluded, the device is idle at both readings
of the clock (`timing`), and nobody else's pass comes between a lane's and the other's (the model's lock).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice

import numpy as np

from kvviz.core import Sampling
from kvviz.engine import attention, cache_api, failures, limits, proofs
from kvviz.engine.feed import Pass, run_pass, warm_up
from kvviz.engine.sampling import Sampler
from kvviz.features.race.record import ENOUGH, Allocator, Lane, Race, Waits
from kvviz.models.device import allocator
from kvviz.models.loading import LoadedModel

LEAST_REPEATS, MOST_REPEATS = 3, 25
BUDGET_S = 4.0  # repeats are added while all of them fit in about this
LENGTHS = (10, 100, 800)  # prompts of `waits`
LATER = 6  # later tokens timed after each of its first ones

Run = Callable[..., Pass]


class Cached:
    """Keeps K and V: feeds what the cache does not hold yet."""

    def __init__(self, model: LoadedModel, run: Run) -> None:
        self.model, self.run, self.cache = model, run, cache_api.new_cache()

    def step(self, prefix: list[int]) -> tuple[Pass, int, int]:
        """The next pass, the rows it computed, and the bytes kept after it."""
        held = cache_api.length(self.cache)
        new = prefix[held:]  # the prompt at first, then one token
        return self.run(self.model, new, held, self.cache, listen=False), len(new), cache_api.nbytes(self.cache)


class Uncached:
    """Keeps nothing: feeds the whole prefix every time."""

    def __init__(self, model: LoadedModel, run: Run) -> None:
        self.model, self.run = model, run

    def step(self, prefix: list[int]) -> tuple[Pass, int, int]:
        return self.run(self.model, prefix, 0, None, listen=False), len(prefix), 0


class _Sheet:
    """What has been measured so far, as lists; `race` makes a frozen Race of it after each token."""

    def __init__(self, new: int) -> None:
        self.new = new
        self.ids: list[int] = []
        self.ms: dict[type, list[list[float]]] = {Cached: [], Uncached: []}
        self.rows: dict[type, list[int]] = {Cached: [], Uncached: []}
        self.held: dict[type, list[int]] = {Cached: [], Uncached: []}
        self.chosen: dict[type, list[int]] = {Cached: [], Uncached: []}
        self.dlogit: list[float] = []

    def lane(self, kind: type) -> Lane:
        n = len(self.ids)
        ms = np.full((len(self.ms[kind]), n), np.nan)  # (R, n)
        for r, row in enumerate(self.ms[kind]):
            ms[r, : len(row)] = row
        columns = (np.array(values[kind], dtype=np.int64) for values in (self.rows, self.held, self.chosen))
        return Lane(ms, *columns)


def least_repeats(new: int) -> int:
    """At least 3, and as many as ENOUGH passes after the first token take."""
    return max(LEAST_REPEATS, -(-ENOUGH // (new - 1)) if new > 1 else LEAST_REPEATS)


def prompt_ids(model: LoadedModel, prompt: str, new: int, length: int | None = None) -> list[int]:
    """The prompt's tokens, or `length` of them, again from the start where it ends. Raises a Refusal."""
    if length is None:
        return limits.check_prompt(model, prompt, new, keep_bytes=None)
    said = limits.check_prompt(model, prompt, keep_bytes=None)
    limits.check_room(model.facts, length, new)
    return list(islice(cycle(said), length))


@failures.ends_with_a_sentence
def race(
    model: LoadedModel,
    prompt: str,
    new: int,
    *,
    repeats: int | None = None,
    length: int | None = None,
    sampling: Sampling | None = None,
    stop: threading.Event | None = None,
    budget_s: float = BUDGET_S,
    run: Run = run_pass,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Race]:
    """Yields the race so far after each token that both lanes have; the last one is "done" or "stopped".

    `repeats` None: `least_repeats`, more while they fit in `budget_s` seconds. `length` says the prompt again, or
    cuts it, to so many tokens. `stop` is looked at between tokens. Raises a Refusal from `limits.check_prompt`
    or `sampling.check` at the first `next`, later "out_of_memory", "device_failed" or "device_lost".
    """
    ids = prompt_ids(model, prompt, new, length)
    sampling = sampling or Sampling()
    sheet, pieces = _Sheet(new), model.pieces(ids)
    planned, key = repeats or least_repeats(new), secrets.token_hex(8)

    def snapshot(state: str) -> Race:
        memory = allocator(model.device)
        return Race(
            key=key,
            prompt=prompt,
            prompt_ids=np.array(ids, dtype=np.int64),
            model=model.facts,
            machine=model.machine,
            pieces=dict(pieces),
            new=new,
            repeats=planned,
            ids=np.array(sheet.ids, dtype=np.int64),
            uncached=sheet.lane(Uncached),
            cached=sheet.lane(Cached),
            max_abs_dlogit=np.array(sheet.dlogit, dtype=np.float32),
            tolerance=proofs.LOGIT_TOLERANCE[model.facts.dtype],
            state=state,
            allocator=None if memory.allocated is None else Allocator(memory.allocated, memory.reserved, memory.peak),
        )

    _warm(model, ids, new, run)
    begun, repeat = clock(), 0
    while repeat < planned:
        lanes = (Cached(model, run), Uncached(model, run))
        sampler = Sampler(sampling)
        for kind in sheet.ms:
            sheet.ms[kind].append([])
        for i in range(new):
            if stop is not None and stop.is_set():
                if not sheet.ms[Cached][-1]:  # a repeat that never began
                    for kind in sheet.ms:
                        sheet.ms[kind].pop()
                yield snapshot("stopped")
                return
            order = lanes if (i + repeat) % 2 == 0 else lanes[::-1]
            with model.lock:
                _token(sheet, order, ids, i, sampler)
            pieces.update(model.pieces(sheet.ids[i : i + 1]))
            if repeat == 0 and i == new - 1 and repeats is None:
                fits = int(budget_s / max(clock() - begun, 1e-9))
                planned = min(MOST_REPEATS, max(planned, fits))
            yield snapshot("done" if repeat == planned - 1 and i == new - 1 else "running")
        repeat += 1


def _token(sheet: _Sheet, order: tuple, ids: list[int], i: int, sampler: Sampler) -> None:
    """Token `i` in both lanes, given the same prefix; the cached lane's choice of the first repeat is fed."""
    prefix = [*ids, *sheet.ids[:i]]
    done = {type(lane): lane.step(prefix) for lane in order}
    again = sampler.clone()
    chosen = {Cached: sampler.choose(done[Cached][0].logits), Uncached: again.choose(done[Uncached][0].logits)}
    apart = float((done[Cached][0].logits - done[Uncached][0].logits).abs().max())
    first = i == len(sheet.ids)
    if first:
        sheet.ids.append(chosen[Cached])
        sheet.dlogit.append(apart)
    for kind, (step, rows, held) in done.items():
        sheet.ms[kind][-1].append(step.ms)
        if first:
            sheet.rows[kind].append(rows)
            sheet.held[kind].append(held)
            sheet.chosen[kind].append(chosen[kind])
        elif chosen[kind] != sheet.ids[i]:  # one repeat that differs is enough to say so
            sheet.chosen[kind][i] = chosen[kind]
    sheet.dlogit[i] = max(sheet.dlogit[i], apart)


def _warm(model: LoadedModel, ids: list[int], new: int, run: Run) -> None:
    """Each kind of pass once, untimed, at the sizes of this race: its shortest and its longest prefix."""
    warm_up(model, len(ids))
    longest = list(islice(cycle(ids), len(ids) + new - 1))
    for prefix in (ids, longest):
        cached = Cached(model, run)
        for lane, fed in ((cached, prefix[:-1]), (cached, prefix), (Uncached(model, run), prefix)):
            if fed:
                with model.lock:
                    lane.step(fed)


@failures.ends_with_a_sentence
def waits(
    model: LoadedModel,
    prompt: str,
    *,
    lengths: tuple[int, ...] = LENGTHS,
    repeats: int = LEAST_REPEATS + 1,
    stop: threading.Event | None = None,
    run: Run = run_pass,
) -> Iterator[Waits]:
    """First token against later tokens, with a cache, for prompts of several lengths (the prompt said again).

    Lengths that leave no room are left out. Yields after each prompt of each repeat; the order turns.
    """
    said, key = limits.check_prompt(model, prompt, keep_bytes=None), secrets.token_hex(8)
    attention.install(model)
    lengths = tuple(P for P in lengths if P + LATER <= model.facts.max_positions)
    first = np.full((len(lengths), repeats), np.nan)
    later = np.full((len(lengths), repeats, LATER), np.nan)
    prompts = [list(islice(cycle(said), P)) for P in lengths]

    def snapshot(state: str) -> Waits:
        return Waits(key, lengths, first.copy(), later.copy(), model.facts, model.machine, state)

    for prompt_ids in prompts:
        _warm(model, prompt_ids, 1, run)
    for repeat in range(repeats):
        for turn in range(len(lengths)):
            if stop is not None and stop.is_set():
                yield snapshot("stopped")
                return
            j = (turn + repeat) % len(lengths)
            lane, prefix = Cached(model, run), list(prompts[j])
            for i in range(LATER + 1):
                with model.lock:  # others wait for one pass
                    step, _, _ = lane.step(prefix)
                (first[j] if i == 0 else later[j, repeat])[repeat if i == 0 else i - 1] = step.ms
                prefix.append(int(step.logits.argmax()))
            last = repeat == repeats - 1 and turn == len(lengths) - 1
            yield snapshot("done" if last else "running")
