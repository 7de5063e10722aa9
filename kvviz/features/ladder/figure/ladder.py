"""Charts of the ladder: milliseconds a token by length, the clock, first and later tokens, bytes held and copied.

Each has figure, table, and numbers for its sentence. Lanes are told apart by colour (what is kept) and by dash (kernel
and precision), the same in every view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import plotly.graph_objects as go

from kvviz.features.ladder.record.ladder import WIDTH, Ladder, Rung, running_median
from kvviz.features.race.record import TIE, Spread
from kvviz.figures import text
from kvviz.figures.frame import frame, quartiles, styled_axis
from kvviz.figures.palette import Palette, palette
from kvviz.theory.memory import copied_by_concatenation, kv_bytes, written_after_prefill

HEIGHT = 372  # pixels
RIGHT = 84  # pixels, for the numbers at the ends of lines
FEW = 6  # lanes whose last values are written beside their lines
APART = 0.052  # of the height: two numbers at the ends of lines stand no closer
MIB = 2**20
VIEWS = ("time", "clock", "tokens", "bytes")
Words = Mapping[str, str]


@dataclass(frozen=True)
class Look:
    """How a lane is drawn."""

    name: str
    colour: str
    ink: str  # of text
    dash: str
    pattern: str  # of a bar


def looks(ladder: Ladder, words: Words, p: Palette) -> list[Look]:
    colours = {"none": (p.wasted, p.wasted_text), "concatenated": (p.text, p.text), "preallocated": (p.q, p.q_text)}
    dashes = {(False, "sdpa"): "solid", (False, "eager"): "dash", (True, "sdpa"): "dot", (True, "eager"): "longdash"}
    patterns = {(False, "sdpa"): "", (False, "eager"): "/", (True, "sdpa"): ".", (True, "eager"): "x"}
    found = []
    for rung in ladder.rungs:
        kind = (rung.dtype != ladder.model.dtype, rung.kernel)
        dash, pattern = ("dashdot", "-") if rung.compiled else (dashes[kind], patterns[kind])
        found.append(Look(lane_name(rung, ladder, words), *colours[rung.cache], dash, pattern))
    return found


def lane_name(rung: Rung, ladder: Ladder, words: Words) -> str:
    """ "preallocated, SDPA"; its precision where it is not the model's own."""
    parts = [words[rung.cache], words[rung.kernel]]
    if rung.dtype != ladder.model.dtype:
        parts.append(words[rung.dtype])
    if rung.compiled:
        parts.append(words["compiled"])
    return joined(parts, words)


def joined(parts: Sequence[str], words: Words) -> str:
    """With the comma of the language."""
    return reduce(lambda before, part: words["and_then"].format(before=before, part=part), parts)


