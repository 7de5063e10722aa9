"""What all figures share: ground, type, grid, and how they keep the reader's zoom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.features.race.record import Spread
from kvviz.figures.palette import Palette

# Found on the machine or served by Streamlit; nothing is fetched.
FONT = "'Source Sans', 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', sans-serif"
QUARTERS = [0, 0.25, 0.5, 0.75, 1]  # ticks of a share
MONO = "'Source Code Pro', 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', monospace"


def frame(run: Run, p: Palette, *, x: dict, y: dict, height: int = 360, right: int = 24, **layout: object) -> go.Figure:
    """An empty figure in the palette. A reader's zoom stays while `run.key` stays: steps don't reset it.

    `x` and `y` are axis settings, with their title as a plain string; `right` is the margin there, in pixels. All of
    the layout is given at once: a figure that is updated part by part takes Plotly ten times as long.
    """
    top = 44 if layout.get("showlegend", True) else 20
    whole = {
        "template": "none",
        "height": height,
        "uirevision": run.key,
        "paper_bgcolor": p.background,
        "plot_bgcolor": p.background,
        "font": {"family": FONT, "size": 14, "color": p.text},
        "margin": {"l": 72, "r": right, "t": top, "b": 64},
        "hoverlabel": {
            "bgcolor": p.card,
            "bordercolor": p.line,
            "align": "left",
            "font": {"family": MONO, "color": p.text},
        },
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "itemclick": False,
            "itemdoubleclick": False,
            "font": {"color": p.text},
        },
        "xaxis": styled_axis(p, x),
        "yaxis": styled_axis(p, y),
    }
    return go.Figure(layout=whole | layout)


def styled_axis(p: Palette, given: dict) -> dict:
    return {
        "gridcolor": p.line,
        "linecolor": p.line,
        "zeroline": False,
        "ticks": "",
        "automargin": True,
        **given,
        "tickfont": {"color": p.muted, "size": 12, **given.get("tickfont", {})},
        "title": {"text": given.get("title"), "font": {"color": p.muted, "size": 13}, "standoff": 8},
    }


def between(start: float, end: float) -> dict:
    """Axis settings for exactly this range, reversed when `end` is the smaller.

    Plotly gives up a reader's zoom when a new figure names another `range`; it keeps it over a range that it works
    out itself, so the ends are given as limits of the automatic one.
    """
    limits = {"minallowed": min(start, end), "maxallowed": max(start, end)}
    return {"autorange": True if start < end else "reversed", "autorangeoptions": limits}


def by_position(run: Run, at: list[int], texts: list[str]) -> dict:
    """Axis settings for token positions: numbers on the axis, tokens as tick text."""
    return {
        "tickmode": "array",
        "tickvals": at,
        "ticktext": texts,
        "tickfont": {"family": MONO, "size": 12},
        "showgrid": False,
    }


def over_positions(run: Run, at: list[int], texts: list[str], count: int, title: str) -> dict:
    """Axis settings for bars over `count` positions. Tokens stand upright while few enough fit side by side."""
    angle = 0 if count <= 10 else -90
    return {**by_position(run, at, texts), **between(-0.6, count - 0.4), "title": title, "tickangle": angle}


def quartiles(spreads: Sequence[Spread], p: Palette) -> dict:
    """Error bars from the first to the third quartile, around the medians."""
    middle = np.array([s.median for s in spreads])
    return {
        "type": "data",
        "symmetric": False,
        "array": np.array([s.high for s in spreads]) - middle,
        "arrayminus": middle - np.array([s.low for s in spreads]),
        "color": p.muted,
        "thickness": 1.5,
    }


def beside(values: list[float], span: float) -> list[str]:
    """Where the labels at the right ends of lines go: beside them, and apart where they would overlap."""
    if len(values) == 2 and abs(values[0] - values[1]) < 0.09 * span:
        return ["top right", "bottom right"] if values[0] >= values[1] else ["bottom right", "top right"]
    return ["middle right"] * len(values)


def by_pass(run: Run, p: Palette, words: dict[str, str]) -> dict:
    """Axis settings for the passes of a run: room for all of them, so that stepping back moves nothing."""
    last = max(len(run.steps) - 1, 1)
    every = -(-(last + 1) // 24)
    return {
        "title": words["pass"],
        **between(-0.6, last + 0.6),
        "tickmode": "array",
        "tickvals": list(range(0, last + 1, every)),
        "ticktext": [str(i) for i in range(0, last + 1, every)],
        "showgrid": False,
    }
