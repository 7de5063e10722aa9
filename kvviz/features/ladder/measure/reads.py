"""Where K and V lie in memory, and what it costs to read them: one query over the K and V of every layer.

One tensor as concatenation leaves it, a view of the first T rows of a buffer with room for more, and blocks of BLOCK
positions in shuffled order, gathered through a table first. The K, V and queries are those of a real run; the
attention is PyTorch's. Runs without Streamlit.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from kvviz.core.refusal import Refusal
from kvviz.engine import attention, cache_api, failures
from kvviz.engine.feed import run_pass
from kvviz.features.ladder.record.ladder import Read, Reads
from kvviz.features.race.measure import prompt_ids
from kvviz.measure.clock import timed
from kvviz.models import memory
from kvviz.models.loading import LoadedModel
from kvviz.theory.memory import kv_bytes

BLOCK = 16  # positions
REPEATS = 25
PAUSE_S = 0.1  # between two results


class _Contiguous:
    """(1, Hkv, T, D), each head's rows one after the other, heads without a gap."""

    name = "contiguous"

    def __init__(self, rows: torch.Tensor, room: int) -> None:
        self.held = rows.contiguous().clone()

    def rows(self) -> torch.Tensor:
        return self.held


class _View(_Contiguous):
    """(1, Hkv, T, D) of a buffer (1, Hkv, room, D): a gap after each head's rows."""

    name = "view"

    def __init__(self, rows: torch.Tensor, room: int) -> None:
        buffer = rows.new_zeros(*rows.shape[:2], room, rows.shape[3])
        buffer[:, :, : rows.shape[2]] = rows
        self.held = buffer[:, :, : rows.shape[2]]


class _Blocks(_Contiguous):
    """A pool (Hkv, blocks, BLOCK, D) and the order in which to read its blocks; the last one is filled in part."""

    name = "blocks"

    def __init__(self, rows: torch.Tensor, room: int) -> None:
        _, Hkv, self.T, D = rows.shape
        blocks = -(-self.T // BLOCK)
        order = np.random.default_rng(0).permutation(blocks)  # the same in K and V of every layer: one table
        self.table = torch.tensor(order, device=rows.device)  # (blocks,)
        padded = rows.new_zeros(Hkv, blocks * BLOCK, D)
        padded[:, : self.T] = rows[0]
        self.pool = torch.empty_like(padded).view(Hkv, blocks, BLOCK, D)
        self.pool[:, self.table] = padded.view(Hkv, blocks, BLOCK, D)

    def rows(self) -> torch.Tensor:
        """(1, Hkv, T, D), gathered now."""
        found = self.pool.index_select(1, self.table)  # (Hkv, blocks, BLOCK, D)
        return found.flatten(1, 2)[None, :, : self.T]


LAYOUTS = (_Contiguous, _View, _Blocks)


@failures.ends_with_a_sentence
def reads(
    model: LoadedModel,
    prompt: str,
    T: int,
    *,
    room: int | None = None,
    repeats: int = REPEATS,
    stop: threading.Event | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Reads]:
    """Yields what was measured so far, about ten times a second; the last one is "done" or "stopped".

    K and V of the first T tokens of `prompt` (said again where it ends), in a buffer of `room` positions (None: twice
    T, as far as the model goes). Layouts take turns, the order turns with every round; nobody else's pass comes into a
    reading. Raises a Refusal from `limits` or "no_room_for_lanes" at the first `next`.
    """
    ids = prompt_ids(model, prompt, 1, T)
    room = max(T, room or min(2 * T, model.facts.max_positions))
    facts, key = model.facts, secrets.token_hex(8)
    _check_memory(model, T, room)
    attention.install(model)
    layers = _layers(model, ids)
    kept = {kind.name: _lay_out(layers, kind, room) for kind in LAYOUTS}
    asked = [(c.q.clone(), c.scale) for c in layers]  # (1, H, 1, D)
    del layers
    times: dict[str, list[float]] = {name: [] for name in kept}
    gathers: list[float] = []
    apart = float("nan")
    read = kv_bytes(facts.layers, facts.kv_heads, facts.head_dim, T, facts.value_bytes)
    whole = kv_bytes(facts.layers, facts.kv_heads, facts.head_dim, -(-T // BLOCK) * BLOCK, facts.value_bytes)

    def layout(name: str) -> Read:
        if name != _Blocks.name:
            return Read(name, np.array(times[name]), np.zeros(0), read, read)
        return Read(name, np.array(times[name]), np.array(gathers), read, read + 2 * whole)

    def snapshot(state: str) -> Reads:
        layouts = tuple(layout(name) for name in times)
        return Reads(key, facts, model.machine, T, room, BLOCK, repeats, layouts, apart, state)

    told = clock()
    for r in range(-1, repeats):  # the first round is the warm-up
        outs = {}
        for name in kept if r % 2 == 0 else reversed(kept):
            if stop is not None and stop.is_set():
                yield snapshot("stopped")
                return
            with model.lock:
                ms, outs[name] = _attend(model, kept[name], asked)
                if name == _Blocks.name and r >= 0:
                    gathers.append(_gather(model, kept[name]))
            if r >= 0:
                times[name].append(ms)
        if r < 0:
            apart = max(_apart(outs[_Contiguous.name], out) for out in outs.values())
        elif r == repeats - 1 or clock() - told >= PAUSE_S:
            told = clock()
            yield snapshot("done" if r == repeats - 1 else "running")


def _check_memory(model: LoadedModel, T: int, room: int) -> None:
    """Raises Refusal "no_room_for_lanes" if the layouts, and a run to take them from, do not fit at once."""
    facts, there = model.facts, memory.there(str(model.device))
    held = kv_bytes(facts.layers, facts.kv_heads, facts.head_dim, 5 * T + room, facts.value_bytes)
    needed = held + memory.MARGIN
    if there is not None and needed > there:
        said = {"needed": memory.gib(needed), "there": memory.gib(there), "device": str(model.device)}
        raise Refusal("no_room_for_lanes", positions=T, batch=1, **said)


def _layers(model: LoadedModel, ids: list[int]) -> list[attention.LayerCapture]:
    """Live q, K and V of each layer in the pass that feeds the last of `ids`."""
    cache = cache_api.new_cache()
    if len(ids) > 1:
        run_pass(model, ids[:-1], 0, cache, listen=False)
    return run_pass(model, ids[-1:], len(ids) - 1, cache, listen=True).layers


@torch.inference_mode()
def _lay_out(layers: list[attention.LayerCapture], kind: type, room: int) -> list:
    """K and V of each layer, laid out in that way."""
    return [[kind(t, room) for t in (c.k, c.v)] for c in layers]


@torch.inference_mode()
def _attend(model: LoadedModel, layers: list, asked: list) -> tuple[float, list[torch.Tensor]]:
    """Milliseconds of one query over all layers, what had to be gathered included, and what came out."""
    outs = []
    with timed(model.device) as watch:
        for (keys, values), (q, scale) in zip(layers, asked, strict=True):
            k, v = keys.rows(), values.rows()  # (1, Hkv, T, D)
            shared = q.shape[1] != k.shape[1]
            outs.append(scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=shared))  # (1, H, 1, D)
    return round(watch.ms, 6), outs


@torch.inference_mode()
def _gather(model: LoadedModel, layers: list) -> float:
    """Milliseconds of gathering alone."""
    with timed(model.device) as watch:
        for keys, values in layers:
            keys.rows(), values.rows()
    return round(watch.ms, 6)


def _apart(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    return max(float((a.float() - b.float()).abs().max()) for a, b in zip(one, other, strict=True))
