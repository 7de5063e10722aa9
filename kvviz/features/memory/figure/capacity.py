"""What fits: a model's weights and cache on GPUs, and a serving engine's budget."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from kvviz.features.memory.figure.sizes import Kept, Words, exact, hatched, kept_bars, sideways, wanted_values
from kvviz.features.memory.record.architectures import MOST_BATCH, MOST_POSITIONS
from kvviz.features.memory.record.gpus import Gpu
from kvviz.features.memory.record.sizes import Budget, Wanted, fit
from kvviz.figures import text
from kvviz.figures.frame import between, frame
from kvviz.figures.palette import palette
from kvviz.theory.memory import decimal, heads_a_gpu, precise

GIB = 2**30


def fits(wanted: Wanted, *, words: Words, dark: bool, gpus: Sequence[Gpu], chosen: Gpu) -> go.Figure:
    """A line a GPU, its memory as an outline: weights and cache within it, hatched what goes beyond it."""
    p = palette(dark)
    rows = [(gpu, fit(wanted, gpu)) for gpu in gpus]
    found = [f for _, f in rows if f]
    most = max(gpu.memory for gpu in gpus) * 1.22  # what is larger is cut there, with its number beside it
    figure = frame(
        wanted,
        p,
        x={**between(0, most), "title": words["gib_a_gpu"], "tickformat": ","},
        y=sideways(p, [f"<b>{g.name}</b>" if g is chosen else g.name for g in gpus], size=13),
        height=120 + 30 * len(gpus),
        barmode="stack",
        bargap=0.32,
        margin={"l": 170, "r": 16, "t": 44, "b": 52},
    )
    at = range(len(found))
    weights = [min(f.weights, f.gpu.memory_bytes) / GIB for f in found]
    cache = [max(0, min(f.cache, f.left)) / GIB for f in found]
    over = [max(0, f.weights + f.cache - f.gpu.memory_bytes) / GIB for f in found]
    beyond = [min(o, most - f.gpu.memory) for f, o in zip(found, over, strict=True)]
    latent = bool(wanted.model.latent)
    bars = [Kept(i, amount, latent, exact(f.cache)) for i, (f, amount) in enumerate(zip(found, cache, strict=True))]
    for name, amount, marker, bytes_of in (
        ("weights", weights, {"color": p.thrown, "line": {"color": p.text, "width": 1}}, lambda f: f.weights),
        ("beyond", beyond, hatched(p, p.wasted_ground, p.wasted), lambda f: f.weights + f.cache - f.gpu.memory_bytes),
    ):
        shown = [i for i in at if amount[i]]  # the edge of an empty bar would be a line
        figure.add_trace(
            go.Bar(
                y=shown or [None],
                x=[amount[i] for i in shown] or [None],
                orientation="h",
                name=words[name],
                marker=marker,
                customdata=[exact(bytes_of(found[i])) for i in shown],
                hovertemplate=f"{words[name]}: %{{customdata}}<extra></extra>",
            )
        )
        if name == "weights":  # the order of the stack
            figure.add_traces(kept_bars(p, words, bars))
    for i, gpu in enumerate(gpus):
        figure.add_shape(
            type="rect", xref="x", yref="y", x0=0, x1=gpu.memory, y0=i - 0.36, y1=i + 0.36,
            line={"color": p.text, "width": 2 if gpu is chosen else 1}, fillcolor="rgba(0,0,0,0)",
        )  # fmt: skip
    for i, f in enumerate(found):
        said = words["free"] if f.fits else words["lacks"]
        amount = precise(abs(f.left - f.cache))
        figure.add_annotation(
            x=1, xref="paper", y=i, xanchor="right", showarrow=False, text=said.format(size=amount),
            font={"color": p.text if f.fits else p.wasted_text, "size": 12}, bgcolor=p.background,
        )  # fmt: skip
    return figure


def fits_table(wanted: Wanted, *, words: Words, gpus: Sequence[Gpu], chosen: Gpu) -> dict[str, list]:
    found = [fit(wanted, gpu) for gpu in gpus]
    rows = [f for f in found if f]
    if not rows:
        return {}
    return {
        words["gpu"]: [f.gpu.name for f in rows],
        words["memory"]: [f.gpu.memory for f in rows],
        words["bandwidth"]: [round(f.gpu.bandwidth / 1e9) for f in rows],
        words["weights_bytes"]: [f.weights for f in rows],
        words["cache_bytes"]: [f.cache for f in rows],
        words["largest_batch"]: [f.batch for f in rows],
        words["largest_length"]: [f.positions for f in rows],
        words["past_column"]: [words["yes"] if wanted.model.past(f.positions) else "" for f in rows],
        words["read"]: [None if f.read_ms is None else round(f.read_ms, 2) for f in rows],
        words["announced"]: [f.gpu.announced for f in rows],
        words["source"]: [f"{f.gpu.source.url} ({f.gpu.source.what})" for f in rows],
    }


def fits_values(wanted: Wanted, gpu: Gpu) -> dict[str, object]:
    found = fit(wanted, gpu)
    values = wanted_values(wanted) | {
        "gpu": gpu.name,
        "gpus": text.count(wanted.gpus),
        "memory": text.count(gpu.memory),
        "weights_kept": wanted.weights.name,
        "a_gpu": text.count(heads_a_gpu(wanted.model.kv_heads, wanted.gpus)),
        "replicas": text.count(max(1, wanted.gpus // wanted.model.kv_heads)),
    }
    if found is None:
        return values | {"case": "unknown"}
    case = "weights" if found.left < 0 else "fits" if found.fits else "cache"
    return values | {
        "case": case,
        "weights": precise(found.weights),
        "weights_gb": decimal(found.weights),
        "cache": precise(found.cache),
        "left": precise(abs(found.left)),
        "free": precise(abs(found.left - found.cache)),
        "batch": _up_to(found.batch, MOST_BATCH),
        "length": _up_to(found.positions, MOST_POSITIONS),
        "length_past": wanted.model.past(found.positions),
        "experts": found.read_ms is None,
        "read": "n/a" if found.read_ms is None else f"{text.milliseconds(found.read_ms)} ms",
    }


def _up_to(n: int, most: int) -> str:
    """A count; where kvviz looked no further (a window may let any length fit), as at least that."""
    return f"≥ {n:,}" if n >= most else text.count(n)


# A serving engine


def budget(of: Budget, *, words: Words, dark: bool) -> go.Figure:
    """The GPU's memory in one bar: weights, peak activations, other, what is left for K and V, and what is not used."""
    p = palette(dark)
    allowed = of.memory * of.utilisation
    colours = {"weights": p.thrown, "within": p.scale_2, "activations": p.scale_2, "other": p.line}
    asked = [(name, amount, colours[name]) for name, amount in _asked(of)]
    most = max(of.memory, sum(n for _, n, _ in asked)) * 1.2
    figure = frame(
        of,
        p,
        x={**between(0, most), "title": "GiB", "tickformat": ","},
        y=sideways(p, [words["this_gpu"]], size=13),
        height=210,
        barmode="stack",
        margin={"l": 90, "r": 16, "t": 44, "b": 52},
    )
    for name, amount, colour in asked:
        figure.add_trace(_part(words[name], amount, {"color": colour, "line": {"color": p.text, "width": 1}}, words))
    if of.room > 0:
        for bar in kept_bars(p, words, [Kept(0, of.room, of.latent, f"{words['for_cache']}: {of.room:,.2f} GiB")]):
            figure.add_trace(bar.update(width=0.5))
        figure.add_trace(_part(words["not_used"], of.memory - allowed, hatched(p, p.masked, p.masked_hatch), words))
    for x, word, ink in ((allowed, "allowed", p.text), (of.memory, "memory_end", p.muted)):
        figure.add_shape(
            type="line", xref="x", yref="paper", x0=x, x1=x, y0=0, y1=1, line={"color": ink, "width": 2, "dash": "dash"}
        )
        figure.add_annotation(
            x=x, y=0.99, yref="paper", yanchor="top", showarrow=False,
            xanchor="right" if word == "allowed" else "left", xshift=-4 if word == "allowed" else 4,
            text=words[word].format(size=f"{x:,.2f}"), font={"color": ink, "size": 12}, bgcolor=p.background,
        )  # fmt: skip
    return figure


