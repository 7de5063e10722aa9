"""Cells of a square, hatched or written in: what several figures draw in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.figures.frame import MONO
from kvviz.figures.palette import INK_CHANGES, Palette

CHARACTER = 6.6  # pixels of one in a number of 11 pixels, MONO


def outlines(
    stretches: Iterable[tuple[int, int, int]], half: float = 0.5
) -> tuple[list[float | None], list[float | None]]:
    """x and y of (start, end, row) stretches of cells, end excluded, as closed shapes of one trace; [None] if none."""
    x: list[float | None] = []
    y: list[float | None] = []
    for start, end, row in stretches:
        x += [start - 0.5, end - 0.5, end - 0.5, start - 0.5, start - 0.5, None]
        y += [row - half, row - half, row + half, row + half, row - half, None]
    return x or [None], y or [None]


def hatched(
    x: Sequence,
    y: Sequence,
    ground: str,
    line: str,
    name: str,
    *,
    shape: str = "/",
    hoverinfo: str = "skip",
    **trace: object,
) -> go.Scatter:
    """What lies inside closed outlines, hatched; named in the legend."""
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"width": 0, "color": line},
        fill="toself",
        fillcolor=ground,
        fillpattern={"shape": shape, "fgcolor": line, "bgcolor": ground, "size": 8, "solidity": 0.15},
        hoverinfo=hoverinfo,
        name=name,
        **trace,
    )


def hatch(
    cells: Iterable[tuple[int, int]], ground: str, line: str, name: str, *, shape: str = "/", **trace: object
) -> go.Scatter:
    """(column, row) cells as squares filled with hatching, one trace for all; named in the legend."""
    x, y = outlines((column, column + 1, row) for column, row in cells)
    return hatched(x, y, ground, line, name, shape=shape, **trace)


def runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """(start, end) of each stretch of True in a row."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def staircase(run: Run, T: int, layer: int, p: Palette, words: Mapping[str, str]) -> go.Scatter:
    """Everything the mask hides in the rows of all passes: a stretch of keys a row, joined where rows touch."""
    x, y = _hidden(run.P, T, run.model.windows[layer] if run.model.windows else 0)
    return hatched(x, y, p.masked, p.masked_hatch, words["hidden"])


@lru_cache(maxsize=64)
def _hidden(P: int, T: int, window: int) -> tuple[Sequence, Sequence]:
    """x and y of `outlines`, the same for all heads. As arrays: Plotly looks at a list's numbers one by one."""
    at = np.arange(T)

    def hidden(i: int) -> np.ndarray:
        return (at > i) & (at < P) & (i < P) | (at <= i - (window or T))

    x, y = outlines((start, end, i) for i in range(T) for start, end in runs(hidden(i)))
    return (x, y) if x == [None] else (np.array(x, dtype=np.float32), np.array(y, dtype=np.float32))


def cell_numbers(z: np.ndarray, weights: bool | None, p: Palette, cell: float) -> go.Scatter:
    """Each number inside its cell, `cell` pixels wide. `weights`: shares, dark cells from INK_CHANGES on; None: shares
    in the last row, and each row as exact as it has room for by itself. Nothing is written where it would run out."""
    shares = np.full(len(z), bool(weights)) if weights is not None else np.arange(len(z)) == len(z) - 1
    most = int((cell - 1) / CHARACTER)
    x, y, texts, inks = [], [], [], []
    for rows in [slice(None)] if weights is not None else [slice(i, i + 1) for i in range(len(z))]:
        at, columns = np.where(~np.isnan(z[rows]))
        values, share = z[rows][at, columns].tolist(), bool(shares[rows][0])
        if said := _said(values, share, most):
            x += columns.tolist()
            y += (at + (rows.start or 0)).tolist()
            texts += said
            inks += [p.on_high if share and v >= INK_CHANGES else p.on_low for v in values]
    return go.Scatter(
        x=x,
        y=y,
        mode="text",
        text=texts,
        textfont={"family": MONO, "size": 11, "color": inks},
        hoverinfo="skip",
        showlegend=False,
    )


def _said(values: Sequence[float], share: bool, most: int) -> list[str]:
    """Numbers with the same decimals, at most `most` characters each, none from 100 on; empty where they can't be."""
    if share:
        texts = [f"{v:.2f}".removeprefix("0")[: max(3, most)] for v in values]  # 1.00 may read 1.0
        return texts if most >= 3 else []
    large = any(abs(v) >= 99.95 for v in values)
    for decimals in (0,) if large else (1, 0):
        texts = [f"{round(v, decimals) + 0.0:.{decimals}f}" for v in values]  # no -0
        if all(len(each) <= most for each in texts):
            return texts
    return []
