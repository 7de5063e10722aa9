"""An edited token, drawn: layers × positions of K and V that changed, where an exact 0 has its own look."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import ModelFacts, Run
from kvviz.core.tokens import label
from kvviz.features.permission.record.permission import Permission
from kvviz.figures import text
from kvviz.figures.cells import outlines, runs
from kvviz.figures.frame import MONO, between, frame, styled_axis
from kvviz.figures.palette import Palette, palette

WRITTEN = 18  # positions up to which each cell carries its number
LOW, HIGH = -2.0, 1.0  # the colour scale: 10^LOW to 10^HIGH; beyond, its end colours
INK_CHANGES = 0.35  # of the scale: from there the dark ink is legible in both themes
COUNTED = ("zeros", "changed", "dlogit", "tokens")  # what is set side by side, with the mask and without
Words = Mapping[str, str]


def change_map(found: Permission, *, words: Words, dark: bool, masked: bool) -> go.Figure:
    """max |ΔK| above, max |ΔV| below: a row a layer, a column a position. A cell that is exactly 0 has no colour
    but the sign 0, or dots where cells are too many for signs."""
    p = palette(dark)
    T, L = found.T, found.model.layers
    change = found.masked if masked else found.unmasked
    at, names = _ticks(found)
    across = {**between(-0.5, T - 0.5), "showgrid": False, "tickmode": "array", "tickvals": at}
    down = {**between(L - 0.5, -0.5), "showgrid": False, "tickmode": "array", "tickvals": _layers(L)}
    figure = frame(
        found,
        p,
        x={**across, "ticktext": [""] * len(at), "anchor": "y"},
        y={**down, "title": words["layer"], "domain": [0.53, 1]},
        height=max(320, min(440, 144 + 2 * 25 * L)),
        xaxis2=styled_axis(
            p,
            {**across, "ticktext": names, "tickangle": 0 if T <= 12 else -90, "anchor": "y2"}
            | {"tickfont": {"family": MONO, "size": 12}, "title": words["position"]},
        ),
        yaxis2=styled_axis(p, {**down, "title": words["layer"], "domain": [0, 0.47], "anchor": "x2"}),
        margin={"l": 96, "r": 108, "t": 40, "b": 70 if T <= 12 else 110},
    )
    for i, (name, values) in enumerate((("k", change.dk), ("v", change.dv))):
        axes = {"xaxis": "x" if i == 0 else "x2", "yaxis": "y" if i == 0 else "y2"}
        figure.add_trace(_zeros(values, p, words, axes, legend=i == 0))
        figure.add_trace(_heat(found, values, name, p, words, axes, i))
        if T <= WRITTEN:
            figure.add_trace(_numbers(values, p, axes))
        figure.add_annotation(
            text=f"<b>max |Δ{name.upper()}|</b>", xref="paper", yref=f"{axes['yaxis']} domain", x=0, y=0.5, xshift=-92,
            xanchor="left", textangle=-90, showarrow=False,
            font={"size": 15, "color": p.k_text if name == "k" else p.v_text},
        )  # fmt: skip
        for position in np.flatnonzero(found.ids != found.edited) if found.T <= 64 else [found.position]:
            if position == found.position:
                figure.add_shape(
                    type="rect", xref=axes["xaxis"], yref=axes["yaxis"], x0=position - 0.5, x1=position + 0.5,
                    y0=-0.5, y1=L - 0.5, line={"color": p.text, "width": 2.5}, fillcolor="rgba(0,0,0,0)",
                )  # fmt: skip
    figure.add_annotation(
        text=f"<b>{words['edited']}</b>", xref="x", x=found.position, yref="paper", y=1, yanchor="bottom", yshift=2,
        showarrow=False, font={"size": 13, "color": p.text},
    )  # fmt: skip
    return figure


def _layers(L: int) -> list[int]:
    return list(range(0, L, -(-L // 12)))


def _ticks(found: Permission) -> tuple[list[int], list[str]]:
    """Positions with their tokens; at an edited one, the old token over the new one."""
    every = -(-found.T // 32)
    at, names = list(range(0, found.T, every)), []
    if found.position not in at:
        at = sorted({*at, found.position} - {found.position - 1, found.position + 1})
    for i in at:
        old, new = (text.literal(text.short(label(found.pieces[int(ids[i])]))) for ids in (found.ids, found.edited))
        names.append(f"{i}<br>{old}" if old == new else f"<b>{i}<br>{old}<br>→ {new}</b>")
    if found.T > 12:
        names = [n.replace("<br>", " ") for n in names]
    return at, names


def _zeros(values: np.ndarray, p: Palette, words: Words, axes: dict, *, legend: bool) -> go.Scatter:
    """Cells that are exactly 0, runs of them in a layer as one shape each."""
    x, y = outlines((a, b, layer) for layer, row in enumerate(values) for a, b in runs(row == 0))
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"width": 1, "color": p.masked_hatch},
        fill="toself",
        fillcolor=p.card,
        fillpattern=None
        if values.shape[1] <= WRITTEN
        else {"shape": ".", "fgcolor": p.masked_hatch, "bgcolor": p.card, "size": 7, "solidity": 0.15},
        hoveron="fills",
        hoverinfo="name",
        name=words["zero"],
        showlegend=legend,
        **axes,
    )


def _heat(found: Permission, values: np.ndarray, name: str, p: Palette, words: Words, axes: dict, i: int) -> go.Heatmap:
    with np.errstate(divide="ignore"):
        z = np.where(values > 0, np.log10(values), np.nan)
    full, muted, ink = (p.k, p.k_muted, p.k_text) if name == "k" else (p.v, p.v_muted, p.v_text)
    return go.Heatmap(
        z=z,
        customdata=[[written(v) for v in row] for row in values],
        zmin=LOW,
        zmax=HIGH,
        xgap=1,
        ygap=1,
        colorscale=[(0, muted), (1, full)],
        colorbar={
            "title": {"text": f"|Δ{name.upper()}|", "side": "top", "font": {"color": ink, "size": 13}},
            "x": 1.02,
            "y": 0.77 - 0.53 * i,
            "len": 0.46,
            "thickness": 12,
            "tickvals": [-2, -1, 0, 1],
            "ticktext": ["≤ 0.01", "0.1", "1", "≥ 10"],
            "tickfont": {"color": p.muted, "size": 11},
            "outlinewidth": 0,
        },
        hovertemplate=f"{words['layer']} %{{y}}, {words['position']} %{{x}}<br>max |Δ{name.upper()}| "
        "%{customdata}<extra></extra>",
        hoverongaps=False,
        showlegend=False,
        name=f"Δ{name.upper()}",
        **axes,
    )


def _numbers(values: np.ndarray, p: Palette, axes: dict) -> go.Scatter:
    """Each cell's number; an exact 0 reads 0."""
    rows, columns = np.indices(values.shape)
    flat = values.ravel()
    with np.errstate(divide="ignore"):
        place = (np.log10(flat) - LOW) / (HIGH - LOW)
    return go.Scatter(
        x=columns.ravel(),
        y=rows.ravel(),
        mode="text",
        text=["0" if v == 0 else short(v) for v in flat],
        textfont={
            "family": MONO,
            "size": 12,
            "color": [p.muted if v == 0 else p.text if z < INK_CHANGES else p.on_full
                      for v, z in zip(flat, place, strict=True)],
        },
        hoverinfo="skip",
        showlegend=False,
        **axes,
    )  # fmt: skip


