"""Memory drawn: a run's parts, and how a cache grows with length, batch and precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from kvviz.features.memory.record.architectures import FORMATS
from kvviz.features.memory.record.sizes import Held, Wanted
from kvviz.figures import text
from kvviz.figures.frame import between, frame
from kvviz.figures.palette import Palette, palette
from kvviz.theory.memory import decimal, precise

UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))
BATCHES = (1, 2, 4, 8, 16)
POINTS = 64  # of a curve
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
Words = Mapping[str, str]


def unit_of(n: float) -> tuple[str, int]:
    """The largest unit that `n` bytes reach, and its bytes."""
    return next((name, size) for name, size in UNITS if n >= size or size == 1)


def exact(n: int) -> str:
    """1.00 GiB · 1,073,741,824 bytes"""
    return f"{precise(n)} · {n:,} bytes" if n >= 1024 else precise(n)


def sideways(p: Palette, names: Sequence[str], *, size: int = 14) -> dict:
    """Axis settings for names from the top down."""
    return {
        **between(len(names) - 0.4, -0.6),
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "tickfont": {"color": p.text, "size": size},
        "showgrid": False,
    }


def hatched(p: Palette, ground: str, line: str) -> dict:
    """A marker for what is worked out and not held."""
    return {
        "color": ground,
        "line": {"color": line, "width": 1},
        "pattern": {"shape": "/", "fgcolor": line, "bgcolor": ground, "size": 7, "solidity": 0.25},
    }


class Kept(NamedTuple):
    """One bar of what a cache keeps: its line, its length on the axis, and what a pointer reads."""

    y: int
    x: float
    latent: bool  # MLA: one vector, neither K nor V
    said: str
    past: bool = False  # hatched
    own: bool = True  # in full colour
    edge: bool = True  # outlined


def kept_bars(p: Palette, words: Words, bars: Sequence[Kept]) -> list[go.Bar]:
    """K and V as two halves, since they have one shape; a latent vector, from which both come, in both their colours.
    To be stacked."""
    found = []
    kinds = (("k", p.k, p.k_muted, False), ("v", p.v, p.v_muted, False), ("latent_bar", p.k, p.k_muted, True))
    for name, full, muted, latent in kinds:
        named = False
        # A trace a look: Plotly takes no colour of a pattern where the bars of a trace differ in colour.
        for own, past in ((True, False), (True, True), (False, False), (False, True)):
            mine = [b for b in bars if (b.latent, b.own, b.past) == (latent, own, past) and b.x > 0]
            if not mine:
                continue
            colour = full if own and not past else muted
            dots = {"shape": ".", "fgcolor": p.v if own else p.v_muted, "bgcolor": colour, "size": 6, "solidity": 0.45}
            lines = {"shape": "/", "fgcolor": p.text, "bgcolor": colour, "size": 7, "solidity": 0.2}
            found.append(
                go.Bar(
                    y=[b.y for b in mine],
                    x=[b.x if latent else b.x / 2 for b in mine],
                    orientation="h",
                    name=words[name],
                    legendgroup=name,
                    showlegend=not named,
                    marker={
                        "color": colour,
                        "line": {"color": p.text, "width": [1 if own and b.edge else 0 for b in mine]},
                        "pattern": lines if past else dots if latent else None,
                    },
                    customdata=[b.said for b in mine],
                    hovertemplate="%{customdata}<extra></extra>",
                )
            )
            named = True
    return found


# A run's own parts


def parts(held: Held, *, words: Words, dark: bool) -> go.Figure:
    """Weights, K, V and the working room of the largest pass, from the top; K and V also at the model's full length."""
    p = palette(dark)
    rows = _parts(held)
    unit, size = unit_of(max(n for _, n, _ in rows))
    most = max(max(n, full or 0) for _, n, full in rows) / size
    figure = frame(
        held,
        p,
        x={**between(0, most * 1.42), "title": words["in_unit"].format(unit=unit), "tickformat": ","},
        y=sideways(p, [*(words[name] for name, *_ in rows[:3]), f"{words['working']}<br>({words['formula']})"]),
        height=320,
        barmode="overlay",
        bargap=0.32,
        margin={"l": 110, "r": 16, "t": 44, "b": 52},
    )
    at = range(len(rows))
    full = [(i, f) for i, (_, _, f) in enumerate(rows) if f]
    figure.add_trace(
        go.Bar(
            y=[i for i, _ in full],
            x=[f / size for _, f in full],
            orientation="h",
            name=words["at_full"].format(trained=text.count(held.model.trained)),
            marker={
                "color": [p.k_muted, p.v_muted][: len(full)],
                "line": {"color": p.muted, "width": 1},
                "pattern": {"shape": "/", "fgcolor": p.muted, "size": 7, "solidity": 0.15},
            },
            customdata=[exact(f) for _, f in full],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.add_trace(
        go.Bar(
            y=list(at),
            x=[n / size for _, n, _ in rows],
            orientation="h",
            name=words["now"],
            marker={"color": [p.thrown, p.k, p.v, p.masked], "line": {"color": p.text, "width": 1}},
            customdata=[exact(n) for _, n, _ in rows],
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
    )
    for i, (_, n, f) in enumerate(rows):
        more = f"   ({words['full_is'].format(size=precise(f))})" if f else ""
        figure.add_annotation(
            x=max(n, f or 0) / size, y=i, text=f"<b>{precise(n)}</b>{more}", xanchor="left", xshift=6, showarrow=False,
            font={"color": p.text, "size": 14},
        )  # fmt: skip
    return figure


def _parts(held: Held) -> list[tuple[str, int, int | None]]:
    """Word, bytes, and bytes at the model's own full length."""
    full = held.at(held.model.trained) // 2 if held.model.trained > held.positions else None
    half = held.counted // 2  # K and V have one shape
    return [("weights", held.weights, None), ("k", half, full), ("v", half, full), ("working", held.working, None)]


def parts_table(held: Held, *, words: Words) -> dict[str, list]:
    rows = _parts(held)
    kinds = {"weights": "counted", "k": "counted", "v": "counted", "working": "formula"}
    return {
        words["part"]: [words[name] for name, *_ in rows],
        words["bytes"]: [n for _, n, _ in rows],
        words["how_known"]: [words[kinds[name]] for name, *_ in rows],
        words["at_full"].format(trained=text.count(held.model.trained)): [f for *_, f in rows],
    }


def parts_values(held: Held) -> dict[str, object]:
    m = held.model
    whole = held.weights + held.counted
    return {
        "L": text.count(m.layers),
        "H": text.count(m.heads),
        "Hkv": text.count(m.kv_heads),
        "D": text.count(m.head_dim),
        "T": text.count(held.positions),
        "B": text.count(held.batch),
        "value_bytes": held.value_bytes,
        "formula": text.count(held.formula),
        "counted": text.count(held.counted),
        "tensors": text.count(held.tensors),
        "human": precise(held.counted),
        "token": text.count(held.at(1)),
        "weights": precise(held.weights),
        "working": precise(held.working),
        "working_bytes": text.count(held.working),
        "rows": text.count(held.working_rows),
        "share": f"{100 * held.counted / whole:.1f} %",
        "trained": text.count(m.trained),
        "full": precise(held.at(m.trained or held.positions)),
    }


# How a cache grows


def grid(wanted: Wanted) -> list[int]:
    """Lengths of the curves: to twice the model's own, or further where more is asked for. With the length itself."""
    to = max(2 * wanted.model.trained, wanted.positions, 16)
    marks = {wanted.positions, wanted.model.trained or to, wanted.model.window or to}
    return sorted({max(1, to * i // POINTS) for i in range(POINTS + 1)} | marks)


def _lines(wanted: Wanted, by: str, words: Words) -> list[tuple[str, list[int], bool]]:
    """Name, bytes on the grid, and whether it is what the controls say."""
    lengths, m = grid(wanted), wanted.model
    if by == "batch":
        batches = sorted({*BATCHES, wanted.batch})
        return [
            (words["batch_of"].format(B=text.count(b)), [m.cache_bytes(n, wanted.kept, b) for n in lengths],
             b == wanted.batch)
            for b in batches
        ]  # fmt: skip
    lines = [
        (kept.name, [m.cache_bytes(n, kept, wanted.batch) for n in lengths], kept == wanted.kept)
        for kept in FORMATS.values()
    ]
    if m.windowed:
        lines.append(
            (words["no_window"],
             [m.cache_bytes(n, wanted.kept, wanted.batch, windows=False) for n in lengths], False)
        )  # fmt: skip
    return lines


def growth(wanted: Wanted, *, words: Words, dark: bool, by: str) -> go.Figure:
    """Bytes of the cache by the formula against its length, a line for each precision or batch.

    Lengths beyond the model's own stand on a hatched ground.
    """
    p = palette(dark)
    lengths, lines, m = grid(wanted), _lines(wanted, by, words), wanted.model
    most = max(ys[-1] for _, ys, _ in lines)
    unit, size = unit_of(most)
    figure = frame(
        wanted,
        p,
        x={**between(0, lengths[-1]), "title": words["positions"], "tickformat": ",d", "showgrid": False},
        y={**between(0, most / size * 1.08), "title": words["cache_in"].format(unit=unit), "tickformat": ","},
        height=380,
        right=120,
    )
    if 0 < m.trained < lengths[-1]:
        figure.add_shape(
            type="rect", xref="x", yref="paper", x0=m.trained, x1=lengths[-1], y0=0, y1=1, layer="below",
            fillcolor=p.masked, line={"width": 0},
        )  # fmt: skip
        figure.add_annotation(
            x=m.trained, y=1, yref="paper", yanchor="top", xanchor="left", xshift=4, showarrow=False,
            text=words["past"].format(trained=text.count(m.trained)), font={"color": p.muted, "size": 12},
        )  # fmt: skip
    labels: list[tuple[float, str, bool]] = []
    for i, (name, ys, chosen) in enumerate(lines):
        figure.add_trace(
            go.Scatter(
                x=lengths,
                y=[y / size for y in ys],
                name=name,
                mode="lines",
                line={
                    "color": p.k if chosen else p.muted,
                    "width": 3.5 if chosen else 1.5,
                    "dash": DASHES[i % len(DASHES)],
                },
                customdata=[exact(y) for y in ys],
                hovertemplate=f"%{{x:,}}: %{{customdata}}<extra>{name}</extra>",
                showlegend=False,
            )
        )
        labels.append((ys[-1] / size, name, chosen))
    for y, name, chosen in _apart(labels, most / size * 1.08):
        figure.add_annotation(
            x=1, xref="paper", y=y, text=f"<b>{name}</b>" if chosen else name, xanchor="left", xshift=6,
            showarrow=False, font={"color": p.k_text if chosen else p.muted, "size": 12},
        )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=[wanted.positions],
            y=[wanted.cache / size],
            mode="markers",
            name=words["here"],
            marker={"size": 11, "color": p.k, "line": {"color": p.text, "width": 2}},
            customdata=[exact(wanted.cache)],
            hovertemplate=f"%{{x:,}}: %{{customdata}}<extra>{words['here']}</extra>",
        )
    )
    return figure


def _apart(labels: list[tuple[float, str, bool]], span: float) -> list[tuple[float, str, bool]]:
    """Labels at the ends of lines, moved up where they would overlap."""
    placed: list[tuple[float, str, bool]] = []
    for y, name, chosen in sorted(labels):
        least = placed[-1][0] + 0.055 * span if placed else 0.0
        placed.append((max(y, least), name, chosen))
    return placed


def growth_table(wanted: Wanted, *, words: Words, by: str) -> dict[str, list]:
    lengths = grid(wanted)
    past = [words["yes"] if wanted.model.past(n) else "" for n in lengths]
    columns = {f"{name}, {words['bytes']}": ys for name, ys, _ in _lines(wanted, by, words)}
    return {words["positions"]: lengths, **columns, words["past_column"]: past}


def wanted_values(wanted: Wanted) -> dict[str, object]:
    """What sentences about a model at a length may name. `name` is not yet literal."""
    m = wanted.model
    return {
        "name": m.name,
        "L": text.count(m.layers),
        "H": text.count(m.heads),
        "Hkv": text.count(m.kv_heads),
        "D": text.count(m.head_dim),
        "T": text.count(wanted.positions),
        "B": text.count(wanted.batch),
        "kept": wanted.kept.name,
        "values": text.count(m.values),
        "token": text.count(m.token_bytes(wanted.kept)),
        "bytes": text.count(wanted.cache),
        "human": precise(wanted.cache),
        "gb": decimal(wanted.cache),
        "double": precise(m.cache_bytes(2 * wanted.positions, wanted.kept, wanted.batch)),
        "trained": text.count(m.trained),
        "window": text.count(m.window),
        "windowed": text.count(m.windowed),
        "without": precise(m.cache_bytes(wanted.positions, wanted.kept, wanted.batch, windows=False)),
        "tail": precise(m.cache_bytes(wanted.positions, FORMATS["int4"], wanted.batch, tail=128)),
        "parameters": "n/a" if m.parameters is None else text.count(m.parameters),
    }
