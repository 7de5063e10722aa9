"""The only module that touches transformers' cache classes and the argument that carries them.

Checked on transformers 5.17 (`past_key_values=`) and 5.24 (`cache=`; the old name warns).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache, StaticCache

from kvviz.core.facts import ModelFacts

Cache = DynamicCache  # the type, for annotations elsewhere


@functools.cache
def argument_name(module_class: type) -> str:
    """How this model's forward calls the cache. A name it only swallows in **kwargs would be ignored."""
    parameters = inspect.signature(module_class.forward).parameters
    for name in ("cache", "past_key_values"):
        if name in parameters:
            return name
    raise TypeError(f"{module_class.__name__}.forward takes no cache")


def new_cache() -> Cache:
    """An empty cache that keeps every position in every layer (no sliding layers)."""
    return DynamicCache()


def preallocated(module: torch.nn.Module, positions: int) -> StaticCache:
    """An empty cache with room for so many positions, allocated with the first pass. It never grows, and attention
    reads all of its rows, the empty ones under the mask."""
    return StaticCache(config=module.config, max_cache_len=positions)


def allocate(cache: StaticCache, facts: ModelFacts, batch: int, dtype: torch.dtype, device: torch.device) -> None:
    """Make the buffers of a preallocated cache now, (B, Hkv, positions, D) each, not with the first pass."""
    cache.early_initialization(batch, facts.kv_heads, facts.head_dim, dtype, device)


def empty(cache: StaticCache) -> None:
    """Its buffers stay where they are and hold no position any more."""
    cache.reset()
    if length(cache):  # what `reset` leaves has changed from version to version
        raise RuntimeError(f"a cache that was emptied holds {length(cache)} positions")


def forward(
    module: torch.nn.Module,
    ids: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor | dict[str, torch.Tensor] | None,
    cache: Cache | StaticCache | None,
    keep: int = 1,
    *,
    call: Callable[..., Any] | None = None,
) -> torch.Tensor:
    """Logits of the last `keep` rows (0: all). ids, positions (B, Tq); mask (B, 1, Tq, T) -> (B, keep, V).

    Without a mask transformers makes its own. A model that mixes kinds of layers takes a mask for each kind, by
    its name. The cache, if any, grows in place. Without one nothing is kept. `call`: the module's own call, compiled.
    """
    carried = {} if cache is None else {argument_name(type(module)): cache}
    out = (call or module)(
        input_ids=ids,
        position_ids=positions,
        attention_mask=mask,
        use_cache=cache is not None,
        logits_to_keep=keep,
        **carried,
    )
    return out.logits


def length(cache: Cache) -> int:
    """Positions stored, as a Python int taken now. Raises RuntimeError if layers disagree."""
    lengths = {int(layer.get_seq_length()) for layer in cache.layers}
    if len(lengths) > 1:
        raise RuntimeError(f"layers of different lengths: {sorted(lengths)}")
    return lengths.pop() if lengths else 0


def layer(cache: Cache, index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of a layer, live: (1, Hkv, T, D) each. Copy before keeping."""
    held = cache.layers[index]
    return held.keys, held.values


def tensors(cache: Cache) -> list[torch.Tensor]:
    """Every K and V tensor the cache holds, live."""
    return [t for i in range(len(cache.layers)) for t in layer(cache, i) if t is not None and t.numel()]


def shape(cache: Cache) -> tuple[int, int, int, int, int, int]:
    """(L, 2, B, Hkv, T, D), read from the tensors."""
    held = tensors(cache)
    shapes = {tuple(t.shape) for t in held}
    if len(shapes) != 1:
        raise RuntimeError(f"tensors of different shapes: {sorted(shapes)}")
    B, Hkv, T, D = shapes.pop()
    return len(held) // 2, 2, B, Hkv, T, D


def nbytes(cache: Cache) -> int:
    """Bytes of the storages behind the tensors, each storage once: what is really held."""
    storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in tensors(cache))}
    return sum(storages.values())


def repeated(cache: Cache, sequences: int) -> Cache:
    """A new cache for a batch: what `cache` holds of its one sequence, copied for each of them."""
    batch = new_cache()
    for i in range(len(cache.layers)):
        k, v = layer(cache, i)
        batch.update(k.repeat(sequences, 1, 1, 1), v.repeat(sequences, 1, 1, 1), i)  # (B, Hkv, T, D)
    return batch


def cut_back(cache: Cache, to: int) -> None:
    """Every layer back to its first `to` positions, in storage of just that size; layers may differ before.

    Done on the tensors: what `crop` means has changed from version to version.
    """
    for held in cache.layers:
        if int(held.get_seq_length()) > to:
            held.keys = held.keys[:, :, :to].clone()
            held.values = held.values[:, :, :to].clone()


def keep(cache: Cache, indices: list[int]) -> None:
    """Of every layer only these places, in this order, in storage of just that size. What is dropped is gone."""
    for held in cache.layers:
        held.keys = held.keys[:, :, indices].clone()
        held.values = held.values[:, :, indices].clone()
