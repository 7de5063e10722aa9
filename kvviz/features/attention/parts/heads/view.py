"""What the overview of all heads is sent: a header and one picture a head, as bytes. No Streamlit.

uint32 length of the header (little-endian), the header as UTF-8 JSON, then L · H tiles of n × n bytes, layer by
layer. A byte is a weight, 0 to 250 for 0 to 1; 251 is a key the mask hides, 255 a key that did not exist when the row
asked. Where a head has more than n rows, each byte is the largest weight of a block.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from kvviz.core import Run
from kvviz.figures.palette import SCALE, themes

TILE = 64  # bytes along a side, at most: more than the pixels a tile has on a laptop
BUDGET = 1_000_000  # bytes of all tiles
ONE, MASKED, NOTHING = 250, 251, 255


def side(run: Run, step: int) -> tuple[int, int]:
    """(n, block): bytes along a tile's side, and how many rows and keys each stands for."""
    T = run.P + step
    most = max(8, min(TILE, int((BUDGET / (run.model.layers * run.model.heads)) ** 0.5)))
    block = -(-T // most)
    return -(-T // block), block


def tiles(run: Run, step: int) -> np.ndarray:
    """(L, H, n, n) uint8: the attention of every head, rows of all passes up to `step`."""
    m, T = run.model, run.P + step
    n, block = side(run, step)
    small = np.zeros((m.layers, m.heads, n * block, n * block), dtype=np.uint8)
    for record in run.steps[: step + 1]:
        first = int(record.positions[0])
        rows, width = len(record.positions), record.length_after
        weights = record.attention.astype(np.float32) * ONE + 0.5
        small[:, :, first : first + rows, :width] = weights.astype(np.uint8)
    pooled = np.maximum.reduce([small[:, :, i::block] for i in range(block)])
    pooled = np.maximum.reduce([pooled[..., i::block] for i in range(block)])  # (L, H, n, n)
    at = np.arange(T)
    there = np.zeros((n * block, n * block), dtype=bool)
    there[:T, :T] = (at[None] <= at[:, None]) | ((at[None] < run.P) & (at[:, None] < run.P))
    any_there = there.reshape(n, block, n, block).any(axis=(1, 3))
    for layer in range(m.layers):
        seen = np.array([m.visible(layer, i) for i in range(T)])
        visible = np.zeros_like(there)
        visible[:T, :T] = (at[None] <= at[:, None]) & (at[None] > at[:, None] - seen[:, None])
        any_visible = visible.reshape(n, block, n, block).any(axis=(1, 3))
        pooled[layer][:, ~any_visible] = MASKED
        pooled[layer][:, ~any_there] = NOTHING
    return pooled


def view(
    run: Run,
    step: int,
    layer: int,
    head: int,
    picture: bytes,
    named: str,
    *,
    order: Sequence[tuple[int, int]] | None,
    notes: Sequence[Sequence[str]],
    marks: Sequence[Sequence[str]] | None,
    words: Mapping[str, str],
    key: str,
    heard: int = 0,
    coming: int = 0,
) -> bytes:
    """`order`: heads by rank, else by layer and head. `notes` (L, H) is each head's line on hover, `marks` its number
    in the picture. `picture` are the bytes of `tiles`, or none if the browser was sent those of the name `named`
    before. `key` changes when Python asks for another place; while it does
    not, the browser keeps its own, and what is sent stays the same. `heard` is how many of the browser's moves Python
    knew of when it asked: to a place asked for before its last move the browser does not go. `coming` is the last
    step there will be, while the run still grows: the browser may ask for it now."""
    m = run.model
    n, block = side(run, step)
    header = {
        "picture": named,
        "run": f"{run.key}|{run.source}", "L": m.layers, "H": m.heads, "n": n, "block": block, "T": run.P + step,
        "P": run.P, "step": step, "last": max(len(run.steps) - 1, coming), "layer": layer, "head": head,
        "key": key, "heard": heard,
        "order": [list(pair) for pair in order] if order else None, "notes": notes, "marks": marks,
        "stops": SCALE, "themes": {name: _colours(theme) for name, theme in themes().items()},
        "words": dict(words), "one": ONE, "masked": MASKED, "nothing": NOTHING,
    }  # fmt: skip
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return struct.pack("<I", len(raw)) + raw + picture


def _colours(theme: Mapping[str, str]) -> dict[str, object]:
    """What the picture needs of a theme."""
    named = {name: theme[name] for name in ("background", "text", "muted", "line", "masked", "q")}
    return named | {"scale": [theme[f"scale_{i}"] for i in range(len(SCALE))]}
