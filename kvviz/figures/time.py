"""Milliseconds a pass. One pass says little on a busy machine: what is drawn is the median of the last 16."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.figures import text
from kvviz.figures.frame import beside, between, by_pass, frame
from kvviz.figures.palette import palette

ENOUGH = 16  # passes a median needs before it is shown


def running_median(ms: np.ndarray) -> np.ndarray:
    """(n,) float64: the median of each value and the 15 before it; NaN while there are fewer."""
    out = np.full(len(ms), np.nan)
    for i in range(ENOUGH - 1, len(ms)):
        out[i] = np.median(ms[i - ENOUGH + 1 : i + 1])
    return out


def decode_ms(run: Run, step: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(step,) milliseconds of passes 1..step with the cache, and without where every pass has its twin.

    Prefill (pass 0) is left out: it is the same work in both lanes.
    """
    steps = run.steps[1 : step + 1]
    cached = np.array([s.ms for s in steps], dtype=np.float64)
    twins = [s.twin for s in steps]
    if not twins or any(t is None for t in twins):
        return cached, None
    return cached, np.array([t.ms for t in twins], dtype=np.float64)


def time_a_pass(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """Running medians of both lanes, and single passes as faint points. Before 16 decode passes: "measuring"."""
    p = palette(dark)
    cached, twin = decode_ms(run, step)
    passes = np.arange(1, step + 1)
    figure = frame(
        run,
        p,
        x=by_pass(run, p, words),
        y={**between(0, _ceiling(run)), "title": words["ms_axis"], "tickformat": ","},
        right=96,
    )
    enough = len(cached) >= ENOUGH
    lanes = [(cached, words["with_cache"], p.text, p.text, "solid", "circle")]
    if twin is not None:
        lanes.append((twin, words["without_cache"], p.wasted, p.wasted_text, "dash", "triangle-up"))
    medians = [running_median(ms) for ms, *_ in lanes]
    places = beside([float(m[-1]) for m in medians], _ceiling(run)) if enough else []
    for (ms, name, colour, ink, dash, symbol), median, place in zip(lanes, medians, places, strict=enough):
        figure.add_trace(
            go.Scatter(
                x=passes,
                y=ms,
                mode="markers",
                marker={"symbol": symbol, "size": 5, "color": colour, "opacity": 0.3},
                hoverinfo="skip",
                showlegend=False,
            )
        )
        figure.add_trace(
            go.Scatter(
                x=passes[ENOUGH - 1 :],
                y=median[ENOUGH - 1 :],
                mode="lines+markers+text",
                name=name,
                line={"color": colour, "width": 2.5, "dash": dash},
                marker={"symbol": symbol, "size": 6, "color": colour},
                text=[""] * (len(ms) - ENOUGH) + [f"{text.milliseconds(median[-1])} ms"],
                textposition=place,
                textfont={"size": 14, "color": ink},
                cliponaxis=False,
                hovertemplate=f"{words['pass']} %{{x}}<br>{name}, {words['median_16']}: %{{y:.2f}} ms<extra></extra>",
            )
        )
    if not enough:
        # An axis without data ignores its limits, so one point that can't be seen holds them.
        figure.add_trace(go.Scatter(x=[0], y=[0], mode="markers", marker_opacity=0, hoverinfo="skip", showlegend=False))
        figure.add_annotation(
            text=words["measuring"].format(count=len(cached), enough=ENOUGH),
            x=0.5,
            y=0.5,
            xref="paper",
            yref="paper",
            showarrow=False,
            font={"size": 16, "color": p.muted},
        )
    return figure


def _ceiling(run: Run) -> float:
    """Top of the axis: a little over the 95th percentile, so that one slow pass does not flatten the rest."""
    cached, twin = decode_ms(run, len(run.steps) - 1)
    every = cached if twin is None else np.concatenate([cached, twin])
    return float(np.percentile(every, 95)) * 1.3 if len(every) else 1.0


def time_table(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str]) -> dict[str, list]:
    """The medians by pass; empty while measuring, since single passes are not to be compared."""
    cached, twin = decode_ms(run, step)
    if len(cached) < ENOUGH:
        return {}
    columns = {
        words["pass"]: list(range(ENOUGH, step + 1)),
        words["ms_with_cache"]: running_median(cached)[ENOUGH - 1 :].round(2).tolist(),
    }
    if twin is not None:
        columns[words["ms_without_cache"]] = running_median(twin)[ENOUGH - 1 :].round(2).tolist()
    return columns


def time_values(run: Run, step: int, layer: int, head: int) -> dict[str, object]:
    cached, twin = decode_ms(run, step)
    known = {
        "count": len(cached),
        "enough": ENOUGH,
        "device": run.machine.device_name,
        "prefill": text.milliseconds(run.steps[0].ms),
        "P": text.count(run.P),
    }
    if len(cached) < ENOUGH:
        return {"case": "measuring", **known}
    tpot = float(np.median(cached[-ENOUGH:]))
    known["tpot"] = text.milliseconds(tpot)
    if twin is None:
        return {"case": "alone", **known}
    without = float(np.median(twin[-ENOUGH:]))
    ratio = without / tpot
    return {
        "case": "faster" if ratio >= 1.05 else "slower" if ratio < 0.95 else "same",
        **known,
        "tpot_without": text.milliseconds(without),
        "ratio": f"{ratio:.1f}" if ratio >= 1.05 else f"{ratio:.2f}",
    }
