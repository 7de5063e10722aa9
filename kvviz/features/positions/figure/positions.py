"""A learned table, a rotation, ALiBi's bias: how a position gets in. What comes of it: `figures.lengths`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.core.tokens import label
from kvviz.features.positions.record import Rotation, Table
from kvviz.figures import text
from kvviz.figures.cells import hatch
from kvviz.figures.frame import MONO, between, frame
from kvviz.figures.palette import INK_CHANGES, Palette, attention_scale, palette
from kvviz.theory import positions as theory

ROWS = 128  # of a table that are drawn, evenly spaced
FAR = 512  # positions to which a score is followed


def _second(p: Palette, given: dict) -> dict:
    """Axis settings for a second panel, as `frame` makes those of the first."""
    title = {"text": given.pop("title"), "font": {"color": p.muted, "size": 13}, "standoff": 8}
    base = {"gridcolor": p.line, "linecolor": p.line, "zeroline": False, "ticks": "", "automargin": True}
    return {**base, "tickfont": {"color": p.muted, "size": 12}, **given, "title": title}


def table(run: Run, found: Table, position: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """The table's values, and how alike its rows are; the row of `position` is marked in both."""
    p = palette(dark)
    n, width = found.values.shape
    every = max(1, n // ROWS)
    values, alike = found.values[::every], found.cosine(every)
    most = float(np.quantile(np.abs(values), 0.99))
    down = {**between(n - 0.5, -0.5), "title": words["position"], "showgrid": False}
    figure = frame(
        run,
        p,
        x={**between(-0.5, width - 0.5), "title": words["dimension"], "domain": [0, 0.44], "showgrid": False},
        y=down,
        height=440,
        showlegend=False,
        xaxis2=_second(p, {**between(-0.5, n - 0.5), "title": words["position"], "domain": [0.58, 0.92],
                           "showgrid": False, "anchor": "y2"}),
        yaxis2=_second(p, {**down, "anchor": "x2"}),
        right=60,
    )  # fmt: skip
    bar = {"thickness": 12, "outlinewidth": 0, "tickfont": {"color": p.muted, "size": 12}}
    title = {"side": "top", "font": {"color": p.muted, "size": 13}}
    figure.add_trace(
        go.Heatmap(
            z=values.astype(np.float32),
            y0=0,
            dy=every,
            zmin=-most,
            zmax=most,
            colorscale=[(0.0, p.thrown), (0.5, p.background), (1.0, p.scale_3)],
            colorbar=bar | {"x": 0.45, "title": title | {"text": words["value"]}, "nticks": 5},
            hovertemplate=f"{words['position']} %{{y}}, {words['dimension']} %{{x}}: %{{z:.3f}}<extra></extra>",
        )
    )
    figure.add_trace(
        go.Heatmap(
            z=alike,
            x0=0,
            dx=every,
            y0=0,
            dy=every,
            xaxis="x2",
            yaxis="y2",
            zmin=-1,
            zmax=1,
            colorscale=[(0.0, p.thrown), (0.5, p.background), (1.0, p.scale_4)],
            colorbar=bar | {"x": 0.93, "title": title | {"text": words["cosine"]}, "tickvals": [-1, 0, 1]},
            hovertemplate=f"%{{y}}, %{{x}}: {words['cosine']} %{{z:.3f}}<extra></extra>",
        )
    )
    edge = {"type": "line", "y0": position, "y1": position, "line": {"color": p.text, "width": 2, "dash": "dot"}}
    figure.add_shape(x0=-0.5, x1=width - 0.5, **edge)
    figure.add_shape(x0=-0.5, x1=n - 0.5, xref="x2", yref="y2", **edge)
    return figure


def table_table(run: Run, found: Table, position: int, *, words: Mapping[str, str]) -> dict[str, list]:
    """The row of `position` with its neighbours: similarity to it, and the first eight values."""
    n = len(found.values)
    near = sorted({min(max(0, position + d), n - 1) for d in (-64, -16, -4, -2, -1, 0, 1, 2, 4, 16, 64)} | {n - 1})
    unit = found.values / np.linalg.norm(found.values, axis=1, keepdims=True)
    columns: dict[str, list] = {words["position"]: near}
    columns[words["cosine"]] = [round(float(unit[i] @ unit[position]), 3) for i in near]
    for d in range(min(8, found.values.shape[1])):
        columns[f"{words['dimension']} {d}"] = [round(float(found.values[i, d]), 4) for i in near]
    return columns


def table_values(found: Table, position: int) -> dict[str, object]:
    unit = found.values / np.linalg.norm(found.values, axis=1, keepdims=True)
    alike = unit @ unit[position]
    n, width = found.values.shape
    neighbour = position + 1 if position + 1 < n else position - 1
    return {
        "n": text.count(n),
        "last": text.count(n - 1),
        "width": width,
        "position": position,
        "next_alike": f"{alike[neighbour]:.3f}",
        "far_alike": f"{alike[(position + n // 2) % n]:.3f}",
        "far": text.count((position + n // 2) % n),
    }


def rotation(run: Run, found: Rotation, head: int, pair: int, key: int, *, words: Mapping[str, str], dark: bool):
    """One pair of dimensions of a real K and of the newest Q: before, and turned to its position. Right: all pairs.

    Small dots show where the same K would lie at every other position of the text. A plotly Figure.
    """
    p = palette(dark)
    kv, query = head * len(found.k) // len(found.q), len(found.ids) - 1
    half = len(found.frequencies)
    one, turned = (tuple(a[kv, key, [pair, pair + half]].tolist()) for a in (found.k, found.k_rotated))
    asks, asked = (tuple(a[head, query, [pair, pair + half]].tolist()) for a in (found.q, found.q_rotated))
    reach = 1.15 * max(math.hypot(*pt) for pt in (one, asks))
    plane = {"range": [-reach, reach], "showgrid": True, "nticks": 5}  # a square: limits alone would not keep it one
    figure = frame(
        run,
        p,
        x={**plane, "title": f"{words['dimension']} {pair}", "domain": [0, 0.4], "constrain": "domain"},
        y={**plane, "title": f"{words['dimension']} {pair + half}", "scaleanchor": "x", "constrain": "domain"},
        height=440,
        showlegend=True,
        xaxis2=_second(p, {**between(-0.6, half - 0.4), "title": words["pair"], "domain": [0.56, 1], "anchor": "y2",
                           "showgrid": False}),
        yaxis2=_second(
            p, {"type": "log", "title": words["wavelength"], "anchor": "x2", "dtick": 1, "tickformat": ",d"}
        ),
    )  # fmt: skip
    everywhere = [theory.rotate(one, i * float(found.frequencies[pair])) for i in range(len(found.ids))]
    figure.add_trace(
        go.Scatter(
            x=[a * found.scaling for a, _ in everywhere],
            y=[b * found.scaling for _, b in everywhere],
            mode="markers",
            marker={"size": 5, "color": p.k_muted},
            customdata=list(range(len(everywhere))),
            hovertemplate=f"{words['position']} %{{customdata}}<extra></extra>",
            name=words["k_elsewhere"],
        )
    )
    for point, after, colour, name, symbol in (
        (one, turned, p.k, "K", "square"),
        (asks, asked, p.q, "Q", "circle"),
    ):
        for where, mark, width, said in ((point, f"{symbol}-open", 1, "before"), (after, symbol, 3, "after")):
            figure.add_trace(
                go.Scatter(
                    x=[0, where[0]],
                    y=[0, where[1]],
                    mode="lines+markers",
                    line={"color": colour, "width": width, "dash": "solid" if said == "after" else "dot"},
                    marker={"symbol": mark, "size": [0, 11], "color": colour, "line": {"color": colour, "width": 2}},
                    hovertemplate=f"{name} {words[said]}: %{{x:.3f}}, %{{y:.3f}}<extra></extra>",
                    name=f"{name} {words[said]}",
                )
            )
    lengths = [theory.wavelength(float(f)) for f in found.frequencies]
    figure.add_trace(
        go.Scatter(
            x=list(range(half)),
            y=lengths,
            xaxis="x2",
            yaxis="y2",
            mode="lines+markers",
            line={"color": p.muted, "width": 1},
            marker={"size": [13 if i == pair else 7 for i in range(half)], "color": p.text},
            hovertemplate=f"{words['pair']} %{{x}}: %{{y:,.1f}}<extra></extra>",
            showlegend=False,
        )
    )
    figure.add_shape(
        type="line", xref="x2 domain", yref="y2", x0=0, x1=1, y0=found.trained, y1=found.trained,
        line={"color": p.wasted, "width": 2, "dash": "dash"},
    )  # fmt: skip
    figure.add_annotation(
        xref="x2 domain", yref="y2", x=0, y=math.log10(found.trained), xanchor="left", yanchor="bottom",
        text=words["trained"].format(n=text.count(found.trained)), showarrow=False,
        font={"size": 13, "color": p.wasted_text},
    )  # fmt: skip
    return figure


def rotation_table(run: Run, found: Rotation, head: int, pair: int, key: int, *, words: Mapping[str, str]) -> dict:
    """One row a pair: frequency, positions a turn, and the K of that position before and after."""
    kv, half = head * len(found.k) // len(found.q), len(found.frequencies)
    before, after = found.k[kv, key], found.k_rotated[kv, key]

    def numbers(x: np.ndarray) -> list[float]:
        return np.round(x.astype(np.float64), 3).tolist()

    return {
        words["pair"]: [f"{i}, {i + half}" for i in range(half)],
        words["frequency"]: [float(f"{f:.3g}") for f in found.frequencies],
        words["wavelength"]: [round(theory.wavelength(float(f)), 1) for f in found.frequencies],
        f"K {words['before']} (1)": numbers(before[:half]),
        f"K {words['before']} (2)": numbers(before[half:]),
        f"K {words['after']} (1)": numbers(after[:half]),
        f"K {words['after']} (2)": numbers(after[half:]),
    }


def rotation_values(found: Rotation, head: int, pair: int, key: int) -> dict[str, object]:
    kv, half = head * len(found.k) // len(found.q), len(found.frequencies)
    frequency = float(found.frequencies[pair])
    angle = math.degrees(key * frequency)
    one, turned = (a[kv, key, [pair, pair + half]] for a in (found.k, found.k_rotated))
    slow = [theory.wavelength(float(f)) for f in found.frequencies]
    return {
        "layer": found.layer,
        "head": head,
        "pair": pair,
        "other": pair + half,
        "pairs": half,
        "key": key,
        "key_token": label(found.pieces[int(found.ids[key])]),
        "query": len(found.ids) - 1,
        "query_token": label(found.pieces[int(found.ids[-1])]),
        "frequency": f"{frequency:.3g}",
        "degrees": f"{angle:,.1f}",
        "turn": f"{theory.wavelength(frequency):,.1f}",
        "before": f"({one[0]:.2f}, {one[1]:.2f})",
        "after": f"({turned[0]:.2f}, {turned[1]:.2f})",
        "trained": text.count(found.trained),
        "slow_pairs": sum(w > found.trained for w in slow),
        "slowest": f"{max(slow):,.0f}",
        "by": found.shift.by,
        "shift_logit": f"{found.shift.max_abs_dlogit:.1e}",
    }


def _scores(found: Rotation, head: int, key: int) -> tuple[list[float], float, float]:
    """Score of the newest query with that key at every distance, by the formula; the model's own; D^-1/2."""
    kv, D = head * len(found.k) // len(found.q), found.q.shape[-1]
    q, k = found.q[head, -1].tolist(), found.k[kv, key].tolist()
    scale = found.scaling**2 / math.sqrt(D)
    curve = [theory.score(q, k, d, found.frequencies.tolist()) * scale for d in range(FAR + 1)]
    return curve, float(found.q_rotated[head, -1] @ found.k_rotated[kv, key]) / math.sqrt(D), scale


def distance(run: Run, found: Rotation, head: int, key: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """The score of one real query with one real key, were they so many positions apart; the model's own is marked."""
    p = palette(dark)
    curve, own, _ = _scores(found, head, key)
    figure = frame(
        run,
        p,
        x={**between(0, FAR), "title": words["distance"], "showgrid": False},
        y={"title": words["score"]},
        height=320,
        showlegend=True,
    )
    figure.add_trace(
        go.Scatter(
            x=list(range(FAR + 1)),
            y=curve,
            mode="lines",
            line={"color": p.q, "width": 2},
            hovertemplate=f"{words['distance']} %{{x}}: %{{y:.3f}}<extra></extra>",
            name=words["by_formula"],
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[len(found.ids) - 1 - key],
            y=[own],
            mode="markers",
            marker={"symbol": "diamond", "size": 13, "color": p.k, "line": {"color": p.text, "width": 2}},
            hovertemplate=f"{words['distance']} %{{x}}: %{{y:.3f}}<extra></extra>",
            name=words["by_model"],
        )
    )
    figure.add_shape(
        type="line", yref="paper", x0=found.trained, x1=found.trained, y0=0, y1=1,
        line={"color": p.wasted, "width": 2, "dash": "dash"},
    )  # fmt: skip
    figure.add_annotation(
        yref="paper", x=found.trained, y=1, xanchor="left", yanchor="top", xshift=4, showarrow=False,
        text=words["trained"].format(n=text.count(found.trained)), font={"size": 13, "color": p.wasted_text},
    )  # fmt: skip
    return figure


def distance_table(run: Run, found: Rotation, head: int, key: int, *, words: Mapping[str, str]) -> dict[str, list]:
    curve, _, _ = _scores(found, head, key)
    at = sorted({*range(0, 17), 32, 64, 128, 256, 512, len(found.ids) - 1 - key})
    return {words["distance"]: at, words["score"]: [round(curve[d], 4) for d in at]}


def distance_values(found: Rotation, head: int, key: int) -> dict[str, object]:
    curve, own, _ = _scores(found, head, key)
    d = len(found.ids) - 1 - key
    return {
        "d": d,
        "own": f"{own:.3f}",
        "formula": f"{curve[d]:.3f}",
        "far_score": f"{curve[FAR]:.3f}",
        "far": FAR,
        "key_token": label(found.pieces[int(found.ids[key])]),
        "query_token": label(found.pieces[int(found.ids[-1])]),
        "by": found.shift.by,
    }


def alibi(run: Run, head: int, T: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """ALiBi's bias of one head, by formula: what would be added to the scores of the first T positions."""
    p = palette(dark)
    slope = theory.alibi_slopes(run.model.heads)[head]
    z = np.array([[np.nan if b is None else b for b in row] for row in theory.alibi(slope, T)], dtype=np.float32)
    figure = frame(
        run,
        p,
        x={**between(-0.5, T - 0.5), "title": words["key_position"], "showgrid": False, "domain": [0, 0.5]},
        y={**between(T - 0.5, -0.5), "title": words["query_position"], "showgrid": False},
        height=400,
        showlegend=True,
        xaxis2=_second(p, {**between(-0.6, run.model.heads - 0.4), "title": words["head"], "domain": [0.68, 1],
                           "anchor": "y2", "showgrid": False}),
        yaxis2=_second(p, {"title": words["slope"], "anchor": "x2", "type": "log", "dtick": 1}),
    )  # fmt: skip
    hidden = [(j, i) for i in range(T) for j in range(i + 1, T)]
    figure.add_trace(hatch(hidden, p.masked, p.masked_hatch, words["ahead"]))
    scale = [(1 - stop, colour) for stop, colour in reversed(attention_scale(dark))]
    figure.add_trace(
        go.Heatmap(
            z=z,
            colorscale=scale,
            hoverongaps=False,
            colorbar={"x": 0.51, "thickness": 12, "outlinewidth": 0, "tickfont": {"color": p.muted, "size": 12},
                      "title": {"text": words["bias"], "side": "top", "font": {"color": p.muted, "size": 13}}},
            hovertemplate=f"{words['query']} %{{y}} → {words['key']} %{{x}}: %{{z:.4g}}<extra></extra>",
            showlegend=False,
        )
    )  # fmt: skip
    slopes = theory.alibi_slopes(run.model.heads)
    figure.add_trace(
        go.Scatter(
            x=list(range(len(slopes))),
            y=slopes,
            xaxis="x2",
            yaxis="y2",
            mode="lines+markers",
            line={"color": p.muted, "width": 1},
            marker={"size": [13 if h == head else 7 for h in range(len(slopes))], "color": p.text},
            hovertemplate=f"{words['head']} %{{x}}: %{{y:.4g}}<extra></extra>",
            showlegend=False,
        )
    )
    if T <= 12:
        rows, columns = np.where(~np.isnan(z))
        shown = z[rows, columns] + 0.0  # no −0
        inks = [p.on_high if v <= INK_CHANGES * np.nanmin(z) and v else p.on_low for v in shown]
        figure.add_trace(
            go.Scatter(
                x=columns, y=rows, mode="text", text=[f"{v:.3g}" for v in shown],
                textfont={"family": MONO, "size": 11, "color": inks}, hoverinfo="skip", showlegend=False,
            )
        )  # fmt: skip
    return figure


def alibi_table(run: Run, head: int, T: int, *, words: Mapping[str, str]) -> dict[str, list]:
    slopes = theory.alibi_slopes(run.model.heads)
    return {
        words["head"]: list(range(len(slopes))),
        words["slope"]: [float(f"{s:.4g}") for s in slopes],
        words["bias_at"].format(n=T - 1): [float(f"{-s * (T - 1):.4g}") for s in slopes],
    }
