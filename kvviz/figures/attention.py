"""Attention of one layer and head: the square, and the row of the query that is asking now."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.figures import text
from kvviz.figures.cells import hatched
from kvviz.figures.frame import MONO, QUARTERS, between, by_position, frame, over_positions
from kvviz.figures.palette import INK_CHANGES, attention_scale, palette

WRITTEN = 12  # positions up to which each cell carries its number
NAMED = 160  # positions up to which a hover names both tokens
CELLS = 512  # cells along one side of the picture; beyond, a cell is the largest of a block
OUTSIDE = 0.12  # height of the hatching under keys outside the window, where bars would stand
SIDE = 460  # pixels of the square; its margins are fixed, so that it is one and does not move between steps
MARGINS = {"l": 150, "r": 90, "t": 84, "b": 150}
TABLE_ROWS, TABLE_COLUMNS = 64, 128  # newest queries and keys in the table


def square(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """Queries down, keys across, all passes up to `step`.

    Prefill is one P × P block whose upper triangle the causal mask removed. Each later pass has one query, so its
    row is stitched below; keys right of it did not exist when it asked, and stay blank rather than masked. Keys
    outside the layer's window are masked in every row: they were stored when its query asked.
    """
    p = palette(dark)
    P, T = run.P, run.P + step
    weights = stitched(run, step, layer, head)  # (T, T)
    block = -(-T // CELLS)
    at, texts = text.ticks(run, T)
    axis = by_position(run, at, texts) | {"automargin": False}
    figure = frame(
        run,
        p,
        x={**axis, **between(-0.5, T - 0.5), "title": words["key_position"], "side": "bottom", "tickangle": -90},
        y={**axis, **between(T - 0.5, -0.5), "title": words["query_position"]},
        height=MARGINS["t"] + SIDE + MARGINS["b"],
        width=MARGINS["l"] + SIDE + MARGINS["r"],
        margin=MARGINS,
        showlegend=True,
    )
    figure.add_trace(_mask(P, p, words))
    figure.add_trace(_cells(run, weights, block, dark, words))
    if T <= WRITTEN:
        figure.add_trace(_numbers(weights, p))
    if _unseen(run, layer, T - 1):
        figure.add_trace(_outside([_unseen(run, layer, i) for i in range(T)], p, words))

    edge = {"xref": "x", "yref": "y", "fillcolor": "rgba(0,0,0,0)"}
    figure.add_shape(type="rect", x0=-0.5, x1=P - 0.5, y0=-0.5, y1=P - 0.5, line={"color": p.muted, "width": 1}, **edge)
    if step:  # the newest row: outlined, as new things are everywhere
        figure.add_shape(
            type="rect", x0=-0.5, x1=T - 0.5, y0=T - 1.5, y1=T - 0.5, line={"color": p.text, "width": 2}, **edge
        )
    figure.add_annotation(
        text=_origin(P, step, words),
        xref="paper",
        x=0,
        xanchor="left",
        xshift=10 - MARGINS["l"],
        yref="paper",
        y=1,
        yanchor="bottom",
        yshift=34,
        align="left",
        showarrow=False,
        font={"size": 13, "color": p.muted},
    )
    return figure


def stitched(run: Run, step: int, layer: int, head: int) -> np.ndarray:
    """(T, T) float32: row i is what the query at position i gave each key; NaN where there was no score to give."""
    T = run.P + step
    weights = np.full((T, T), np.nan, dtype=np.float32)
    for i in range(T):
        first = _unseen(run, layer, i)
        weights[i, first : i + 1] = run.attention_row(layer, head, i)[first:]
    return weights


def _unseen(run: Run, layer: int, position: int) -> int:
    """How many of the oldest keys the query at `position` does not see in that layer, stored as they are."""
    return position + 1 - run.model.visible(layer, position)


def _origin(P: int, step: int, words: Mapping[str, str]) -> str:
    """Which rows came from which pass. A square of a later step was never computed as one."""
    prefill = words["origin_prefill"].format(P=P, last=P - 1)
    if not step:
        return prefill
    one = "origin_stitched_one" if step == 1 else "origin_stitched"
    return prefill + "<br>" + words[one].format(first=P, last=P + step - 1, count=step)


def _mask(P: int, p, words: Mapping[str, str]) -> go.Scatter:
    """The staircase above the diagonal of prefill's block, hatched."""
    x, y = [0.5], [-0.5]
    for i in range(P - 1):
        x += [i + 0.5, i + 1.5]
        y += [i + 0.5, i + 0.5]
    x, y = [*x, P - 0.5, 0.5], [*y, -0.5, -0.5]
    return _hatched(x if P > 1 else [None], y if P > 1 else [None], p, words["masked"])


