"""What is said of a ladder, before and after; its first passes, several side by side, and how K and V lie in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from kvviz.features.ladder.figure.ladder import HEIGHT, MIB, RIGHT, joined, lane_name, legend, moved
from kvviz.features.ladder.record.ladder import WIDTH, Ladder, Reads
from kvviz.features.race.record import ENOUGH
from kvviz.figures import text
from kvviz.figures.frame import frame, quartiles
from kvviz.figures.palette import Palette, palette
from kvviz.theory.memory import human

Words = Mapping[str, str]


def ladder_values(ladder: Ladder, words: Words) -> dict[str, object]:
    """Numbers and lanes of the sentences. "case": what may be said of the lanes; "pays": of the crossover."""
    m = ladder.model
    values: dict[str, object] = {
        "case": _case(ladder),
        "device": ladder.machine.device_name,
        "dtype": m.dtype,
        "dtypes": ", ".join(dict.fromkeys(r.dtype for r in ladder.rungs)) or m.dtype,
        "P": text.count(ladder.P),
        "N": text.count(ladder.N),
        "n": text.count(ladder.n),
        "batch": text.count(ladder.batch),
        "lanes": len(ladder.rungs),
        "repeats": text.count(ladder.repeats),
        "complete": text.count(ladder.complete),
        "positions": text.count(ladder.P + ladder.N - 1),
        "copied": text.count(ladder.copied),
        "written": text.count(ladder.written),
        "copied_rows": text.count(sum(range(ladder.P, ladder.P + ladder.N - 1))),
        "appends": text.count(ladder.N - 1),
        "token_bytes": text.count(m.kv_bytes_per_token * ladder.batch),
        "width": WIDTH,
    }
    values |= dict.fromkeys(("fastest", "slowest", "second", "tpot", "slow", "next", "times", "generate", "ratio"), "–")
    if order := ladder.order:
        first = order[0]
        last = [r for r in order if r.dtype == first.dtype][-1]  # precisions are not compared as if they were lanes
        if last is first:
            last = order[-1]
        values |= {
            "fastest": lane_name(first, ladder, words),
            "slowest": lane_name(last, ladder, words),
            "tpot": text.milliseconds(first.tpot.median),
            "slow": text.milliseconds(last.tpot.median),
            "times": f"{last.tpot.median / first.tpot.median:.2f}",
        }
        if len(order) > 1:
            values |= {"second": lane_name(order[1], ladder, words), "next": text.milliseconds(order[1].tpot.median)}
    if len(ladder.generate) and any(r.cache != "none" and r.dtype == m.dtype and r.tpot.count for r in ladder.rungs):
        values["generate"] = text.milliseconds(float(np.median(ladder.generate)))
        values["ratio"] = f"{ladder.to_generate.median:.2f}"
    return values | _pays(ladder, words) | _floor(ladder, words)


def _case(ladder: Ladder) -> str:
    if not ladder.enough:
        return "measuring"
    if len(ladder.rungs) == 1:
        return "single"
    return "clear" if ladder.clear else "even"


def _pays(ladder: Ladder, words: Words) -> dict[str, object]:
    """The crossover of the first pair: from the start, from a length on, not here; no pair to ask, or not yet."""
    values: dict[str, object] = {
        "pays": "no_pair" if ladder.rungs else "wait",
        "from": "–",
        "uncached": "–",
        "cached": "–",
        "first": "–",
    }
    if not ladder.enough:
        return values | {"pays": "wait"}
    if not ladder.pairs:
        return values
    slow, fast = ladder.pairs[0]
    at, first = ladder.crossover(slow, fast), ladder.P + 1 + WIDTH // 2
    values |= {"uncached": lane_name(slow, ladder, words), "cached": lane_name(fast, ladder, words)}
    values |= {"first": text.count(first), "slow_rows": text.count(ladder.rows(slow)),
               "fast_rows": text.count(ladder.rows(fast)),
               "saved": f"{ladder.rows(slow) / ladder.rows(fast):.0f}"}  # fmt: skip
    if min(slow.n, fast.n) - 1 < WIDTH:
        return values | {"pays": "short"}
    if at is None:
        return values | {"pays": "never"}
    return values | {"pays": "always" if at == first else "from", "from": text.count(at)}


def _floor(ladder: Ladder, words: Words) -> dict[str, object]:
    """Of the quickest lane with a cache: bytes and operations of its middle pass, and how far it is from its floor."""
    names = ("floor_lane", "floor", "distance", "mbu", "mfu", "moved", "flops", "bandwidth", "flop_rate", "middle")
    values: dict[str, object] = dict.fromkeys(names, "–") | {"above": False}
    cached = [r for r in ladder.order if r.cache != "none"]
    if not cached or (rates := ladder.rates_of(cached[0])) is None:
        return values
    rung = cached[0]
    return {
        "floor_lane": lane_name(rung, ladder, words),
        "above": rung.tpot.median < ladder.floor_ms(rung),
        "floor": text.milliseconds(ladder.floor_ms(rung)),
        "distance": f"{rung.tpot.median / ladder.floor_ms(rung):.2f}",
        "mbu": text.percent(ladder.bandwidth_share(rung)),
        "mfu": text.percent(ladder.arithmetic_share(rung)),
        "moved": text.count(ladder.moved(rung)),
        "flops": text.count(ladder.flops(rung)),
        "bandwidth": f"{rates.bandwidth.median / 1e9:,.1f}",
        "flop_rate": f"{rates.flop_rate.median / 1e9:,.0f}",
        "middle": text.count(ladder.middle),
    }


def plan(ladder: Ladder, *, words: Words, dark: bool) -> go.Figure:
    """Before anything has run: the bytes that concatenation will copy, against what is new, by formula."""
    p = palette(dark)
    passes, copied, written = moved(ladder)
    figure = frame(
        ladder, p, x={"title": words["positions"], "showgrid": False},
        y={"title": words["moved_axis"], "rangemode": "tozero"}, height=HEIGHT, right=RIGHT, legend=legend(p),
        uirevision="plan",
    )  # fmt: skip
    for values, name, colour, ink in (
        (copied, words["copied"], p.wasted, p.wasted_text),
        (written, words["written"], p.v, p.v_text),
    ):
        figure.add_scatter(
            x=ladder.P + passes, y=values / MIB, mode="lines", name=name, line={"color": colour, "width": 3},
            hovertemplate=f"{words['positions']} %{{x}}<br>{name}: %{{y:,.3f}} MiB<extra></extra>",
        )  # fmt: skip
        figure.add_annotation(
            text=f"{values[-1] / MIB:,.1f} MiB", xref="paper", x=1.005, xanchor="left", y=values[-1] / MIB,
            showarrow=False, font={"size": 13, "color": ink},
        )  # fmt: skip
    return figure


def plan_table(ladder: Ladder, *, words: Words) -> dict[str, list]:
    passes, copied, written = moved(ladder)
    return {
        words["positions"]: (ladder.P + passes).tolist(),
        f"{words['copied']} ({words['bytes']})": copied.tolist(),
        f"{words['written']} ({words['bytes']})": written.tolist(),
    }


def pairs_table(ladder: Ladder, *, words: Words) -> dict[str, list]:
    """A row for each lane with no cache: from which length the quickest cache of its kind is quicker; blank: not up to
    the longest measured."""
    pairs = ladder.pairs
    return {
        words["uncached"]: [lane_name(slow, ladder, words) for slow, _ in pairs],
        words["cached"]: [lane_name(fast, ladder, words) for _, fast in pairs],
        words["crossover"]: [ladder.crossover(*pair) for pair in pairs],
        f"{words['uncached']}, {words['rows']}": [ladder.rows(slow) for slow, _ in pairs],
        f"{words['cached']}, {words['rows']}": [ladder.rows(fast) for _, fast in pairs],
    }


def warm_table(ladder: Ladder, *, words: Words) -> dict[str, list]:
    """What a lane needs before anything counts, and its first passes beside those that count, in ms."""
    rungs = ladder.rungs

    def at(rung, i: int) -> float | None:
        return round(float(rung.warm_up[i]), 2) if len(rung.warm_up) > i else None

    later = [float(np.median(r.warm_up[2:])) if len(r.warm_up) > 2 else np.nan for r in rungs]
    return {
        words["lane"]: [lane_name(r, ladder, words) for r in rungs],
        words["ready"]: [_blank(r.ready_ms) for r in rungs],
        words["allocate"]: [_blank(r.allocate_ms) for r in rungs],
        words["first_prefill"]: [at(r, 0) for r in rungs],
        words["counted_prefill"]: [_blank(r.ttft.median) for r in rungs],
        words["first_later"]: [at(r, 1) for r in rungs],
        words["second_later"]: [_blank(v) for v in later],
        words["counted_later"]: [_blank(r.tpot.median) for r in rungs],
    }


def warm_values(ladder: Ladder, words: Words) -> dict[str, object]:
    """The lane whose first prefill took longest beside those that count."""
    warm = [r for r in ladder.rungs if len(r.warm_up) and r.ttft.count]
    if not warm:
        return {"case": "none", "lane": "–", "first_ms": "–", "counted": "–", "times": "–"}
    worst = max(warm, key=lambda r: r.warm_up[0] / r.ttft.median)
    times = worst.warm_up[0] / worst.ttft.median
    return {
        "case": "cold" if times > 1.25 else "warm",
        "lane": lane_name(worst, ladder, words),
        "first_ms": text.milliseconds(float(worst.warm_up[0])),
        "counted": text.milliseconds(worst.ttft.median),
        "times": f"{times:.1f}",
    }


def beside(ladders: Sequence[tuple[str, Ladder]], *, words: Words, dark: bool) -> go.Figure:
    """A group of bars for each lane that any of them has, a bar a ladder: a later token (TPOT) with its quartiles."""
    p = palette(dark)
    names = list(dict.fromkeys(_full(r, words) for _, ladder in ladders for r in ladder.rungs))
    figure = frame(
        ladders[0][1],
        p,
        x={"tickvals": names, "ticktext": names, "showgrid": False},
        y={"title": words["tpot_axis"], "rangemode": "tozero"},
        height=340,
        barmode="group",
        bargap=0.28,
        scattermode="group",
        scattergap=0.28,
    )
    colours = (p.text, p.q, p.k, p.v, p.thrown, p.wasted)
    written = len(names) * len(ladders) <= 12  # else the numbers touch, and the table has them
    for i, (title, ladder) in enumerate(ladders):
        spreads = {_full(r, words): r.tpot for r in ladder.rungs}
        at = [n for n in names if n in spreads]
        middle = np.array([spreads[n].median for n in at])
        figure.add_bar(
            x=at,
            y=middle,
            name=text.literal(title),
            marker={"color": colours[i % len(colours)], "pattern": _hatching(("", "/", ".", "x", "-", "+")[i % 6], p)},
            offsetgroup=str(i),
            error_y=quartiles([spreads[n] for n in at], p),
            hovertemplate=f"%{{x}}<br>{_in_hover(title)}: %{{y:,.2f}} ms<extra></extra>",
        )
        figure.add_scatter(  # above the quartiles, which would cross a bar's own text
            x=at,
            y=[spreads[n].high for n in at],
            offsetgroup=str(i),
            mode="text",
            text=[text.milliseconds(v) if written and np.isfinite(v) else "" for v in middle],
            textposition="top center",
            textfont={"color": p.text, "size": 12},
            cliponaxis=False,
            hoverinfo="skip",
            showlegend=False,
        )
    return figure


def _hatching(shape: str, p: Palette) -> dict:
    return {"shape": shape, "fillmode": "overlay", "fgcolor": p.background, "size": 6}


def _in_hover(title: str) -> str:
    """Literal where Plotly would fill in %{…}."""
    return text.literal(title).replace("{", "&#123;")


def _full(rung, words: Words) -> str:
    """A lane with its precision always said: ladders of several precisions stand beside each other."""
    parts = [words[rung.cache], words[rung.kernel], words[rung.dtype]]
    return joined(parts + ([words["compiled"]] if rung.compiled else []), words)


def beside_table(ladders: Sequence[tuple[str, Ladder]], *, words: Words) -> dict[str, list]:
    """A row for each lane of each ladder."""
    rows = [(title, ladder, rung) for title, ladder in ladders for rung in ladder.rungs]
    return {
        words["ladder"]: [title for title, *_ in rows],
        words["device"]: [ladder.machine.device_name for _, ladder, _ in rows],
        words["model"]: [ladder.model.name for _, ladder, _ in rows],
        words["shape"]: [f"{ladder.P:,} + {ladder.N:,}, B = {ladder.batch:,}" for _, ladder, _ in rows],
        words["lane"]: [_full(rung, words) for *_, rung in rows],
        words["ttft"]: [_blank(rung.ttft.median) for *_, rung in rows],
        words["tpot"]: [_blank(rung.tpot.median) for *_, rung in rows],
        f"{words['floor']} (ms)": [_blank(ladder.floor_ms(rung)) for _, ladder, rung in rows],
        words["repeats"]: [rung.complete for *_, rung in rows],
    }


def beside_values(ladders: Sequence[tuple[str, Ladder]], words: Words) -> dict[str, object]:
    """The quickest lane of all; "same": whether all ran the same model over the same tokens."""
    timed = [(title, ladder, ladder.order[0]) for title, ladder in ladders if ladder.order]
    kinds = {(ladder.model.name, ladder.P, ladder.N, ladder.batch) for _, ladder in ladders}
    values: dict[str, object] = {"ladders": len(ladders), "same": len(kinds) == 1, "title": "–", "lane": "–", "ms": "–"}
    if timed:
        title, _, rung = min(timed, key=lambda found: found[2].tpot.median)
        values |= {"title": title, "lane": _full(rung, words), "ms": text.milliseconds(rung.tpot.median)}
    return values


def reads(found: Reads, *, words: Words, dark: bool) -> go.Figure:
    """A bar a layout: one query over K and V of every layer; of the blocks, the gathering alone in another colour."""
    p = palette(dark)
    names = [words[r.layout] for r in found.layouts]
    middle = np.array([r.ms.median for r in found.layouts])
    gathers = np.array([r.gather_ms.median if r.gather_ms.count else 0.0 for r in found.layouts])
    figure = frame(
        found,
        p,
        x={"title": words["ms_query"], "rangemode": "tozero"},
        y={"autorange": "reversed", "showgrid": False, "tickvals": names, "ticktext": names},
        height=230,
        right=64,
        barmode="overlay",
        bargap=0.4,
    )
    figure.add_bar(
        y=names, x=middle, orientation="h", name=words["whole"], marker={"color": p.text},
        error_x=quartiles([r.ms for r in found.layouts], p),
        hovertemplate=f"%{{y}}<br>{words['whole']}: %{{x:.3f}} ms<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        y=names, x=[r.ms.high for r in found.layouts], mode="text", textposition="middle right", hoverinfo="skip",
        text=[f"\u2002{text.milliseconds(m)} ms" if np.isfinite(m) else "" for m in middle],
        textfont={"color": p.text, "size": 13}, cliponaxis=False, showlegend=False,
    )  # fmt: skip
    if gathers.any():
        figure.add_bar(
            y=names, x=gathers, orientation="h", name=words["gather"],
            marker={"color": p.wasted, "pattern": _hatching("/", p)},
            hovertemplate=f"%{{y}}<br>{words['gather']}: %{{x:.3f}} ms<extra></extra>",
        )  # fmt: skip
    return figure


def reads_table(found: Reads, *, words: Words) -> dict[str, list]:
    def spread(s) -> str:
        return f"{s.median:,.3f} ({s.low:,.3f} – {s.high:,.3f})" if s.count else "–"

    return {
        words["layout"]: [words[r.layout] for r in found.layouts],
        f"{words['whole']} (ms)": [spread(r.ms) for r in found.layouts],
        f"{words['gather']} (ms)": [spread(r.gather_ms) for r in found.layouts],
        f"{words['read']} ({words['bytes']})": [r.read for r in found.layouts],
        f"{words['moved']} ({words['bytes']})": [r.moved for r in found.layouts],
    }


def reads_values(found: Reads) -> dict[str, object]:
    """ "case": whether the gathering of blocks is to be seen beside a tensor that lies in one piece."""
    by = {r.layout: r for r in found.layouts}
    one, view, blocks = (by[n].ms for n in ("contiguous", "view", "blocks"))
    return {
        "case": "measuring" if blocks.count < ENOUGH else "dearer" if blocks.low > one.high else "even",
        "T": text.count(found.T),
        "room": text.count(found.room),
        "block": found.block,
        "one": text.milliseconds(one.median),
        "view": text.milliseconds(view.median),
        "blocks": text.milliseconds(blocks.median),
        "gather": text.milliseconds(by["blocks"].gather_ms.median),
        "times": f"{blocks.median / one.median:.2f}",
        "read": human(by["contiguous"].read),
        "moved": human(by["blocks"].moved),
        "d": f"{found.max_abs:.0e}" if found.max_abs else "0",
    }


def _blank(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 2)