def time(ladder: Ladder, *, words: Words, dark: bool) -> go.Figure:
    """Milliseconds of each pass after the first against the positions its query meets: medians thin, over bands of
    quartiles; running medians thick."""
    p = palette(dark)
    ceiling = _ceiling(ladder)
    last = ladder.P + ladder.N - 1
    figure = frame(
        ladder,
        p,
        x={"title": words["positions"], "showgrid": False, "range": [ladder.P, last + 0.02 * ladder.N]},
        y={"title": words["ms_running" if ladder.n > WIDTH else "ms"], "range": [0, ceiling]},
        height=HEIGHT,
        right=RIGHT,
        uirevision=f"{ladder.key} time",
        legend=legend(p),
        margin=_margin(ladder),
    )
    styles = looks(ladder, words, p)
    for rung, look in zip(ladder.rungs, styles, strict=True):
        x = ladder.P + np.arange(1, rung.n)  # pass i meets P + i positions
        low, _, high = rung.per_pass[:, 1:]
        figure.add_scatter(
            x=np.concatenate([x, x[::-1]]),
            y=np.concatenate([high, low[::-1]]),
            fill="toself",
            fillcolor=look.colour,
            opacity=0.14,
            line={"width": 0, "color": look.colour},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
        )
    ends: dict[int, list[tuple[float, str, str]]] = {}  # by the length at which their lines end
    for rung, look in zip(ladder.rungs, styles, strict=True):
        x, y = ladder.P + np.arange(1, rung.n), rung.per_pass[1, 1:]
        hover = f"{words['positions']} %{{x}}<br>{look.name}: %{{y:.2f}} ms<extra></extra>"
        smooth = running_median(y)
        if len(smooth):
            thin = _line(x, y, look, hover)
            thin.update(opacity=0.4, showlegend=False, line={"color": look.colour, "width": 1})
            figure.add_trace(thin)
            middle = f"{words['running']} %{{x}}<br>{look.name}: %{{y:.2f}} ms<extra></extra>"
            at = x[WIDTH // 2 : len(x) - WIDTH // 2]
            figure.add_trace(_line(at, smooth, look, middle))
            end = float(smooth[-1])
            ends.setdefault(int(at[-1]), []).append((min(end, ceiling), f"{text.milliseconds(end)} ms", look.ink))
        else:
            figure.add_trace(_line(x, y, look, hover))
    for at, numbers in ends.items():  # beside the end of the thick line; where there is none, no number
        _write_ends(figure, numbers if len(ladder.rungs) <= FEW else [], ceiling, at=at, ground=p.background)
    if len(ladder.generate):
        at = float(np.median(ladder.generate))
        line = {"color": p.muted, "width": 1.5, "dash": "5px,4px"}
        figure.add_shape(type="line", xref="paper", x0=0, x1=1, y0=at, y1=at, line=line)
        figure.add_annotation(
            text=words["generate"].format(ms=text.milliseconds(at)), xref="paper", x=0.01, xanchor="left", y=at,
            yanchor="bottom", showarrow=False, font={"size": 12, "color": p.muted},
        )  # fmt: skip
    return figure


def prefills(ladder: Ladder) -> tuple[int, float, float] | None:
    """Of the lanes of one kernel and precision, whose prefill is the same work: how many, and the shortest and longest
    TTFT, medians of the rounds. The kind with the most lanes; None where none has two, or they are even."""
    kinds: dict[tuple[str, str], list[float]] = {}
    for rung in ladder.rungs:
        if rung.ttft.count and not rung.compiled:
            kinds.setdefault((rung.kernel, rung.dtype), []).append(rung.ttft.median)
    found = max(kinds.values(), key=len, default=[])
    return (len(found), min(found), max(found)) if len(found) > 1 and max(found) > TIE * min(found) else None


def time_table(ladder: Ladder, *, words: Words) -> dict[str, list]:
    """Median and quartiles a pass, in ms."""
    columns: dict[str, list] = {words["positions"]: (ladder.P + np.arange(1, ladder.n)).tolist()}
    for rung in ladder.rungs:
        low, median, high = rung.per_pass[:, 1 : ladder.n].round(3)
        name = lane_name(rung, ladder, words)
        for part, values in (("median", median), ("low", low), ("high", high)):
            columns[f"{name}, {words[part]} (ms)"] = values.tolist()
    return columns


def clock(ladder: Ladder, *, words: Words, dark: bool) -> go.Figure:
    """Milliseconds since the start against tokens chosen, prefill included: sums of the medians."""
    p = palette(dark)
    top = max((float(r.cumulative[-1]) for r in ladder.rungs if r.n), default=1.0) * 1.1
    figure = frame(
        ladder,
        p,
        x={"title": words["tokens"], "showgrid": False, "range": [0, ladder.N * 1.02]},
        y={"title": words["ms_so_far"], "range": [0, top], "tickformat": ",d"},
        height=HEIGHT,
        right=RIGHT,
        uirevision=f"{ladder.key} clock",
        legend=legend(p),
        margin=_margin(ladder),
    )
    ends = []
    for rung, look in zip(ladder.rungs, looks(ladder, words, p), strict=True):
        y = rung.cumulative
        hover = f"{words['tokens']} %{{x}}<br>{look.name}: %{{y:,.1f}} ms<extra></extra>"
        figure.add_trace(_line(np.arange(1, rung.n + 1), y, look, hover))
        if len(y):
            ends.append((float(y[-1]), f"{text.milliseconds(float(y[-1]))} ms", look.ink))
    _write_ends(figure, ends, top)
    return figure


def clock_table(ladder: Ladder, *, words: Words) -> dict[str, list]:
    columns: dict[str, list] = {words["tokens"]: list(range(1, ladder.n + 1))}
    for rung in ladder.rungs:
        columns[f"{lane_name(rung, ladder, words)} (ms)"] = rung.cumulative[: ladder.n].round(2).tolist()
    return columns


def tokens(ladder: Ladder, *, words: Words, dark: bool) -> go.Figure:
    """A bar a lane: the first token (TTFT) on the left, a later one (TPOT) on the right, with quartiles; beside a later
    token, as a diamond, what it would take at the measured rates."""
    p = palette(dark)
    styles = looks(ladder, words, p)
    names = [look.name for look in styles]
    axis = {"showgrid": True, "nticks": 5}
    figure = frame(
        ladder,
        p,
        x={"title": words["ttft"], "domain": [0, 0.46], "range": _with_room(ladder, "ttft"), **axis},
        y={"autorange": "reversed", "showgrid": False, "tickvals": names, "ticktext": names},
        height=HEIGHT,
        right=24,
        showlegend=False,
        uirevision=f"{ladder.key} tokens",  # its axes are others: nothing of another view's zoom is kept
        bargap=0.35,
        xaxis2=styled_axis(
            p,
            {"title": words["tpot"], "domain": [0.54, 1], "anchor": "y", "range": _with_room(ladder, "tpot"), **axis},
        ),
    )
    for part, at in (("ttft", "x"), ("tpot", "x2")):
        spreads = [getattr(r, part) for r in ladder.rungs]
        middle = np.array([s.median for s in spreads])
        figure.add_bar(
            y=names,
            x=middle,
            xaxis=at,
            orientation="h",
            marker={
                "color": [look.colour for look in styles],
                "pattern": {
                    "shape": [look.pattern for look in styles],
                    "fillmode": "overlay",
                    "fgcolor": p.background,
                    "size": 6,
                },
            },
            error_x=quartiles(spreads, p),
            hovertemplate=f"%{{y}}<br>{words[part]}: %{{x:,.2f}}<extra></extra>",
        )
        figure.add_scatter(  # behind the quartiles, which would cross a bar's own text
            y=names,
            x=[s.high for s in spreads],
            xaxis=at,
            mode="text",
            text=[f"\u2002{text.milliseconds(m)} ms" if np.isfinite(m) else "" for m in middle],
            textposition="middle right",
            textfont={"color": p.text, "size": 13},
            cliponaxis=False,
            hoverinfo="skip",
        )
    floors = [ladder.floor_ms(r) for r in ladder.rungs]
    figure.add_scatter(
        y=names,
        x=floors,
        xaxis="x2",
        mode="markers",
        marker={"symbol": "diamond", "size": 11, "color": p.k, "line": {"color": p.text, "width": 1}},
        hovertemplate=f"%{{y}}<br>{words['floor']}: %{{x:,.2f}} ms<extra></extra>",
    )
    return figure


def _with_room(ladder: Ladder, part: str) -> list[float]:
    """An axis with room for the numbers behind the upper quartiles."""
    highs = [getattr(r, part).high for r in ladder.rungs]
    return [0, 1.42 * max((h for h in highs if np.isfinite(h)), default=1.0)]


def tokens_table(ladder: Ladder, *, words: Words) -> dict[str, list]:
    """TTFT, TPOT with quartiles, a whole round's mean, the floor and the distance to it, shares of both rates, rows."""
    rungs = ladder.rungs
    columns: dict[str, list] = {words["lane"]: [lane_name(r, ladder, words) for r in rungs]}
    for part in ("ttft", "tpot"):
        spreads = [getattr(r, part) for r in rungs]
        columns[words[part]] = [f"{s.median:,.2f} ({s.low:,.2f} – {s.high:,.2f})" for s in spreads]
    columns[words["mean"]] = [_number(Spread.of(r.means).median, 2) for r in rungs]
    columns[f"{words['floor']} (ms)"] = [_number(ladder.floor_ms(r), 2) for r in rungs]
    columns[words["distance"]] = [_number(r.tpot.median / ladder.floor_ms(r), 2) for r in rungs]
    columns["MBU (%)"] = [_number(100 * ladder.bandwidth_share(r), 1) for r in rungs]
    columns["MFU (%)"] = [_number(100 * ladder.arithmetic_share(r), 1) for r in rungs]
    columns[words["rows"]] = [ladder.rows(r) for r in rungs]
    columns[words["held"]] = [int(r.held[-1]) if r.n else 0 for r in rungs]
    columns[words["repeats"]] = [r.complete for r in rungs]
    return columns


def bytes_(ladder: Ladder, *, words: Words, dark: bool) -> go.Figure:
    """On the left the bytes that each lane holds, counted; on the right, by formula, what concatenation has copied so
    far, against what is new."""
    p = palette(dark)
    figure = frame(
        ladder,
        p,
        x={"title": words["positions"], "domain": [0, 0.44], "showgrid": False},
        y={"title": words["held_axis"], "rangemode": "tozero"},
        height=HEIGHT,
        right=RIGHT,
        uirevision=f"{ladder.key} bytes",
        legend=legend(p),
        margin=_margin(ladder),
        xaxis2=styled_axis(p, {"title": words["positions"], "domain": [0.58, 1], "anchor": "y2", "showgrid": False}),
        yaxis2=styled_axis(p, {"title": words["moved_axis"], "anchor": "x2", "rangemode": "tozero"}),
    )
    for rung, look in zip(ladder.rungs, looks(ladder, words, p), strict=True):
        if rung.cache == "none":
            continue
        hover = f"{words['positions']} %{{x}}<br>{look.name}: %{{y:.3f}} MiB<extra></extra>"
        figure.add_trace(_line(ladder.P + np.arange(rung.n), rung.held / MIB, look, hover))
    passes, copied, written = moved(ladder)
    for values, name, colour, dash, ink in (
        (copied, words["copied"], p.wasted, "solid", p.wasted_text),
        (written, words["written"], p.v, "solid", p.v_text),
    ):
        figure.add_scatter(
            x=ladder.P + passes, y=values / MIB, xaxis="x2", yaxis="y2", mode="lines", name=name,
            line={"color": colour, "width": 3, "dash": dash},
            hovertemplate=f"{words['positions']} %{{x}}<br>{name}: %{{y:,.3f}} MiB<extra></extra>",
        )  # fmt: skip
        figure.add_annotation(
            text=f"{values[-1] / MIB:,.1f} MiB", xref="paper", x=1.005, xanchor="left", yref="y2",
            y=values[-1] / MIB, showarrow=False, font={"size": 13, "color": ink},
        )  # fmt: skip
    return figure


def moved(ladder: Ladder) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(N,) passes, and bytes up to each of them in the model's precision: copied by concatenation, written."""
    m = ladder.model
    token = kv_bytes(m.layers, m.kv_heads, m.head_dim, 1, m.value_bytes) * ladder.batch
    passes = np.arange(ladder.N)
    copied = np.array([copied_by_concatenation(ladder.P, int(i) + 1, token) for i in passes])
    return passes, copied, np.array([written_after_prefill(int(i) + 1, token) for i in passes])


def bytes_table(ladder: Ladder, *, words: Words) -> dict[str, list]:
    passes, copied, written = moved(ladder)
    n = ladder.n
    columns: dict[str, list] = {words["positions"]: (ladder.P + passes[:n]).tolist()}
    for rung in ladder.rungs:
        columns[f"{lane_name(rung, ladder, words)}, {words['held']}"] = rung.held[:n].tolist()
    columns[f"{words['copied']} ({words['bytes']})"] = copied[:n].tolist()
    columns[f"{words['written']} ({words['bytes']})"] = written[:n].tolist()
    return columns


DRAW: Mapping[str, tuple[Callable[..., go.Figure], Callable[..., dict[str, list]]]] = {
    "time": (time, time_table),
    "clock": (clock, clock_table),
    "tokens": (tokens, tokens_table),
    "bytes": (bytes_, bytes_table),
}


def _line(x: np.ndarray, y: np.ndarray, look: Look, hover: str) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=y,
        mode="lines" if len(x) > 1 else "markers",
        name=look.name,
        line={"color": look.colour, "width": 2.5, "dash": look.dash},
        marker={"color": look.colour, "size": 8},
        hovertemplate=hover,
    )


