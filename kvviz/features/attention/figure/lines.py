"""Attention as lines from queries to keys, both in the order of the text: who looks back at whom."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.figures import text
from kvviz.figures.attention import stitched
from kvviz.figures.frame import between, by_position, frame
from kvviz.figures.palette import palette

# Shares in classes, each with one width of line: a trace a class, so that a thousand lines stay quick.
CLASSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
WIDTHS = (0.6, 1.2, 2.2, 4, 7, 11)
ALL_FROM = 0.1  # with all queries, the least share that gets a line
MOST = 2_000  # lines
TABLE = 200


def drawn(run: Run, step: int, layer: int, head: int, query: int | None) -> list[tuple[int, int, float]]:
    """(query, key, share) of the lines, the strongest first: of one query from 0.02 on, of all from 0.1 on."""
    weights = np.nan_to_num(stitched(run, step, layer, head))
    least = CLASSES[0] if query is not None else ALL_FROM
    rows, keys = np.where(weights >= least)
    found = [(int(i), int(j), float(weights[i, j])) for i, j in zip(rows, keys, strict=True) if query in (None, i)]
    return sorted(found, key=lambda line: -line[2])[:MOST]


def lines(run: Run, step: int, layer: int, head: int, query: int | None, *, words: Mapping[str, str], dark: bool):
    """Queries above, keys below; a line for each share that is large enough, as wide as the share. A plotly Figure."""
    p = palette(dark)
    T = run.P + step
    at, texts = text.ticks(run, T)
    axis = {**by_position(run, at, texts), **between(-0.8, T - 0.2), "tickangle": -90}
    figure = frame(
        run,
        p,
        x={**axis, "title": words["key_position"]},
        y={**between(-0.06, 1.06), "tickmode": "array", "tickvals": [0, 1], "showgrid": False,
           "ticktext": [words["key"], words["query"]]},
        height=440,
        xaxis2={**axis, "overlaying": "x", "side": "top", "matches": "x", "automargin": True, "zeroline": False,
                "showgrid": False, "tickfont": {"color": p.muted, "size": 12, **axis["tickfont"]}},
        legend={"orientation": "v", "x": 1.01, "y": 1, "font": {"color": p.text, "size": 12},
                "title": {"text": words["weight"], "font": {"color": p.muted, "size": 12}},
                "itemclick": False, "itemdoubleclick": False},
        margin={"l": 72, "r": 110, "t": 20, "b": 64},
        showlegend=True,
    )  # fmt: skip
    found = drawn(run, step, layer, head, query)
    for low, high, width in zip(CLASSES[:-1], CLASSES[1:], WIDTHS, strict=True):
        mine = [f for f in found if low <= f[2] < high or (high == 1 and f[2] >= low)]
        x = [v for i, j, _ in mine for v in (i, j, None)]
        y = [v for _ in mine for v in (1, 0, None)]
        figure.add_trace(
            go.Scatter(
                x=x or [None],
                y=y or [None],
                mode="lines",
                line={"width": width, "color": p.q},
                opacity=0.45 if query is None else 0.7,
                hoverinfo="skip",
                name=f"{low:g} – {high:g}",
            )
        )
    labels = [text.literal(t) for t in text.position_labels(run, T)]
    asking = [query] if query is not None else list(range(T))
    weights = stitched(run, step, layer, head)
    tops = [int(np.nanargmax(weights[i])) for i in asking]
    figure.add_trace(
        go.Scatter(
            x=asking,
            y=[1] * len(asking),
            xaxis="x2",
            mode="markers",
            marker={"size": 8, "color": p.q, "line": {"color": p.text, "width": 1}},
            customdata=[[labels[i], labels[j], float(weights[i, j])] for i, j in zip(asking, tops, strict=True)],
            hovertemplate=f"{words['query']} %{{customdata[0]}}<br>{words['most_to']} %{{customdata[1]}}: "
            "%{customdata[2]:.3f}<extra></extra>",
            showlegend=False,
        )
    )
    got = np.nan_to_num(weights[query] if query is not None else weights).reshape(-1, T).sum(axis=0)
    figure.add_trace(
        go.Scatter(
            x=list(range(T)),
            y=[0] * T,
            mode="markers",
            marker={"size": 8, "symbol": "square", "color": p.k, "line": {"color": p.text, "width": 1}},
            customdata=[[label, float(g)] for label, g in zip(labels, got, strict=True)],
            hovertemplate=f"{words['key']} %{{customdata[0]}}<br>{words['received']} %{{customdata[1]:.3f}}"
            "<extra></extra>",
            showlegend=False,
        )
    )
    return figure


def lines_table(run: Run, step: int, layer: int, head: int, query: int | None, *, words: Mapping[str, str]) -> dict:
    labels = text.position_labels(run, run.P + step)
    found = drawn(run, step, layer, head, query)[:TABLE]
    return {
        words["query"]: [labels[i] for i, _, _ in found],
        words["key"]: [labels[j] for _, j, _ in found],
        words["weight"]: [round(w, 3) for _, _, w in found],
    }


def lines_values(run: Run, step: int, layer: int, head: int, query: int | None) -> dict[str, object]:
    T = run.P + step
    found = drawn(run, step, layer, head, query)
    asking = T - 1 if query is None else query
    weights = np.nan_to_num(stitched(run, step, layer, head))
    top = int(weights[asking].argmax())
    shown = sum(w for _, _, w in found)
    return {
        "case": "all" if query is None else "one",
        "layer": layer,
        "head": head,
        "T": text.count(T),
        "count": text.count(len(found)),
        "least": f"{ALL_FROM if query is None else CLASSES[0]:g}",
        "covered": text.percent(shown / (T if query is None else 1)),
        "query": asking,
        "token": text.token(run, run.ids[asking]),
        "top_token": text.token(run, run.ids[top]),
        "top_position": top,
        "top_share": text.percent(float(weights[asking, top])),
    }