def _outside(unseen: list[int], p, words: Mapping[str, str]) -> go.Scatter:
    """The staircase of keys outside the window: the first `unseen[i]` of row i."""
    T = len(unseen)
    x, y = [-0.5], [T - 0.5]
    for i, n in enumerate(unseen):
        if n:
            x += [n - 1.5, n - 0.5]
            y += [i - 0.5, i - 0.5]
    x, y = [*x, unseen[-1] - 0.5, -0.5], [*y, T - 0.5, T - 0.5]
    return _hatched(x, y, p, words["masked_window"])


def _hatched(x: list, y: list, p, name: str) -> go.Scatter:
    return hatched(x, y, p.masked, p.masked_hatch, name, hoveron="fills", hoverinfo="name")


def _cells(run: Run, weights: np.ndarray, block: int, dark: bool, words: Mapping[str, str]) -> go.Heatmap:
    T, p = len(weights), palette(dark)
    names, hover = None, f"{words['query']} %{{y}} → {words['key']} %{{x}}: %{{z:.3f}}<extra></extra>"
    if block > 1:
        weights = _largest(weights, block)
        hover = words["largest"].format(block=block) + ": %{z:.3f}<extra></extra>"
    elif T <= NAMED:
        labels = [text.literal(t) for t in text.position_labels(run, T)]
        names = [[f"{labels[i]} → {labels[j]}" if j <= i else "" for j in range(T)] for i in range(T)]
        hover = f"{words['query']} → {words['key']}: %{{customdata}}<br>{words['weight']} %{{z:.3f}}<extra></extra>"
    return go.Heatmap(
        z=weights,
        x0=(block - 1) / 2,
        dx=block,
        y0=(block - 1) / 2,
        dy=block,
        zmin=0,
        zmax=1,
        customdata=names,
        hovertemplate=hover,
        hoverongaps=False,
        colorscale=attention_scale(dark),
        colorbar={
            "title": {"text": words["weight"], "side": "top", "font": {"color": p.muted, "size": 13}},
            "x": 1.03,
            "thickness": 12,
            "tickvals": [0, 0.2, 0.5, 1],
            "tickfont": {"color": p.muted, "size": 12},
            "outlinewidth": 0,
        },
        name=words["weight"],
        showlegend=False,
    )


def _largest(weights: np.ndarray, block: int) -> np.ndarray:
    """(ceil(T / block),) * 2: the largest weight of each block, NaN where a block holds none."""
    T = len(weights)
    padded = np.pad(weights, (0, -T % block), constant_values=np.nan)
    n = len(padded) // block
    filled = np.where(np.isnan(padded), -1, padded).reshape(n, block, n, block).max(axis=(1, 3))
    return np.where(filled < 0, np.nan, filled).astype(np.float32)


def _numbers(weights: np.ndarray, p) -> go.Scatter:
    """Each weight inside its cell, in the ink that is legible there."""
    rows, columns = np.where(~np.isnan(weights))
    values = weights[rows, columns]
    return go.Scatter(
        x=columns,
        y=rows,
        mode="text",
        text=[f"{v:.2f}".removeprefix("0") for v in values],
        textfont={
            "family": MONO,
            "size": 12,
            "color": [p.on_low if v < INK_CHANGES else p.on_high for v in values],
        },
        hoverinfo="skip",
        showlegend=False,
    )


def square_table(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str]) -> dict[str, list]:
    """The newest rows of the square: a row a query, a column a key. A cell is a weight, says that it was masked, or
    is empty where the key did not exist yet when the query asked."""
    P, T = run.P, run.P + step
    weights = stitched(run, step, layer, head)  # (T, T)
    queries, keys = range(max(0, T - TABLE_ROWS), T), range(max(0, T - TABLE_COLUMNS), T)
    labels = text.position_labels(run, T)

    def cell(i: int, j: int) -> str:
        if not np.isnan(weights[i, j]):
            return f"{weights[i, j]:.3f}"
        return words["masked_cell"] if j < P or j <= i else ""

    return {words["query"]: [labels[i] for i in queries]} | {labels[j]: [cell(i, j) for i in queries] for j in keys}


