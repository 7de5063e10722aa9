"""The stages of attention in one layer and head: Q·K, scaled, masked, softmax, times V; for all rows or for one.

Scores are computed from the record's own q and K (float16 copies, after any rotation); the weights are the record's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.figures import text
from kvviz.figures.attention import CELLS, WRITTEN, stitched
from kvviz.figures.cells import cell_numbers, hatch, staircase
from kvviz.figures.frame import between, by_position, frame
from kvviz.figures.palette import attention_scale, palette

Stage = Literal["scores", "scaled", "masked", "softmax", "values"]
STAGES: tuple[Stage, ...] = ("scores", "scaled", "masked", "softmax", "values")
SIDE, MARGINS = 316, {"l": 108, "r": 84, "t": 36, "b": 108}
ROW = 300  # pixels that one query's keys and their sum have, side by side, at 1440 × 900
TICKS = 22  # tokens named along a side: 14 pixels each
TABLE_ROWS, TABLE_COLUMNS = 48, 64  # newest queries and keys in the table


@dataclass(frozen=True)
class Head:
    """One head's arrays up to a step. Row i belongs to the query at position i; NaN where nothing was computed."""

    q: np.ndarray  # (T, D) float32
    k: np.ndarray  # (T, D)
    v: np.ndarray  # (T, D)
    scores: np.ndarray  # (T, T): q · k; prefill's whole square, and of later rows the keys that were there
    scaled: np.ndarray  # (T, T)
    masked: np.ndarray  # (T, T): NaN where the mask hides
    softmax: np.ndarray  # (T, T): the record's weights
    values: np.ndarray  # (T, D): weights · V

    @property
    def largest_gap(self) -> float:
        """max |softmax(masked) - recorded weight|: rounding of the float16 copies, if the stages are right."""
        e = np.exp(self.masked - np.nanmax(self.masked, axis=1, keepdims=True))
        again = e / np.nansum(e, axis=1, keepdims=True)
        return float(np.nanmax(np.abs(again - self.softmax)))


def head(run: Run, step: int, layer: int, head: int) -> Head:
    m, T = run.model, run.P + step
    kv = head * m.kv_heads // m.heads
    q = run.queries(layer, head, step).astype(np.float32)
    k, v = (rows(layer, kv, step).astype(np.float32) for rows in (run.keys, run.values))
    at = np.arange(T)
    there = (at[None] <= at[:, None]) | ((at[None] < run.P) & (at[:, None] < run.P))  # (T, T), queries down
    scores = np.where(there, q @ k.T, np.nan).astype(np.float32)
    scaled = scores * np.float32(m.attention_scale)
    weights = stitched(run, step, layer, head)
    masked = np.where(np.isnan(weights), np.nan, scaled).astype(np.float32)
    return Head(q, k, v, scores, scaled, masked, weights, np.nan_to_num(weights) @ v)


