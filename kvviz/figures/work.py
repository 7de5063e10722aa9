"""Token rows computed, pass by pass, with the cache and without."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.figures import text
from kvviz.figures.frame import beside, between, by_pass, frame
from kvviz.figures.palette import palette


def counted(run: Run, step: int) -> tuple[np.ndarray, np.ndarray]:
    """(step + 1,) rows with the cache, and without: the twin's where there is one, else the prefix it would feed."""
    steps = run.steps[: step + 1]
    kept = np.array([s.rows for s in steps])
    without = np.array([s.twin.rows if s.twin else s.length_after for s in steps])
    return kept, without


def rows(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """A pair of bars a pass. Without a cache the pass computes its new rows and, hatched, all earlier ones again."""
    p = palette(dark)
    kept, without = counted(run, step)
    passes = np.arange(step + 1)
    wasted = without - kept
    tallest = int(counted(run, len(run.steps) - 1)[1].max())
    figure = frame(
        run,
        p,
        x=by_pass(run, p, words),
        y={**between(0, tallest * 1.06), "title": words["rows"], "tickformat": ",d"},
        barmode="group",
        bargap=0.25,
        bargroupgap=0.05,
    )
    for group, name, colour in (("cache", "with_cache", p.text), ("none", "without_new", p.thrown)):
        figure.add_trace(
            go.Bar(
                x=passes,
                y=kept,
                offsetgroup=group,
                name=words[name],
                marker={"color": colour, "line": {"color": p.text, "width": 1}},
                hovertemplate=f"{words['pass']} %{{x}}<br>{words[name]}: %{{y:,}}<extra></extra>",
            )
        )
    figure.add_trace(
        go.Bar(
            x=passes,
            y=wasted,
            base=kept,
            offsetgroup="none",
            name=words["recomputed"],
            customdata=wasted,
            marker={
                "color": p.wasted_ground,
                "line": {"color": p.wasted, "width": 1},
                "pattern": {
                    "shape": "/",
                    "fgcolor": p.wasted,
                    "bgcolor": p.wasted_ground,
                    "size": 7,
                    "solidity": 0.25,
                },
            },
            hovertemplate=f"{words['pass']} %{{x}}<br>{words['recomputed']}: %{{customdata:,}}<extra></extra>",
        )
    )
    return figure


def rows_total(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """Rows since the start: a straight line with the cache, a parabola without."""
    p = palette(dark)
    kept, without = (np.cumsum(r) for r in counted(run, step))
    passes = np.arange(step + 1)
    top = int(counted(run, len(run.steps) - 1)[1].sum()) * 1.12
    figure = frame(
        run,
        p,
        x=by_pass(run, p, words),
        y={**between(0, top), "title": words["rows_so_far"], "tickformat": ",d"},
        right=72,
    )
    lanes = (
        (without, words["without_cache"], p.wasted, p.wasted_text, "dash", "triangle-up"),
        (kept, words["with_cache"], p.text, p.text, "solid", "circle"),
    )
    same = bool(without[-1] == kept[-1])  # said once, above the axis
    places = ["top right"] * 2 if same else beside([float(without[-1]), float(kept[-1])], top)
    for (y, name, colour, ink, dash, symbol), place in zip(lanes, places, strict=True):
        figure.add_trace(
            go.Scatter(
                x=passes,
                y=y,
                mode="lines+markers+text",
                name=name,
                line={"color": colour, "width": 2, "dash": dash},
                marker={"symbol": symbol, "size": 7, "color": colour},
                text=[""] * step + ["" if y is kept and same else text.count(int(y[-1]))],
                textposition=place,
                textfont={"size": 14, "color": ink},
                cliponaxis=False,
                hovertemplate=f"{words['pass']} %{{x}}<br>{name}: %{{y:,}}<extra></extra>",
            )
        )
    return figure


def rows_table(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str]) -> dict[str, list]:
    kept, without = counted(run, step)
    return {
        words["pass"]: list(range(step + 1)),
        words["with_cache"]: kept.tolist(),
        words["without_cache"]: without.tolist(),
        words["recomputed"]: (without - kept).tolist(),
        words["total_with_cache"]: np.cumsum(kept).tolist(),
        words["total_without_cache"]: np.cumsum(without).tolist(),
    }


def rows_values(run: Run, step: int, layer: int, head: int) -> dict[str, object]:
    kept, without = counted(run, step)
    return {
        "case": "prefill" if step == 0 else "decode",
        "step": step,
        "passes": text.count(step + 1),
        "rows": text.count(int(kept[-1])),
        "rows_without": text.count(int(without[-1])),
        "recomputed": text.count(int(without[-1] - kept[-1])),
        "total": text.count(int(kept.sum())),
        "total_without": text.count(int(without.sum())),
        "times": f"{without.sum() / kept.sum():.1f}",
    }