def _write_ends(
    figure: go.Figure, ends: list[tuple[float, str, str]], top: float, *, at: int | None = None, ground: str = ""
) -> None:
    """The last value of each line where they end, at x = `at` or in the margin; moved apart where they would overlap,
    none above the picture. Of more than FEW lines none: they would stand far from where they belong."""
    ends, places, height = sorted(ends) if len(ends) <= FEW else [], [], -np.inf
    for value, *_ in ends:
        height = max(value / top, height + APART)
        places.append(height)
    highest = 1.0
    for i in reversed(range(len(places))):
        places[i] = min(places[i], highest)
        highest = places[i] - APART
    where = {"xref": "paper", "x": 1.005} if at is None else {"x": at, "xshift": 4, "bgcolor": ground, "borderpad": 0}
    for place, (_, said, ink) in zip(places, ends, strict=True):
        figure.add_annotation(
            text=said, xanchor="left", yref="paper", y=place, yanchor="middle", showarrow=False,
            font={"size": 13, "color": ink}, **where,
        )  # fmt: skip


def legend(p: Palette) -> dict:
    """Over the picture, from its left edge, in as many lines as it takes."""
    return {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal", "itemclick": False,
            "itemdoubleclick": False, "font": {"color": p.text, "size": 13}}  # fmt: skip


def _margin(ladder: Ladder) -> dict:
    """Room above for the legend: about three lanes a line."""
    return {"l": 64, "r": RIGHT, "t": 24 + 22 * -(-len(ladder.rungs) // 3), "b": 56}


def _ceiling(ladder: Ladder) -> float:
    """Over the bands of nearly every pass: one slow pass does not flatten the rest."""
    high = np.concatenate([r.per_pass[2, 1:] for r in ladder.rungs]) if ladder.rungs else np.zeros(0)
    return float(np.percentile(high, 98)) * 1.15 if len(high) else 1.0


def _number(value: float, digits: int) -> float | None:
    return None if np.isnan(value) else round(float(value), digits)
