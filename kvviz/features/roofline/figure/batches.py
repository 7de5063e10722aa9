"""What batching does to a decode step: its milliseconds and its tokens a second, each beside what the roof allows."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from kvviz.features.ladder.record.ladder import Rates
from kvviz.features.race.record import Spread
from kvviz.features.roofline.figure.roofline import digits, scale, si
from kvviz.features.roofline.record import Point, Roofline, Step, floor_ms
from kvviz.figures import text
from kvviz.figures.frame import between, frame, quartiles, styled_axis
from kvviz.figures.palette import Palette, palette

Words = Mapping[str, str]


def _decode(roof: Roofline) -> list[Point]:
    return [pt for pt in roof.points if pt.step.kind == "decode"]


def batches(roof: Roofline, *, words: Words, dark: bool) -> go.Figure:
    """Left: milliseconds of a pass, which are the milliseconds a token of each sequence. Right: tokens a second of all
    sequences. Dashed: the floor, and what it would allow. ValueError without points."""
    points = _decode(roof)
    if not points:
        raise ValueError("no decode step was timed")
    p = palette(dark)
    at = list(range(len(points)))
    x = {
        **between(-0.5, len(points) - 0.5),
        "title": words["batch_axis"],
        "tickmode": "array",
        "tickvals": at,
        "ticktext": [f"{pt.step.batch}" for pt in points],
        "showgrid": False,
    }
    rates = [pt.step.batch / pt.ms.median * 1000 for pt in points]
    allowed = [pt.step.batch / pt.floor_ms * 1000 for pt in points]
    highest = max(max(pt.ms.high, pt.floor_ms) for pt in points)
    figure = frame(
        roof,
        p,
        x={**x, "domain": [0, 0.44]},
        y={**between(0, highest * 1.12), "title": words["ms_axis"], "tickformat": ","},
        height=360,
        xaxis2=styled_axis(p, {**x, "domain": [0.57, 1], "anchor": "y2"}),
        yaxis2=styled_axis(
            p,
            {**between(0, max(*rates, *allowed) * 1.12), "title": words["tokens_axis"], "tickformat": ",",
             "anchor": "x2"},
        ),
    )  # fmt: skip
    middle = [pt.ms.median for pt in points]
    error = quartiles([pt.ms for pt in points], p)
    ms = [f"{text.milliseconds(y)} ms" for y in middle]
    _line(figure, p, at, middle, words["measured"], ms, error_y=error)
    floors = [pt.floor_ms for pt in points]
    _line(figure, p, at, floors, words["floor"], [f"{text.milliseconds(y)} ms" for y in floors], floor=True)
    _line(figure, p, at, rates, "", [f"{digits(y)} {words['tokens_short']}" for y in rates], axis="2")
    said = [f"{digits(y)} {words['tokens_short']}" for y in allowed]
    _line(figure, p, at, allowed, "", said, floor=True, axis="2")
    return figure


def _line(figure: go.Figure, p: Palette, x, y, name: str, said, *, floor: bool = False, axis: str = "", **more) -> None:
    colour = p.muted if floor else p.text
    figure.add_scatter(
        x=x, y=y, name=name, xaxis=f"x{axis}", yaxis=f"y{axis}", mode="lines+markers", showlegend=bool(name),
        line={"color": colour, "width": 2, "dash": "dash" if floor else "solid"},
        marker={"symbol": "line-ew" if floor else "circle", "size": 9, "color": colour,
                "line": {"color": colour, "width": 2 if floor else 0}},
        customdata=said, hovertemplate="%{customdata}<extra></extra>", **more,
    )  # fmt: skip


def batches_table(roof: Roofline, *, words: Words) -> dict[str, list]:
    points = _decode(roof)
    return {
        words["batch"]: [pt.step.batch for pt in points],
        f"{words['measured']} (ms)": [round(pt.ms.median, 3) for pt in points],
        f"{words['quartiles']} (ms)": [f"{pt.ms.low:,.2f} – {pt.ms.high:,.2f}" for pt in points],
        f"{words['floor']} (ms)": [round(pt.floor_ms, 3) for pt in points],
        f"× {words['floor']}": [round(pt.distance, 2) for pt in points],
        words["tokens_axis"]: [round(pt.step.batch / pt.ms.median * 1000, 1) for pt in points],
        words["tokens_floor"]: [round(pt.step.batch / pt.floor_ms * 1000, 1) for pt in points],
    }


# Numbers of the sentences


def roofline_values(roof: Roofline, batch: int = 1) -> dict[str, object]:
    """What sentences about a decode step of that batch, the prefill and the roof may name. `model` is not yet literal.

    "case": planned (no rates yet), bytes or arithmetic (which of them decides this decode step).
    """
    m = roof.model
    step, prefill = roof.step("decode", batch), roof.step("prefill")
    assert step is not None and prefill is not None
    values: dict[str, object] = {
        "model": m.name,
        "dtype": m.dtype,
        "P": text.count(roof.P),
        "T": text.count(step.held + step.new),
        "held": text.count(step.held),
        "new": text.count(step.new),
        "B": text.count(batch),
        "L": text.count(m.layers),
        "H": text.count(m.heads),
        "D": text.count(m.head_dim),
        "values": text.count(step.weights // m.value_bytes),
        "values_code": f"{step.weights // m.value_bytes:_}",
        "token_code": f"{m.kv_bytes_per_token:_}",
        "value_bytes": m.value_bytes,
        "weights": text.count(step.weights),
        "weights_short": si(step.weights, "B"),
        "token": text.count(m.kv_bytes_per_token),
        "kv": text.count(step.kv),
        "kv_short": si(step.kv, "B"),
        "copied": si(step.copied, "B"),
        "bytes": text.count(step.moved),
        "bytes_short": si(step.moved, "B"),
        "flops": text.count(step.flops),
        "flops_short": si(step.flops, "FLOP"),
        "intensity": digits(step.intensity),
        "limit": digits(step.flops / step.kv),
        "prefill_flops": si(prefill.flops, "FLOP"),
        "prefill_bytes": si(prefill.moved, "B"),
        "prefill_intensity": digits(prefill.intensity),
        "rounds": text.count(roof.rounds),
        "planned": text.count(roof.planned),
        "skipped": ", ".join(f"{s.batch}" for s in roof.skipped if s.kind == "decode"),
        "case": "planned",
    }
    return values | _of_rates(roof, step, prefill) | _of_points(roof, batch)


def _of_rates(roof: Roofline, step: Step, prefill: Step) -> dict[str, object]:
    rates = roof.rates
    if rates is None:
        return {}
    ridge = roof.ridge or 0.0
    return {
        "case": "bytes" if step.intensity < ridge else "arithmetic",
        "prefill_case": "bytes" if prefill.intensity < ridge else "arithmetic",
        "ridge": digits(ridge),
        "turning": None if roof.turning is None else text.count(roof.turning),
        "bandwidth": _rate(rates, "bandwidth", "B/s"),
        "flop_rate": _rate(rates, "flop_rate", "FLOP/s"),
        "floor": text.milliseconds(floor_ms(step, rates)),
        "prefill_floor": text.milliseconds(floor_ms(prefill, rates)),
    }


def _rate(rates: Rates, name: str, unit: str) -> str:
    """23.0 GB/s (19.8 – 23.1)"""
    s: Spread = getattr(rates, name)
    size = scale(s.median)[1]
    return f"{si(s.median, unit)} ({digits(s.low / size)} – {digits(s.high / size)})"


def _of_points(roof: Roofline, batch: int) -> dict[str, object]:
    point, prefill, one = roof.point("decode", batch), roof.point("prefill"), roof.point("decode")
    found: dict[str, object] = {}
    if point is not None:
        found |= {
            "ms": text.milliseconds(point.ms.median),
            "low": text.milliseconds(point.ms.low),
            "high": text.milliseconds(point.ms.high),
            "mbu": text.percent(point.mbu),
            "mfu": text.percent(point.mfu),
            "distance": digits(point.distance),
            "tokens": digits(1000 * batch / point.ms.median),
        }
    if prefill is not None:
        found |= {
            "prefill_ms": text.milliseconds(prefill.ms.median),
            "prefill_mfu": text.percent(prefill.mfu),
            "prefill_mbu": text.percent(prefill.mbu),
            "prefill_distance": digits(prefill.distance),
        }
    most = max((pt for pt in roof.points if pt.step.kind == "decode"), key=lambda pt: pt.step.batch, default=None)
    if one is not None and most is not None:
        found |= {
            "most": text.count(most.step.batch),
            "most_ms": text.milliseconds(most.ms.median),
            "one_ms": text.milliseconds(one.ms.median),
            "longer": digits(most.ms.median / one.ms.median),
            "gain": digits(most.step.batch * one.ms.median / most.ms.median),
            "one_tokens": digits(1000 / one.ms.median),
            "most_tokens": digits(1000 * most.step.batch / most.ms.median),
        }
    return found


def lane_values(lane: Point) -> dict[str, object]:
    """A lane of the last race, for its line in the text."""
    return {
        "lane_ms": text.milliseconds(lane.ms.median),
        "lane_floor": text.milliseconds(lane.floor_ms),
        "lane_distance": digits(lane.distance),
        "lane_T": text.count(lane.step.held + lane.step.new),
    }
