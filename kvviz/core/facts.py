"""What ran, where, and how tokens were chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ModelFacts:
    """A loaded model as the learner meets it. Sizes are counts, `weight_bytes` is in bytes."""

    name: str  # catalogue name, or the name of the owner's folder
    architecture: str  # "GPT2LMHeadModel"
    layers: int  # L
    heads: int  # H, query heads
    kv_heads: int  # Hkv
    head_dim: int  # D
    width: int
    vocab_size: int
    positions: Literal["learned", "rotary"]
    trained_positions: int  # n_positions or max_position_embeddings
    max_positions: int  # how many kvviz lets the cache hold for this model
    parameters: int
    dtype: str  # "float32"
    value_bytes: int  # bytes of one cached value
    weight_bytes: int
    eos_id: int | None
    random_weights: bool = False  # made for timing, says nothing sensible
    attention_scale: float = 0.0  # what Q·K is multiplied by in every layer; left out, it is 1/√D
    windows: tuple[int, ...] = ()  # newest positions that a query sees in each layer, 0: all; empty: all in every one

    def __post_init__(self) -> None:
        if not self.attention_scale:
            object.__setattr__(self, "attention_scale", self.head_dim**-0.5)

    def visible(self, layer: int, position: int) -> int:
        """How many keys the query at `position` sees in that layer, its own included."""
        window = self.windows[layer] if self.windows else 0
        return min(position + 1, window) if window else position + 1

    @property
    def kv_bytes_per_token(self) -> int:
        """2 · L · Hkv · D · (bytes a value)."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.value_bytes


@dataclass(frozen=True)
class MachineFacts:
    """Where a run was measured."""

    device: str  # "cpu", "cuda:0"
    device_name: str
    threads: int
    python: str
    torch: str
    transformers: str
    system: str  # "Linux x86_64"


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. Temperature 0 is greedy and ignores the rest."""

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0
