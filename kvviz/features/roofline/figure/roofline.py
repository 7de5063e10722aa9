"""The roofline drawn: what this device can do at best, and where the passes of one model lie under it.

Both axes are logarithms: the figure is given log10 of its values, so that ticks, bands and labels share one measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from kvviz.features.ladder.record.ladder import Rates
from kvviz.features.race.record import Spread
from kvviz.features.roofline.record import Point, Roofline, Step, floor_ms
from kvviz.figures import text
from kvviz.figures.frame import between, frame
from kvviz.figures.palette import Palette, palette
from kvviz.theory import roofline as theory

Words = Mapping[str, str]
FORMS = {"decode": "circle", "prefill": "square", "race_cached": "diamond-open", "race_uncached": "diamond-wide-open"}
HEIGHT = 400
NEAR = 0.08  # of a power of ten: labels of marks nearer than this would overlap


def si(value: float, unit: str) -> str:
    """Three digits with a decimal prefix: 24.6 MB, 12.3 MFLOP, 0.502 FLOP a byte."""
    prefix, size = scale(value)
    return f"{digits(value / size)} {prefix}{unit}"


def scale(value: float) -> tuple[str, float]:
    """The decimal prefix that a value reaches, and its factor."""
    return next(((p, s) for p, s in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)) if value >= s), ("", 1.0))


def digits(value: float) -> str:
    """Three significant digits, none of them after a point that says nothing: 0.502, 8.13, 24.6, 1,234."""
    if value <= 0 or not math.isfinite(value):
        return "0" if value == 0 else "n/a"
    after = max(0, 2 - math.floor(math.log10(float(f"{value:.3g}"))))  # 9.996 is 10.0
    return f"{value:,.{after}f}"


def _colour(p: Palette, kind: str) -> str:
    """As in a race: what comes first is blue, later tokens are in the colour of text, no cache is vermilion."""
    return {"prefill": p.q, "race_uncached": p.wasted}.get(kind, p.text)


def _ticks(low: float, high: float) -> dict:
    """Axis settings for log10 values from `low` to `high`: each power of ten, with 2 and 5 between where few fit."""
    steps = (1, 2, 5) if high - low < 2.6 else (1,)
    marks = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in steps]
    marks = [m for m in marks if low <= math.log10(m) <= high]
    return {
        **between(low, high),
        "tickmode": "array",
        "tickvals": [math.log10(m) for m in marks],
        "ticktext": [f"{m:,g}" if m < 1000 else f"{m:,.0f}" for m in marks],
    }


def _unit(rates: Rates) -> tuple[str, float]:
    return ("TFLOP/s", 1e12) if rates.flop_rate.median >= 3e12 else ("GFLOP/s", 1e9)


def _steps(roof: Roofline) -> list[Step]:
    """Those that have not been left out for want of memory."""
    missing = {(s.kind, s.batch) for s in roof.skipped}
    return [s for s in roof.steps if (s.kind, s.batch) not in missing]


def drawing(roof: Roofline, *, words: Words, dark: bool, batch: int = 1, lanes: Sequence[Point] = ()) -> go.Figure:
    """The two ceilings with the band of their quartiles, the ridge, and a mark a pass, hollow below 16 of them. A pass
    that has not been timed has no height: it is a tick on the axis of intensity.

    Before the rates are known: only where the passes lie on the axis of intensity.
    """
    if roof.rates is None:
        return _along_the_axis(roof, words, palette(dark), batch)
    p, rates = palette(dark), roof.rates
    unit, size = _unit(rates)
    seen = [*(s.intensity for s in _steps(roof)), *(lane.step.intensity for lane in lanes), roof.ridge or 1]
    left, right = math.log10(min(seen) / 2.2), math.log10(max(seen) * 3)
    heights = [pt.achieved for pt in (*roof.points, *lanes)] or [_best(s, rates) for s in _steps(roof)]
    tops = [rates.flop_rate.high, *heights]
    low, high = math.log10(min(heights) / size / 2.5), math.log10(max(tops) / size * 2.2)
    figure = frame(
        roof,
        p,
        x={**_ticks(left, right), "title": words["intensity"], "showgrid": False},
        y={**_ticks(low, high), "title": words["rate_axis"].format(unit=unit)},
        height=HEIGHT,
    )
    done = {(pt.step.kind, pt.step.batch): pt for pt in roof.points}
    untimed = [s for s in _steps(roof) if (s.kind, s.batch) not in done]
    untimed.sort(key=lambda s: s.kind != "decode")  # the first one's colour is that of the legend
    _roof(figure, roof, rates, words, p, (left, right, low), size, lift=38 if untimed else 3)
    for pt in (*roof.points, *lanes):  # how far each is from what it could be
        x, best = math.log10(pt.step.intensity), _best(pt.step, rates)
        figure.add_scatter(
            x=[x, x], y=[math.log10(pt.achieved / size), math.log10(best / size)], mode="lines", hoverinfo="skip",
            showlegend=False, line={"color": _colour(p, pt.step.kind), "width": 1, "dash": "dot"},
        )  # fmt: skip
    for kind in ("decode", "prefill"):
        if not (mine := [done[at] for s in _steps(roof) if s.kind == kind and (at := (s.kind, s.batch)) in done]):
            continue
        ys = [pt.achieved / size for pt in mine]
        said = [_hover(pt.step, pt, words, rates) for pt in mine]
        _marks(figure, p, words, kind, [pt.step for pt in mine], ys, [not pt.enough for pt in mine], said, batch)
    if untimed:
        _on_the_axis(figure, p, words, untimed, low + 0.03 * (high - low), rates, batch)
    for lane in lanes:
        said = _hover(lane.step, lane, words, rates)
        _marks(figure, p, words, lane.step.kind, [lane.step], [lane.achieved / size], [False], [said], 0)
    return figure


def _on_the_axis(figure, p: Palette, words: Words, steps: Sequence[Step], y: float, rates: Rates, batch: int) -> None:
    """Where passes lie that are known by formula alone: ticks on the axis, those of decode with their batch."""
    decode = [s for s in steps if s.kind == "decode"]
    label = dict(zip(decode, _labels(decode, batch), strict=True))
    figure.add_scatter(
        x=[math.log10(s.intensity) for s in steps],
        y=[y] * len(steps),
        mode="markers+text",
        name=words["by_formula"],
        text=[label.get(s, "") for s in steps],
        textposition="top center",
        textfont={"color": p.muted, "size": 12},
        marker={
            "symbol": "line-ns-open",
            "size": 14,
            "color": [_colour(p, s.kind) for s in steps],
            "line": {"width": [4 if s in label and s.batch == batch else 2 for s in steps]},
        },
        customdata=[_hover(s, None, words, rates) for s in steps],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _best(step: Step, rates: Rates) -> float:
    return _best_at(step.intensity, rates)


def _best_at(intensity: float, rates: Rates) -> float:
    return theory.attainable(intensity, rates.flop_rate.median, rates.bandwidth.median)


def _roof(
    figure: go.Figure, roof: Roofline, rates: Rates, words: Words, p: Palette, ends: tuple, size: float, lift: int
) -> None:
    """`lift`: pixels between the axis and the ridge's name."""
    left, right, low = ends

    def line(bandwidth: float, flop_rate: float) -> tuple[list[float], list[float]]:
        bend = math.log10(flop_rate / bandwidth)
        xs = [left, min(max(bend, left), right), right]
        return xs, [math.log10(theory.attainable(10**x, flop_rate, bandwidth) / size) for x in xs]

    lower = line(rates.bandwidth.low, rates.flop_rate.low)
    upper = line(rates.bandwidth.high, rates.flop_rate.high)
    figure.add_scatter(
        x=[*lower[0], *upper[0][::-1]], y=[*lower[1], *upper[1][::-1]], fill="toself", fillcolor=p.masked,
        line={"width": 0, "color": p.masked}, hoverinfo="skip", name=words["band"], mode="lines",
    )  # fmt: skip
    xs, ys = line(rates.bandwidth.median, rates.flop_rate.median)
    figure.add_scatter(
        x=xs, y=ys, mode="lines", line={"color": p.muted, "width": 3}, name=words["roof"], hoverinfo="skip"
    )
    bend = math.log10(roof.ridge or 1)
    figure.add_scatter(
        x=[bend, bend], y=[low, ys[1]], mode="lines", line={"color": p.muted, "width": 1.5, "dash": "dash"},
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    half = max((left + bend) / 2, left + 0.16 * (right - left))  # the label beside it keeps within the axes
    slope = _best_at(10**half, rates)
    ridge = words["ridge"].format(ridge=digits(roof.ridge or 0))
    notes = (
        (bend, low, f"<b>{ridge}</b>", {"xanchor": "left", "yanchor": "bottom", "xshift": 5, "yshift": lift}),
        (bend, ys[1], si(rates.flop_rate.median, "FLOP/s"), {"xanchor": "left", "yanchor": "bottom", "yshift": 7}),
        (half, math.log10(slope / size), si(rates.bandwidth.median, "B/s"),
         {"xanchor": "right", "yanchor": "bottom", "xshift": -6, "yshift": 4}),
    )  # fmt: skip
    for x, y, said, place in notes:
        figure.add_annotation(x=x, y=y, text=said, showarrow=False, font={"color": p.muted, "size": 13}, **place)


def _marks(figure, p: Palette, words: Words, kind: str, steps, ys, hollow, said, batch: int) -> None:
    colour = _colour(p, kind)
    chosen = [s.batch == batch for s in steps]
    figure.add_scatter(
        x=[math.log10(s.intensity) for s in steps],
        y=[math.log10(y) for y in ys],
        mode="markers+text" if batch else "markers",
        name=words[f"kind_{kind}"],
        text=_labels(steps, batch),
        # With few rows squares and circles lie in the same place, and their numbers must not.
        textposition=[*["bottom center"] * (len(steps) - 1), "middle right"] if kind == "decode" else "middle left",
        textfont={"color": p.text, "size": 12},
        marker={
            "symbol": FORMS[kind],
            "size": [16 if mine or not batch else 10 for mine in chosen],
            "color": [p.background if empty else colour for empty in hollow],
            "line": {"color": colour, "width": 2},
        },
        customdata=said,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _labels(steps: Sequence[Step], batch: int) -> list[str]:
    """The batches, but for those too near the one before or the last; the chosen one is in bold."""
    texts, before = [], -math.inf
    for s in steps:
        x, last = math.log10(s.intensity), math.log10(steps[-1].intensity)
        apart = x - before > NEAR and last - x > NEAR
        show = apart or s is steps[-1] or s.batch == batch
        texts.append("" if not show else f"<b>{s.batch}</b>" if s.batch == batch else f"{s.batch}")
        before = x if show else before
    return texts


def _along_the_axis(roof: Roofline, words: Words, p: Palette, batch: int) -> go.Figure:
    seen = [s.intensity for s in roof.steps]
    left, right = math.log10(min(seen) / 2.2), math.log10(max(seen) * 3)
    figure = frame(
        roof,
        p,
        x={**_ticks(left, right), "title": words["intensity"]},
        y={**between(-0.7, 1.7), "tickmode": "array", "tickvals": [], "showgrid": False,
           "title": words["not_measured"]},
        height=HEIGHT,
    )  # fmt: skip
    for kind, y in (("decode", 0.0), ("prefill", 1.0)):
        mine = [s for s in roof.steps if s.kind == kind]
        said = [_hover(s, None, words, None) for s in mine]
        _marks(figure, p, words, kind, mine, [10**y] * len(mine), [True] * len(mine), said, batch)
    return figure


def _hover(step: Step, point: Point | None, words: Words, rates: Rates | None) -> str:
    lines = [
        f"<b>{words[f'kind_{step.kind}']}, {words['batch']} {step.batch}</b>",
        f"{si(step.flops, 'FLOP')} / {si(step.moved, 'B')} = {digits(step.intensity)} {words['intensity_short']}",
    ]
    if rates is not None:
        lines.append(f"{words['floor']} {text.milliseconds(floor_ms(step, rates))} ms")
    if point is not None:
        lines += [
            f"{words['measured']} {_spread(point.ms)} ms, n = {point.ms.count}",
            f"{si(point.achieved, 'FLOP/s')}, {digits(point.distance)} × {words['floor']}",
            f"MBU {text.percent(point.mbu)}, MFU {text.percent(point.mfu)}",
        ]
    return "<br>".join(lines)


def _spread(s: Spread) -> str:
    return f"{text.milliseconds(s.median)} ({text.milliseconds(s.low)} – {text.milliseconds(s.high)})"


def drawing_table(roof: Roofline, *, words: Words, batch: int = 1, lanes: Sequence[Point] = ()) -> dict[str, list]:
    """A line a pass; what has not been measured is None."""
    done = {(pt.step.kind, pt.step.batch): pt for pt in (*roof.points, *lanes)}
    steps = [*_steps(roof), *(lane.step for lane in lanes)]
    points = [done.get((s.kind, s.batch)) for s in steps]
    rates = roof.rates

    def measured(number) -> list:
        return [None if pt is None else number(pt) for pt in points]

    return {
        words["pass"]: [words[f"kind_{s.kind}"] for s in steps],
        words["batch"]: [s.batch for s in steps],
        words["rows"]: [s.batch * s.new for s in steps],
        words["keys"]: [s.held + s.new for s in steps],
        "FLOP": [s.flops for s in steps],
        words["bytes"]: [s.moved for s in steps],
        words["intensity"]: [round(s.intensity, 3) for s in steps],
        f"{words['floor']} (ms)": [None if rates is None else round(floor_ms(s, rates), 3) for s in steps],
        f"{words['measured']} (ms)": measured(lambda pt: _spread(pt.ms)),
        "n": measured(lambda pt: pt.ms.count),
        "FLOP/s": measured(lambda pt: si(pt.achieved, "FLOP/s")),
        "MBU": measured(lambda pt: text.percent(pt.mbu)),
        "MFU": measured(lambda pt: text.percent(pt.mfu)),
        f"× {words['floor']}": measured(lambda pt: round(pt.distance, 2)),
        words["copied"]: [s.copied for s in steps],
    }
