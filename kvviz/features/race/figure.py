"""Charts of a race: milliseconds a token, the clock, the rows a pass, and the wait for the first token.

Each chart has three functions, like those that follow a run: figure, table, and the numbers of its sentence.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.features.race.record import ENOUGH, Lane, Race, Spread, Waits
from kvviz.figures import text
from kvviz.figures.frame import frame, quartiles
from kvviz.figures.palette import Palette, palette
from kvviz.figures.time import running_median

HEIGHT = 320
RIGHT = 88  # pixels, for the labels at the ends of lines
Words = Mapping[str, str]


def _lanes(race: Race, words: Words, p: Palette) -> list[tuple[Lane, str, dict, str, str]]:
    """Lane, name, line, text colour and band colour. Told apart by dash as well as by hue."""
    return [
        (
            race.uncached,
            words["uncached"],
            {"color": p.wasted, "width": 2.5, "dash": "dash"},
            p.wasted_text,
            p.wasted_ground,
        ),
        (race.cached, words["cached"], {"color": p.text, "width": 2.5, "dash": "solid"}, p.text, p.line),
    ]


def _line(
    x: np.ndarray, y: np.ndarray, name: str, line: dict, ink: str, end: str, place: str, hover: str
) -> go.Scatter:
    """A line with its last value written at its end."""
    return go.Scatter(
        x=x,
        y=y,
        mode="lines+text" if len(x) > 1 else "markers+text",
        name=name,
        line=line,
        marker={"color": line["color"], "size": 8},
        text=[""] * (len(x) - 1) + [f"\u2002{end}"],  # a little away from the line
        textposition=place,
        textfont={"size": 14, "color": ink},
        cliponaxis=False,
        hovertemplate=hover,
    )


def _places(last: list[float], top: float) -> list[str]:
    """End labels in the margin to the right; of two that would touch, the higher one over its line, the lower under."""
    if abs(last[0] - last[1]) > 0.1 * top:
        return ["middle right", "middle right"]
    return ["top right", "bottom right"] if last[0] >= last[1] else ["bottom right", "top right"]


def per_token(race: Race, *, words: Words, dark: bool) -> go.Figure:
    """Milliseconds of each pass after the first against the positions its query meets: median, band of quartiles.

    From 16 of them on a running median over the last 16, with its last value at its end: the line of single passes is
    thin then, and nameless. Before, no number stands beside a line.
    """
    p = palette(dark)
    figure = frame(
        race,
        p,
        x={"title": words["positions"], "showgrid": False},
        y={"title": words["ms_running" if race.n > ENOUGH else "ms"], "range": [0, _ceiling(race)]},
        height=HEIGHT,
        right=RIGHT,
    )
    x = race.P + np.arange(1, race.n)  # pass i meets P + i positions
    lanes = _lanes(race, words, p)
    for lane, _, _, _, band in lanes:
        low, _, high = lane.per_pass[:, 1:]
        figure.add_scatter(
            x=np.concatenate([x, x[::-1]]),
            y=np.concatenate([high, low[::-1]]),
            fill="toself",
            fillcolor=band,
            line={"width": 0, "color": band},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
        )
    smooth = [running_median(lane.per_pass[1, 1:])[ENOUGH - 1 :] for lane, *_ in lanes]  # (n - 16,) each
    places = _places([float(s[-1]) for s in smooth], _ceiling(race)) if len(smooth[0]) else ["middle right"] * 2
    for (lane, name, line, ink, _), place, thick in zip(lanes, places, smooth, strict=True):
        y = lane.per_pass[1, 1:]
        hover = f"{words['positions']} %{{x}}<br>{name}: %{{y:.2f}} ms<extra></extra>"
        if not len(thick):
            figure.add_trace(_line(x, y, name=name, line=line, ink=ink, end="", place=place, hover=hover))
            continue
        thin = line | {"width": 1, "dash": "solid"}
        figure.add_scatter(x=x, y=y, mode="lines", line=thin, opacity=0.5, hovertemplate=hover, showlegend=False)
        end = f"{text.milliseconds(float(thick[-1]))} ms"
        hover = f"{words['running']} %{{x}}<br>{name}: %{{y:.2f}} ms<extra></extra>"
        at = x[ENOUGH - 1 :]
        figure.add_trace(_line(at, thick, name=name, line=line, ink=ink, end=end, place=place, hover=hover))
    return figure


def _ceiling(race: Race) -> float:
    """Over the bands of nearly every pass: one slow pass does not flatten the rest."""
    high = np.concatenate([race.uncached.per_pass[2, 1:], race.cached.per_pass[2, 1:]])
    return float(np.percentile(high, 98)) * 1.2 if len(high) else 1.0


def per_token_table(race: Race, *, words: Words) -> dict[str, list]:
    """Median and quartiles a pass, in ms."""
    columns: dict[str, list] = {words["positions"]: (race.P + np.arange(1, race.n)).tolist()}
    for side, lane in (("uncached", race.uncached), ("cached", race.cached)):
        low, median, high = lane.per_pass[:, 1:].round(3)
        for part, values in (("median", median), ("low", low), ("high", high)):
            columns[f"{words[side]}, {words[part]} (ms)"] = values.tolist()
    return columns


def clock(race: Race, *, words: Words, dark: bool) -> go.Figure:
    """Milliseconds since the start against tokens chosen, prefill included."""
    p = palette(dark)
    x = np.arange(1, race.n + 1)
    lanes = _lanes(race, words, p)
    top = max(float(lane.cumulative[-1]) for lane, *_ in lanes)
    figure = frame(
        race,
        p,
        x={"title": words["tokens"], "showgrid": False, "range": [0, race.n * 1.02]},
        y={"title": words["ms_so_far"], "range": [0, top * 1.15], "tickformat": ",d"},
        height=HEIGHT,
        right=RIGHT,
    )
    places = _places([float(lane.cumulative[-1]) for lane, *_ in lanes], top)
    for (lane, name, line, ink, _), place in zip(lanes, places, strict=True):
        y = lane.cumulative
        hover = f"{words['tokens']} %{{x}}<br>{name}: %{{y:,.1f}} ms<extra></extra>"
        end = f"{text.milliseconds(float(y[-1]))} ms"
        figure.add_trace(_line(x, y, name=name, line=line, ink=ink, end=end, place=place, hover=hover))
    return figure


def clock_table(race: Race, *, words: Words) -> dict[str, list]:
    return {
        words["tokens"]: list(range(1, race.n + 1)),
        f"{words['uncached']} (ms)": race.uncached.cumulative.round(2).tolist(),
        f"{words['cached']} (ms)": race.cached.cumulative.round(2).tolist(),
    }


def rows(race: Race, *, words: Words, dark: bool) -> go.Figure:
    """Token rows of each pass: what both lanes compute is solid, what only the no-cache lane computes is hatched."""
    p = palette(dark)
    figure = frame(
        race,
        p,
        x={"title": words["pass"], "showgrid": False},
        y={"title": words["rows"], "tickformat": ",d"},
        height=HEIGHT,
        barmode="stack",
        bargap=0.15 if race.n <= 120 else 0,
    )
    x = np.arange(race.n)
    edge = 0.5 if race.n <= 120 else 0
    again = race.uncached.rows - race.cached.rows
    hover = f"{words['pass']} %{{x}}<br>%{{fullData.name}}: %{{y:,}}<extra></extra>"
    figure.add_bar(
        x=x, y=race.cached.rows, name=words["both"], marker={"color": p.text, "line": {"width": 0}}, hovertemplate=hover
    )
    figure.add_bar(
        x=x,
        y=again,
        name=words["again"],
        marker={
            "color": p.wasted_ground,
            "line": {"color": p.wasted, "width": edge},
            "pattern": {"shape": "/", "fgcolor": p.wasted, "bgcolor": p.wasted_ground, "size": 7, "solidity": 0.25},
        },
        hovertemplate=hover,
    )
    return figure


def rows_table(race: Race, *, words: Words) -> dict[str, list]:
    return {
        words["pass"]: list(range(race.n)),
        words["uncached"]: race.uncached.rows.tolist(),
        words["cached"]: race.cached.rows.tolist(),
        words["again"]: (race.uncached.rows - race.cached.rows).tolist(),
    }


def race_values(race: Race) -> dict[str, object]:
    """Numbers for the three sentences. "first" and "last" are the positions of the first and last later pass."""
    without, with_ = race.rows
    return {
        "device": race.machine.device_name,
        "P": text.count(race.P),
        "n": text.count(race.n),
        "first": text.count(race.P + 1),
        "last": text.count(race.P + race.n - 1),
        "uncached_tpot": text.milliseconds(race.uncached.tpot.median),
        "cached_tpot": text.milliseconds(race.cached.tpot.median),
        "later_ratio": f"{race.later_ratio:.2f}",
        "prefill": text.milliseconds(race.cached.ttft.median),
        "uncached_total": text.milliseconds(float(race.uncached.cumulative[-1])),
        "cached_total": text.milliseconds(float(race.cached.cumulative[-1])),
        "repeats": text.count(max(1, race.complete)),
        "without": text.count(without),
        "with_": text.count(with_),
        "again": text.count(without - with_),
        "work": f"{race.work_ratio:.1f}",
    }


def waits(found: Waits, *, words: Words, dark: bool) -> go.Figure:
    """A pair of bars a prompt length: first token (blue) and a later one, medians with quartiles."""
    p = palette(dark)
    at = np.arange(len(found.lengths))
    tops = [s.high for s in (*found.ttft, *found.tpot) if np.isfinite(s.high)]
    figure = frame(
        found,
        p,
        x={"tickvals": at, "ticktext": [f"P = {n:,}" for n in found.lengths], "showgrid": False},
        y={"title": words["ms"], "range": [0, max(tops, default=1.0) * 1.2]},
        height=HEIGHT,
        barmode="group",
        bargap=0.3,
    )
    for name, colour, spreads in (
        (words["ttft"], p.q, found.ttft),
        (words["tpot"], p.text, found.tpot),
    ):
        middle = np.array([s.median for s in spreads])
        figure.add_bar(
            x=at,
            y=middle,
            name=name,
            marker={"color": colour},
            text=[f"{text.milliseconds(m)} ms" if np.isfinite(m) else "" for m in middle],
            textposition="outside",
            textfont={"color": p.text, "size": 14},
            cliponaxis=False,
            error_y=quartiles(spreads, p),
            hovertemplate=f"%{{x}}<br>{name}: %{{y:,.2f}} ms<extra></extra>",
        )
    return figure


def waits_table(found: Waits, *, words: Words) -> dict[str, list]:
    def column(spreads: list[Spread]) -> list[str]:
        return [f"{s.median:,.2f} ({s.low:,.2f} – {s.high:,.2f})" if s.count else "–" for s in spreads]

    return {
        words["P"]: list(found.lengths),
        f"{words['ttft']} (ms)": column(found.ttft),
        f"{words['tpot']} (ms)": column(found.tpot),
    }


def waits_values(found: Waits) -> dict[str, object]:
    """Shortest and longest prompt against each other; "case" says whether the longest can be seen to wait longer."""
    short, long = found.ttft[0], found.ttft[-1]
    later = found.tpot
    return {
        "case": "grows" if long.low > 1.5 * short.high else "flat",
        "short": text.count(found.lengths[0]),
        "long": text.count(found.lengths[-1]),
        "ttft_short": text.milliseconds(short.median),
        "ttft_long": text.milliseconds(long.median),
        "tpot_short": text.milliseconds(later[0].median),
        "tpot_long": text.milliseconds(later[-1].median),
        "times": f"{long.median / short.median:.1f}",
        "later_times": f"{later[-1].median / later[0].median:.1f}",
    }