def stage(run: Run, step: int, layer: int, head_: int, name: Stage, *, words: Mapping[str, str], dark: bool):
    """One stage for all queries: queries down, keys across (of the last stage: dimensions of V). A plotly Figure.

    Rows below prefill's square are one query each, of a later pass; the newest is outlined.
    """
    p = palette(dark)
    arrays = head(run, step, layer, head_)
    z = getattr(arrays, name)  # (T, T) or (T, D)
    T, columns = z.shape
    block = -(-T // CELLS)
    axis = by_position(run, *text.ticks(run, T, TICKS)) | {"automargin": False}
    across = {**axis, "title": words["key_position"]} if name != "values" else {"title": words["dimension"]}
    wide, tall = between(-0.5, columns - 0.5), between(T - 0.5, -0.5)
    edge = {"type": "rect", "xref": "x", "yref": "y", "x0": -0.5, "fillcolor": "rgba(0,0,0,0)"}
    shapes = []
    if name != "values":
        shapes.append(
            {"x1": run.P - 0.5, "y0": -0.5, "y1": run.P - 0.5, "line": {"color": p.muted, "width": 1}, **edge}
        )
    if step:
        shapes.append(
            {"x1": columns - 0.5, "y0": T - 1.5, "y1": T - 0.5, "line": {"color": p.text, "width": 2}, **edge}
        )
    figure = frame(
        run,
        p,
        x={**wide, "tickangle": -90 if name != "values" else 0, "showgrid": False, **across},
        y={**axis, **tall, "title": words["query_position"]},
        height=MARGINS["t"] + SIDE + MARGINS["b"],
        width=MARGINS["l"] + SIDE + MARGINS["r"],
        margin=MARGINS,
        showlegend=True,
        shapes=shapes,
        xaxis2=_named(run, columns if name != "values" else 0, "x", wide),
        yaxis2=_named(run, T, "y", tall),
    )
    figure.add_trace(staircase(run, T if name in ("masked", "softmax") else 0, layer, p, words))
    figure.add_trace(_heatmap(run, z, name, block if name != "values" else 1, dark, words))
    if T <= WRITTEN and columns <= WRITTEN:
        figure.add_trace(cell_numbers(z, name == "softmax", p, SIDE / columns))
    return figure


def _named(run: Run, count: int, axis: str, limits: dict) -> dict:
    """An axis over the visible one that shows nothing, but lets a hover name every position: a hover takes an axis's
    own texts, and names written into T × T cells would make the figure three times as large and slow."""
    texts = np.array([text.literal(t) for t in text.position_labels(run, count)], dtype=object)
    named = {"tickmode": "array", "tickvals": np.arange(count), "ticktext": texts}
    return {**(named if count else {}), **limits, "overlaying": axis, "matches": axis, "showticklabels": False,
            "ticks": "", "showgrid": False, "zeroline": False, "showline": False}  # fmt: skip


def _heatmap(run: Run, z: np.ndarray, name: Stage, block: int, dark: bool, words: Mapping[str, str]) -> go.Heatmap:
    T = len(z)
    if name == "values":
        hover = f"{words['query']} %{{y}}, {words['dimension']} %{{x}}: %{{z:.3g}}<extra></extra>"
    elif block > 1:
        filled = np.where(np.isnan(z), -np.inf, z)
        side = -(-T // block) * block
        grown = np.full((side, side), -np.inf, dtype=np.float32)
        grown[:T, :T] = filled
        pooled = grown.reshape(side // block, block, side // block, block).max(axis=(1, 3))
        z = np.where(np.isinf(pooled), np.nan, pooled).astype(np.float32)
        hover = words["largest"].format(block=block) + ": %{z:.3f}<extra></extra>"
    else:
        hover = f"{words['query']} %{{y}} → {words['key']} %{{x}}<br>{words[name]} %{{z:.3f}}<extra></extra>"
    return go.Heatmap(
        z=z.astype(np.float32),
        x0=(block - 1) / 2,
        dx=block,
        y0=(block - 1) / 2,
        dy=block,
        **colours(z, name, dark),
        xaxis="x2",
        yaxis="y2",
        hovertemplate=hover,
        hoverongaps=False,
        colorbar=_bar(dark, words[name], [0, 0.2, 0.5, 1] if name == "softmax" else None),
        name=words[name],
        showlegend=False,
    )


def colours(z: np.ndarray, name: Stage, dark: bool) -> dict:
    """Range and scale of a stage: weights from 0 to 1; scores from the smallest shown to the largest; V around 0."""
    p = palette(dark)
    if name == "softmax":
        return {"zmin": 0, "zmax": 1, "colorscale": attention_scale(dark)}
    if name == "values":
        most = float(np.nanmax(np.abs(z))) if z.size else 1.0
        scale = [(0.0, p.thrown), (0.5, p.background), (1.0, p.v)]
        return {"zmin": -most, "zmax": most, "colorscale": scale}
    low, high = float(np.nanmin(z)), float(np.nanmax(z))
    steps = (p.scale_0, p.scale_1, p.scale_2, p.scale_3)
    scale = [(i / (len(steps) - 1), c) for i, c in enumerate(steps)]
    return {"zmin": low, "zmax": high if high > low else low + 1, "colorscale": scale}


def _bar(dark: bool, title: str, ticks: list | None) -> dict:
    p = palette(dark)
    return {
        "title": {"text": title, "side": "top", "font": {"color": p.muted, "size": 13}},
        "x": 1.03,
        "thickness": 12,
        "tickvals": ticks,
        "nticks": 5,
        "tickfont": {"color": p.muted, "size": 12},
        "outlinewidth": 0,
    }


def stage_table(run: Run, step: int, layer: int, head_: int, name: Stage, *, words: Mapping[str, str]) -> dict:
    """The newest rows of the stage: a row a query, a column a key (or a dimension); blank where there is no number."""
    z = getattr(head(run, step, layer, head_), name)[-TABLE_ROWS:]
    labels = text.position_labels(run, run.P + step)
    across = labels if name != "values" else [str(i) for i in range(z.shape[1])]
    columns: dict[str, list] = {words["query"]: labels[-len(z) :]}
    for label, column in list(zip(across, z.T, strict=True))[-TABLE_COLUMNS:]:
        columns[label] = np.round(column.astype(np.float64), 3).tolist()  # NaN reads as a blank
    return columns


def row_stages(run: Run, step: int, layer: int, head_: int, query: int, *, words: Mapping[str, str], dark: bool):
    """All stages of one query, one above the other, over the same keys; below, each key's share of V and their sum.

    The lowest block is weight × V: a column a key, a row a dimension; the column at its right is the sum, which is
    what this head hands on.
    """
    p = palette(dark)
    arrays = head(run, step, layer, head_)
    T, D = arrays.v.shape
    at, texts = text.ticks(run, T, TICKS)
    rows = ("scores", "scaled", "masked", "softmax")
    axis = by_position(run, at, texts)
    figure = frame(
        run,
        p,
        x={**axis, **between(-0.5, T + 1.5), "title": words["key_position"], "tickangle": -90, "anchor": "y2",
           "tickvals": [*at, T + 1], "ticktext": [*texts, words["sum"]]},
        y={**between(3.5, -0.5), "domain": [0.62, 1], "tickmode": "array", "tickvals": [0, 1, 2, 3],
           "ticktext": [words[r] for r in rows], "showgrid": False},
        height=MARGINS["t"] + SIDE + MARGINS["b"],
        margin={**MARGINS, "r": 24},
        showlegend=True,
        yaxis2={**between(D - 0.5, -0.5), "domain": [0, 0.58], "title": {"text": words["weight_times_v"],
                "font": {"color": p.v_text, "size": 13}}, "tickfont": {"color": p.muted, "size": 12},
                "showgrid": False, "zeroline": False, "automargin": True},
    )  # fmt: skip
    labels = [text.literal(t) for t in text.position_labels(run, T)]
    hidden = np.isnan(arrays.softmax[query]) & ~np.isnan(arrays.scores[query])  # keys that came later are blank
    missing = np.flatnonzero(hidden).tolist()
    if missing:
        figure.add_trace(hatch([(j, y) for j in missing for y in (2, 3)], p.masked, p.masked_hatch, words["hidden"]))
    for y, name in enumerate(rows):
        z = getattr(arrays, name)[query]
        figure.add_trace(
            go.Heatmap(
                z=z[None].astype(np.float32),
                x0=0,
                dx=1,
                y=[y],
                customdata=[labels],
                hovertemplate=f"%{{customdata}}<br>{words[name]} %{{z:.3f}}<extra></extra>",
                hoverongaps=False,
                showscale=False,
                ygap=3,
                name=words[name],
                **colours(z, name, dark),
            )
        )
    weights = np.nan_to_num(arrays.softmax[query])
    parts = (weights[:, None] * arrays.v).T  # (D, T)
    total = arrays.values[query]
    both = np.concatenate([parts, np.full((D, 1), np.nan), total[:, None]], axis=1)
    figure.add_trace(
        go.Heatmap(
            z=both.astype(np.float32),
            x0=0,
            dx=1,
            yaxis="y2",
            hovertemplate=f"{words['dimension']} %{{y}}: %{{z:.3f}}<extra></extra>",
            hoverongaps=False,
            showscale=False,
            name=words["weight_times_v"],
            **colours(both, "values", dark),
        )
    )
    if T <= WRITTEN:
        stack = np.stack([getattr(arrays, name)[query] for name in rows])
        figure.add_trace(cell_numbers(stack, None, p, ROW / (T + 2)))
    edge = {"type": "rect", "xref": "x", "fillcolor": "rgba(0,0,0,0)", "line": {"color": p.text, "width": 2}}
    figure.add_shape(x0=T + 0.5, x1=T + 1.5, y0=-0.5, y1=D - 0.5, yref="y2", **edge)
    return figure


def row_stages_table(run: Run, step: int, layer: int, head_: int, query: int, *, words: Mapping[str, str]) -> dict:
    arrays = head(run, step, layer, head_)

    def numbers(row: np.ndarray) -> list:
        return [None if np.isnan(x) else round(float(x), 3) for x in row]

    return {words["key"]: text.position_labels(run, len(arrays.k))} | {
        words[name]: numbers(getattr(arrays, name)[query]) for name in ("scores", "scaled", "masked", "softmax")
    }


def stage_values(run: Run, step: int, layer: int, head_: int, query: int | None = None) -> dict[str, object]:
    """What sentences about the stages may name; the query is the newest one while none is given."""
    arrays = head(run, step, layer, head_)
    T = len(arrays.k)
    query = T - 1 if query is None else query
    weights = arrays.softmax[query]
    top = int(np.nanargmax(weights))
    seen = int((~np.isnan(weights)).sum())
    scale = run.model.attention_scale
    return {
        "case": "prefill" if step == 0 else "decode",
        "layer": layer,
        "head": head_,
        "T": text.count(T),
        "P": text.count(run.P),
        "D": run.model.head_dim,
        "query": query,
        "token": text.token(run, run.ids[query]),
        "seen": text.count(seen),
        "hidden": text.count(int((~np.isnan(arrays.scores[query])).sum()) - seen),
        "stitched": step,
        "scale": f"{scale:.4g}",
        "top_position": top,
        "top_token": text.token(run, run.ids[top]),
        "top_share": text.percent(float(weights[top])),
        "top_score": f"{arrays.scores[query, top]:.2f}",
        "top_scaled": f"{arrays.scaled[query, top]:.2f}",
        "low": f"{np.nanmin(arrays.scores):.1f}",
        "high": f"{np.nanmax(arrays.scores):.1f}",
        "visible": text.count(int((~np.isnan(arrays.softmax)).sum())),
        "computed": text.count(int((~np.isnan(arrays.scores)).sum())),
        "gap": f"{arrays.largest_gap:.1e}",
    }