def _asked(of: Budget) -> list[tuple[str, float]]:
    """Word and GiB of what goes before K and V."""
    peak = [("within", of.activations)] if of.within else [("weights", of.weights), ("activations", of.activations)]
    return [*peak, ("other", of.other)]


def _part(name: str, amount: float, marker: dict, words: Words) -> go.Bar:
    return go.Bar(
        y=[0], x=[amount], orientation="h", name=name, marker=marker, width=0.5,
        hovertemplate=f"{name}: %{{x:,.2f}} GiB<extra></extra>",
    )  # fmt: skip


def budget_table(of: Budget, *, words: Words) -> dict[str, list]:
    rows = [
        ("memory_row", of.memory),
        ("allowed_row", of.memory * of.utilisation),
        *_asked(of),
        ("for_cache", of.room),
    ]
    return {words["part"]: [words[name] for name, _ in rows], "GiB": [round(n, 2) for _, n in rows]}


def budget_values(of: Budget) -> dict[str, object]:
    return {
        "case": of.case,
        "within": of.within,
        "memory": f"{of.memory:,.2f}",
        "percent": f"{100 * of.utilisation:.0f}",
        "allowed": f"{of.memory * of.utilisation:,.2f}",
        "weights": f"{of.weights:,.2f}",
        "activations": f"{of.activations:,.2f}",
        "other": f"{of.other:,.2f}",
        "room": f"{of.room:,.2f}".replace("-", "−"),
        "lacks": f"{abs(of.room):,.2f}",
        "block": text.count(of.block),
        "block_bytes": precise(of.block * of.token_bytes),
        "blocks": text.count(of.blocks),
        "room_least": f"{of.logged[0]:,.3f}",
        "room_most": f"{of.logged[1]:,.3f}",
        "least_blocks": text.count(of.logged_blocks[0]),
        "most_blocks": text.count(of.logged_blocks[1]),
        "tokens": text.count(of.tokens),
        "longest": text.count(of.longest),
        "whole": f"{of.whole:,.2f}",
        "request": text.count(of.request),
        "each": text.count(of.each),
        "requests": text.count(of.requests),
    }