def short(v: float) -> str:
    """As it fits a cell: 12, 5.5, .34, 3e-5."""
    if v >= 0.995:
        return f"{v:.0f}" if v >= 9.95 else f"{v:.1f}"
    return f"{v:.2f}".removeprefix("0") if v >= 0.01 else f"{v:.0e}".replace("e-0", "e-")


def written(v: float) -> str:
    """0 for an exact 0 alone; else three digits, or two and a power of ten: 4.32, 3.1e-5."""
    return "0" if v == 0 else f"{v:.3g}" if v >= 0.001 else f"{v:.1e}".replace("e-0", "e-")


def change_map_table(found: Permission, *, words: Words, masked: bool) -> dict[str, list]:
    """A row a layer and tensor, a column a position; an exact 0 is 0."""
    change = found.masked if masked else found.unmasked
    out: dict[str, list] = {words["layer"]: [], words["tensor"]: []}
    columns = [f"{i} {label(found.pieces[int(t)])}" for i, t in enumerate(found.ids)]
    out |= {c: [] for c in columns}
    for name, values in (("K", change.dk), ("V", change.dv)):
        for layer, row in enumerate(values):
            out[words["layer"]].append(layer)
            out[words["tensor"]].append(f"|Δ{name}|")
            for c, v in zip(columns, row, strict=True):
                out[c].append(float(f"{v:.3g}"))
    return out


def permission_values(found: Permission) -> dict[str, object]:
    """What sentences name; values of "…_token" are a learner's text. "case": where the edit stands.

    Of COUNTED each stands for both masks, as NAME_on and NAME_off: cells of K and V before the edit that are exactly
    0, cells that changed anywhere, max |Δlogit| of the cached run, and how many of its choices were others.
    """
    at, T, m = found.position, found.T, found.model
    values: dict[str, object] = {
        "case": "first" if at == 0 else "last" if at == T - 1 else "middle",
        "at": text.count(at),
        "after": text.count(T - 1 - at),
        "T": text.count(T),
        "L": m.layers,
        "cells": text.count(2 * m.layers * T),
        "before_cells": text.count(2 * m.layers * at),
        "old_token": label(found.pieces[int(found.ids[at])]),
        "new_token": label(found.pieces[int(found.edited[at])]),
        "passes": text.count(len(found.masked_run.dlogit)),
        "cached_q_shape": str(found.q_shape),
        "cached_kv_shape": str(found.kv_shape),
        "cached_T": text.count(found.kv_shape[2]),
        **_q_values(m, found.kv_shape[2]),
    }
    for side, change, run in (
        ("on", found.masked, found.masked_run),
        ("off", found.unmasked, found.unmasked_run),
    ):
        both = np.stack([change.dk, change.dv])  # (2, L, T)
        values |= {
            f"zeros_{side}": text.count(int((both[:, :, :at] == 0).sum())),
            f"changed_{side}": text.count(int((both > 0).sum())),
            f"dlogit_{side}": written(float(run.dlogit.max())),
            f"tokens_{side}": text.count(int((run.ids != run.cached_ids).sum())),
            f"largest_{side}": written(float(both.max())),
            f"largest_before_{side}": written(float(both[:, :, :at].max(initial=0.0))),
        }
    return values


def _q_values(m: ModelFacts, T: int) -> dict[str, object]:
    """What Q of T positions would take, beside K and V: L · H · D · T values against 2 · L · Hkv · D · T."""
    return {
        "q_bytes": text.count(m.layers * m.heads * m.head_dim * T * m.value_bytes),
        "cached_bytes": text.count(m.kv_bytes_per_token * T),
    }


def nothing(run: Run) -> dict[str, object]:
    """What can be said before there is a result: the run's own shapes, after its last pass."""
    m, T = run.model, run.length
    return {
        "cached_q_shape": str((1, m.heads, 1, m.head_dim)),
        "cached_kv_shape": str((1, m.kv_heads, T, m.head_dim)),
        "cached_T": text.count(T),
        **_q_values(m, T),
    }
