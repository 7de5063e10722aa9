"""What fits into a memory: the largest batch or length, and the blocks of a serving engine. Sizes are in bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

GIB = 2**30


def largest(taken: Callable[[int], int], room: int, most: int) -> int:
    """The largest n of 0 … `most` with taken(n) <= room, for a `taken` that never falls. 0: not even one."""
    return max(0, bisect_right(range(most + 1), room, key=taken) - 1)


def left_for_cache(memory: float, utilisation: float, weights: float, activations: float, other: float) -> float:
    """What a serving engine has for K and V: utilisation · memory − weights − peak activations − other.

    As vLLM's profile of its first pass works it out (github.com/vllm-project/vllm, issue 10517). Any unit, the same
    for all. Negative: the engine can't start.
    """
    return utilisation * memory - weights - activations - other


def blocks(room: float, block_bytes: int) -> int:
    """Whole blocks in `room`; none in a negative one. `room` counts to the nearest byte: it may come from decimals."""
    return max(0, round(room) // block_bytes)


def blocks_of(tokens: int, block: int) -> int:
    """Blocks that a request of so many tokens takes: its last one may be partly empty."""
    return -(-tokens // block)


def at_once(count: int, block: int, tokens: int) -> float:
    """How many requests of `tokens` the blocks hold by their tokens, as vLLM's "maximum concurrency" has it."""
    return count * block / tokens


def read_ms(weights: int, cache: int, bandwidth: float) -> float:
    """Milliseconds in which `bandwidth` bytes a second read weights and cache once: no decode pass can be quicker."""
    return 1000 * (weights + cache) / bandwidth
