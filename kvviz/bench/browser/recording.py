"""A run to look at: GPT-2 small's size with random weights, recorded by the engine, in a file that the app opens."""

from __future__ import annotations

from pathlib import Path

from kvviz.bench.passes import text_of
from kvviz.core import storage
from kvviz.engine.recording import record
from kvviz.models.loading import random_gpt2_small


def twelve(folder: Path, *, prompt: int = 64, new: int = 65) -> Path:
    """12 layers × 12 heads; after `new` passes the cache holds prompt + new − 1 positions."""
    model = random_gpt2_small(device="cpu", dtype="float32")
    file = folder / "twelve.npz"
    storage.save(record(model, text_of(model, prompt), new, compare=False), file)
    return file
