"""Cells of a square, hatched or written in: what several figures draw in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.figures.frame import MONO
from kvviz.figures.palette import INK_CHANGES, Palette
from kvviz.records import Run


def hatch(
    cells: Iterable[tuple[int, int]], ground: str, line: str, name: str, *, shape: str = "/", **trace: object
) -> go.Scatter:
    """(column, row) cells as squares filled with hatching, one trace for all; named in the legend."""
    x: list[float | None] = []
    y: list[float | None] = []
    for column, row in cells:
        left, right, top, bottom = column - 0.5, column + 0.5, row - 0.5, row + 0.5
        x += [left, right, right, left, left, None]
        y += [top, top, bottom, bottom, top, None]
    return go.Scatter(
        x=x or [None],
        y=y or [None],
        mode="lines",
        line={"width": 0, "color": line},
        fill="toself",
        fillcolor=ground,
        fillpattern={"shape": shape, "fgcolor": line, "bgcolor": ground, "size": 8, "solidity": 0.15},
        hoverinfo="skip",
        name=name,
        **trace,
    )


def runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """(start, end) of each stretch of True in a row."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def staircase(run: Run, T: int, layer: int, p: Palette, words: Mapping[str, str]) -> go.Scatter:
    """Everything the mask hides in the rows of all passes: a stretch of keys a row, joined where rows touch."""
    at = np.arange(T)
    x: list[float | None] = []
    y: list[float | None] = []
    for i in range(T):
        seen = run.model.visible(layer, i)
        hidden = (at > i) & (at < run.P) & (i < run.P) | (at <= i - seen)
        for start, end in runs(hidden):
            x += [start - 0.5, end - 0.5, end - 0.5, start - 0.5, start - 0.5, None]
            y += [i - 0.5, i - 0.5, i + 0.5, i + 0.5, i - 0.5, None]
    return go.Scatter(
        x=x or [None],
        y=y or [None],
        mode="lines",
        line={"width": 0, "color": p.masked_hatch},
        fill="toself",
        fillcolor=p.masked,
        fillpattern={"shape": "/", "fgcolor": p.masked_hatch, "bgcolor": p.masked, "size": 8, "solidity": 0.15},
        hoverinfo="skip",
        name=words["hidden"],
    )


def cell_numbers(z: np.ndarray, weights: bool | None, p: Palette) -> go.Scatter:
    """Each number inside its cell. `weights`: shares, dark cells from INK_CHANGES on; None: shares in the last row."""
    rows, columns = np.where(~np.isnan(z))
    values = z[rows, columns]
    shares = np.full(len(values), bool(weights)) if weights is not None else rows == len(z) - 1
    return go.Scatter(
        x=columns,
        y=rows,
        mode="text",
        text=[f"{v:.2f}".removeprefix("0") if s else f"{v:.1f}" for v, s in zip(values, shares, strict=True)],
        textfont={
            "family": MONO,
            "size": 11,
            "color": [p.on_high if s and v >= INK_CHANGES else p.on_low for v, s in zip(values, shares, strict=True)],
        },
        hoverinfo="skip",
        showlegend=False,
    )
