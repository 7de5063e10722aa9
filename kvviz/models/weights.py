"""A model's weights as files: which there are, and how many values they hold. Reads headers only."""

from __future__ import annotations

import json
import struct
from pathlib import Path

LONGEST_HEADER = 100 * 2**20  # of a safetensors file, as the format has it
FLOATS = {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, every shard of them; empty when one is missing."""
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return []
    shards = [folder / str(name) for name in sorted(names, key=str)]
    return shards if all(s.parent == folder and s.is_file() for s in shards) else []  # none from elsewhere


def parameters(folder: Path) -> int:
    """Values in the weight files, counted in their headers. Raises OSError or ValueError for a damaged file."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shapes: dict[str, list[int]] = {}
    for file in weight_files(folder):
        shapes |= {n: t["shape"] for n, t in _header(file).items() if n != "__metadata__" and t["dtype"] in FLOATS}
    if config.get("tie_word_embeddings", config.get("model_type") == "gpt2"):
        shapes.pop("lm_head.weight", None)  # stored though it is the embedding matrix
    return sum(_product(s) for s in shapes.values() if not (len(s) == 4 and s[:2] == [1, 1]))  # no masks of old files


def _header(file: Path) -> dict:
    """A safetensors file begins with 8 bytes of length and so much JSON: names, dtypes, shapes."""
    with file.open("rb") as f:
        (length,) = struct.unpack("<Q", f.read(8).ljust(8, b"\0"))
        if length > LONGEST_HEADER:
            raise ValueError(f"a header of {length} bytes")
        return json.loads(f.read(length))


def _product(shape: list[int]) -> int:
    n = 1
    for size in shape:
        n *= size
    return n