def square_values(run: Run, step: int, layer: int, head: int) -> dict[str, object]:
    P, T = run.P, run.P + step
    visible = sum(run.model.visible(layer, i) for i in range(P))  # P(P + 1) / 2 where no window hides more
    later = P * (P - 1) // 2
    case = "prefill" if step == 0 else "decode"
    return {
        "case": f"{case}_window" if _unseen(run, layer, T - 1) else case,
        "P": P,
        "T": T,
        "layer": layer,
        "head": head,
        "visible": text.count(visible),
        "cells": text.count(P * P),
        "masked": text.count(P * P - visible),
        "later": text.count(later),
        "outside": text.count(P * P - visible - later),
        "seen": text.count(run.model.visible(layer, T - 1)),
        "stitched": step,
        "token": text.token(run, run.ids[T - 1]),
        "next_token": text.token(run, run.ids[T]),
    }


def row(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """How the newest query spread its attention: one bar a key, 1 × T. In prefill, the last prompt token's query."""
    p = palette(dark)
    T = run.P + step
    weights = _row(run, step, layer, head)
    labels = [text.literal(t) for t in text.position_labels(run, T)]
    at, texts = text.ticks(run, T)
    unseen = _unseen(run, layer, T - 1)
    numbers = ["" if i < unseen else f"{w:.2f}".removeprefix("0") for i, w in enumerate(weights)]
    figure = frame(
        run,
        p,
        x=over_positions(run, at, texts, T, words["key_position"]),
        # A fixed scale: the same height means the same share at every step.
        y={**between(0, 1), "title": words["weight"], "tickvals": QUARTERS},
        height=300,
        showlegend=False,
    )
    figure.add_trace(
        go.Bar(
            x=np.arange(T),
            y=weights,
            customdata=labels,
            marker={
                "color": p.q,
                "line": {"color": p.text, "width": [0] * (T - 1) + [2]},
            },
            text=numbers if T <= 2 * WRITTEN else None,
            textposition="outside",
            textfont={"family": MONO, "size": 12, "color": p.text},
            cliponaxis=False,
            hovertemplate=f"{words['key']} %{{customdata}}<br>{words['weight']} %{{y:.3f}}<extra></extra>",
            name=words["weight"],
        )
    )
    if unseen:
        x, y = [-0.5, unseen - 0.5, unseen - 0.5, -0.5, -0.5], [0, 0, OUTSIDE, OUTSIDE, 0]
        figure.add_trace(_hatched(x, y, p, words["masked_window"]))
    if T > run.P:
        figure.add_shape(
            type="line",
            x0=run.P - 0.5,
            x1=run.P - 0.5,
            y0=0,
            y1=1,
            yref="paper",
            line={"color": p.muted, "width": 1, "dash": "dot"},
        )
        figure.add_annotation(
            x=run.P - 0.5,
            y=1,
            yref="paper",
            yanchor="bottom",
            xanchor="left",
            text=words["generated_from_here"],
            showarrow=False,
            font={"size": 12, "color": p.muted},
        )
    return figure


def _row(run: Run, step: int, layer: int, head: int) -> np.ndarray:
    """(T,) float32"""
    return run.attention_row(layer, head, run.P + step - 1).astype(np.float32)


def row_table(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str]) -> dict[str, list]:
    weights = _row(run, step, layer, head)
    T = len(weights)
    unseen = _unseen(run, layer, T - 1)
    return {
        words["position"]: list(range(T)),
        words["token"]: text.tokens(run, run.ids[:T]),
        words["origin"]: [words["prompt"] if i < run.P else words["generated"] for i in range(T)],
        words["weight"]: [words["masked_cell"] if i < unseen else f"{w:.3f}" for i, w in enumerate(weights)],
    }


def row_values(run: Run, step: int, layer: int, head: int) -> dict[str, object]:
    weights = _row(run, step, layer, head)
    top = int(weights.argmax())
    T = len(weights)
    unseen = _unseen(run, layer, T - 1)
    return {
        "case": "window" if unseen else "answer",
        "T": T,
        "reused": T - 1,
        "seen": T - unseen,
        "unseen": unseen,
        "layer": layer,
        "head": head,
        "token": text.token(run, run.ids[T - 1]),
        "top_position": top,
        "top_token": text.token(run, run.ids[top]),
        "top_share": text.percent(float(weights[top])),
    }
