"""What of a model decides the size of its KV cache: layers, KV heads, head size, windows, or MLA's latent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kvviz.core.facts import ModelFacts
from kvviz.core.refusal import Refusal
from kvviz.theory.memory import heads_a_gpu, packed_bytes, stored

MOST = {"layers": 1_000, "heads": 100_000, "kv_heads": 100_000, "head_dim": 100_000, "window": 10**9, "trained": 10**9}
MOST_POSITIONS, MOST_BATCH = 10**7, 10**5
GROUP = 64  # values that share a scale and a zero, 16 bits each, in int8 and int4


@dataclass(frozen=True)
class Format:
    """How a number is kept: `bits` each, and `extra_bits` for each `group` of them."""

    name: str
    bits: int
    group: int = 0
    extra_bits: int = 0

    def bytes(self, values: int) -> int:
        return packed_bytes(values, self.bits, self.group, self.extra_bits)


FORMATS = {
    "fp32": Format("fp32", 32),
    "half": Format("bf16 / fp16", 16),
    "fp8": Format("fp8", 8),  # one scale a tensor: not counted
    "int8": Format(f"int8, g{GROUP}", 8, GROUP, 32),
    "int4": Format(f"int4, g{GROUP}", 4, GROUP, 32),
}


@dataclass(frozen=True)
class Source:
    """Where numbers come from: an address, and what is read there."""

    url: str
    what: str


@dataclass(frozen=True)
class Architecture:
    """Counts; `parameters` of the whole model, None when unknown. `window` 0: every layer keeps all positions."""

    name: str
    layers: int  # L
    heads: int  # H
    kv_heads: int  # Hkv
    head_dim: int  # D
    trained: int = 0  # positions it was made for, 0: unknown
    parameters: int | None = None
    window: int = 0  # newest positions that a layer with a window keeps
    windowed: int = 0  # layers that have it
    latent: int = 0  # MLA: values a layer and position, instead of 2 · Hkv · D
    experts: bool = False  # a pass reads some of the weights only
    estimated: bool = False  # `parameters` by formula
    source: Source | None = None

    @property
    def values(self) -> int:
        """Values that a layer keeps of a position: 2 · Hkv · D, or MLA's latent with its rotary part."""
        return self.latent or 2 * self.kv_heads * self.head_dim

    def token_bytes(self, kept: Format) -> int:
        """Bytes that one position takes in all layers."""
        return self.layers * kept.bytes(self.values)

    def cache_bytes(
        self, positions: int, kept: Format, batch: int = 1, *, gpus: int = 1, windows: bool = True, tail: int = 0
    ) -> int:
        """Bytes of the cache, on each of `gpus`.

        `windows` False: as if every layer kept everything. `tail`: newest positions that stay in 16 bits.
        """
        values = self.values if self.latent or gpus == 1 else 2 * heads_a_gpu(self.kv_heads, gpus) * self.head_dim
        total = 0
        for layers, window in ((self.layers - self.windowed, 0), (self.windowed, self.window if windows else 0)):
            held = stored(positions, window)
            recent = min(tail, held)
            total += layers * ((held - recent) * kept.bytes(values) + recent * FORMATS["half"].bytes(values))
        return total * batch

    def weight_bytes(self, kept: Format, gpus: int = 1) -> int | None:
        """Bytes of the weights on each of `gpus`, as if all were shared out evenly; None when unknown."""
        return None if self.parameters is None else -(-kept.bytes(self.parameters) // gpus)

    def past(self, positions: int) -> bool:
        """So many positions are more than it was made for."""
        return 0 < self.trained < positions

    def with_kv_heads(self, kv_heads: int) -> Architecture:
        """The same model with so many KV heads, and no latent."""
        return dataclasses.replace(self, kv_heads=kv_heads, latent=0)

    def with_latent(self) -> Architecture:
        """The same model with MLA in the proportions of DeepSeek-V2's paper (arXiv 2405.04434, table 1): 4 · D for K
        and V together and D / 2 for the rotary part, 9/2 · D values a layer and position. Its own latent if it has one.
        """
        return self if self.latent else dataclasses.replace(self, latent=9 * self.head_dim // 2)


def written(value: object) -> str:
    """A number as sentences have it, with separators; one too long for a line is cut."""
    text = f"{value:,}" if type(value) is int else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def checked(model: Architecture) -> Architecture:
    """The same, if there can be such a model. Raises Refusal "size_not_possible" {part, value, most} or
    "size_groups" {heads, kv_heads}."""
    for part, most in MOST.items():
        value = getattr(model, part)
        least = 0 if part in ("window", "trained") else 1
        if type(value) is not int or not least <= value <= most:
            raise Refusal("size_not_possible", part=part, value=written(value), most=most)
    if model.heads % model.kv_heads:
        raise Refusal("size_groups", heads=model.heads, kv_heads=model.kv_heads)
    return model


def checked_request(positions: int, batch: int = 1) -> None:
    """Raises Refusal "size_not_possible" for a length or a batch that nobody can mean."""
    for part, value, most in (("positions", positions, MOST_POSITIONS), ("batch", batch, MOST_BATCH)):
        if type(value) is not int or not 1 <= value <= most:
            raise Refusal("size_not_possible", part=part, value=written(value), most=most)


def of_facts(facts: ModelFacts) -> Architecture:
    """A loaded model's own architecture. What a run of it holds here is counted without windows, as its cache is."""
    return Architecture(
        facts.name, facts.layers, facts.heads, facts.kv_heads, facts.head_dim, facts.trained_positions, facts.parameters
    )
