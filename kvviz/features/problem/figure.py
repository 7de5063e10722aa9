"""The problem drawn: which token rows each pass computes with no cache and with one, and how the work adds up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core.tokens import label
from kvviz.features.problem.record import Growth
from kvviz.figures import text
from kvviz.figures.cells import outlines
from kvviz.figures.frame import MONO, between, frame, styled_axis
from kvviz.figures.palette import Palette, palette
from kvviz.theory import work
from kvviz.theory.memory import human

LINED = 40  # positions up to which cells are told apart by lines
NAMED = 30  # positions up to which each has its token below it
HEIGHT = 390  # pixels
Words = Mapping[str, str]


def triangle(growth: Growth, *, words: Words, dark: bool) -> go.Figure:
    """A line a pass, a column a position, side by side without a cache and with one.

    Prefill is the same work in both. From then on a pass without a cache computes its new row and, hatched, all
    earlier ones again; with the cache the new row alone, over rows that are kept. The axes have room for all N passes.
    """
    p = palette(dark)
    P, n, N = growth.P, growth.n, growth.new
    width = P + N - 1  # positions that are ever fed
    at, ticks = _ticks(growth, width)
    across = {**between(-0.6, width - 0.4), "title": words["position"], "showgrid": False, "tickmode": "array"}
    across |= {"tickvals": at, "ticktext": ticks, "tickfont": {"family": MONO, "size": 11}, "tickangle": -90}
    every = -(-N // 20)
    figure = frame(
        growth,
        p,
        x={**across, "domain": [0, 0.485]},
        y={
            **between(N - 0.4, -0.6),
            "title": words["pass"],
            "tickmode": "array",
            "tickvals": list(range(0, N, every)),
            "showgrid": False,
        },
        height=HEIGHT,
        xaxis2=styled_axis(p, {**across, "domain": [0.515, 1], "anchor": "y"}),
        margin={"l": 60, "r": 12, "t": 62, "b": 84 if width <= NAMED else 56},
        legend={"orientation": "h", "x": 0, "y": 1.09, "yanchor": "bottom", "itemclick": False,
                "itemdoubleclick": False, "font": {"color": p.text}},
    )  # fmt: skip
    again = growth.without.rows - growth.kept.rows  # (n,)
    fresh = [(0, P, 0), *((P + s - 1, P + s, s) for s in range(1, n))]  # from, to, pass
    recomputed = [(0, int(again[s]), s) for s in range(1, n) if again[s]]
    kept = [(0, P + s - 1, s) for s in range(1, n)]
    figure.add_trace(_cells(fresh, words["computed"], p.text, p.text, "x"))
    figure.add_trace(
        _cells(recomputed, words["again"], p.wasted_ground, p.wasted, "x", hatch=(p.wasted, p.wasted_ground))
    )
    figure.add_trace(_cells(fresh, words["computed"], p.text, p.text, "x2", legend=False))
    figure.add_trace(_cells(kept, words["reused"], p.line, p.line, "x2"))
    if width <= LINED:
        for axis in ("x", "x2"):
            figure.add_trace(_lines(P, n, p, axis))
    for axis, name, total, ink in (
        ("x", words["without"], growth.without.rows, p.wasted_text),
        ("x2", words["kept"], growth.kept.rows, p.text),
    ):
        figure.add_annotation(
            text=f"<b>{name}</b>   {words['rows_so_far'].format(rows=text.count(int(total.sum())))}",
            xref=f"{axis} domain",
            x=0,
            xanchor="left",
            yref="paper",
            y=1,
            yanchor="bottom",
            yshift=4,
            showarrow=False,
            font={"size": 15, "color": ink},
        )
        if n:  # the newest pass
            end = P + n - 1
            figure.add_shape(
                type="rect", xref=axis, yref="y", x0=-0.5, x1=end - 0.5, y0=n - 1.46, y1=n - 0.54,
                line={"color": p.text, "width": 2}, fillcolor="rgba(0,0,0,0)",
            )  # fmt: skip
    return figure


def _ticks(growth: Growth, width: int) -> tuple[list[int], list[str]]:
    ids = [*growth.prompt_ids.tolist(), *growth.ids.tolist()]
    if width > NAMED:
        every = -(-width // 12)
        at = list(range(0, width, every))
        return at, [f"{i:,}" for i in at]
    names = [text.literal(text.short(label(growth.pieces[i]))) for i in ids[:width]]
    at = list(range(width))
    texts = [f"{names[i]} {i}" if i < len(names) else str(i) for i in at]
    return at, [f"<b>{t}</b>" if i >= growth.P else t for i, t in enumerate(texts)]


def _cells(
    runs: list[tuple[int, int, int]],
    name: str,
    fill: str,
    line: str,
    axis: str,
    *,
    hatch: tuple[str, str] | None = None,
    legend: bool = True,
) -> go.Scatter:
    """Stretches of cells (from, to, pass), to excluded, as one shape each."""
    x, y = outlines(runs, half=0.46)
    pattern = {"shape": "/", "fgcolor": hatch[0], "bgcolor": hatch[1], "size": 6, "solidity": 0.28} if hatch else None
    return go.Scatter(
        x=x,
        y=y,
        xaxis=axis,
        yaxis="y",
        mode="lines",
        line={"width": 0.5, "color": line},
        fill="toself",
        fillcolor=fill,
        fillpattern=pattern,
        hoveron="fills",
        hoverinfo="name",
        name=name,
        showlegend=legend,
    )


def _lines(P: int, n: int, p: Palette, axis: str) -> go.Scatter:
    """Between neighbouring cells of a pass."""
    x: list[float | None] = []
    y: list[float | None] = []
    for row in range(n):
        for i in range(1, P + row):
            x += [i - 0.5, i - 0.5, None]
            y += [row - 0.46, row + 0.46, None]
    return go.Scatter(
        x=x or [None], y=y or [None], xaxis=axis, yaxis="y", mode="lines",
        line={"width": 1, "color": p.background}, hoverinfo="skip", showlegend=False,
    )  # fmt: skip


def growth_table(growth: Growth, *, words: Words) -> dict[str, list]:
    """What each pass computed: which rows got Q, K and V, and what it counted, without a cache and with one."""
    P = growth.P
    ids = growth.ids.tolist()
    fed = [f"0 – {P - 1}" if P > 1 else "0", *(f"{P + s - 1}" for s in range(1, growth.n))]
    prefix = [f"0 – {P + s - 1}" if P + s > 1 else "0" for s in range(growth.n)]
    out = {
        words["pass"]: list(range(growth.n)),
        words["chosen"]: [label(growth.pieces[i]) for i in ids],
        f"{words['qkv']}, {words['without']}": prefix,
        f"{words['qkv']}, {words['kept']}": fed,
    }
    for name in ("rows", "scores", "visible", "written"):
        for lane, side in ((growth.without, "without"), (growth.kept, "kept")):
            out[f"{words[name]}, {words[side]}"] = getattr(lane, name).tolist()
    return out


triangle_table = growth_table

QUANTITIES = ("rows", "scores", "visible")
_FORMULAS = {
    "rows": (work.rows_without_cache, work.rows_with_cache),
    "scores": (work.scores_without_cache, work.scores_with_cache),
    "visible": (work.causal_scores_without_cache, work.causal_scores_with_cache),
}


def curves(growth: Growth, *, words: Words, dark: bool, quantity: str, P: int, to: int) -> go.Figure:
    """Work so far against tokens chosen: the formula as a line for a prompt of P up to `to` tokens, and as points what
    was counted, where that was a prompt of P."""
    p = palette(dark)
    grid = _grid(to)
    formulas = _FORMULAS[quantity]
    figure = frame(
        growth,
        p,
        x={**between(0, to * 1.02), "title": words["tokens"], "showgrid": False, "tickformat": ",d"},
        y={**between(0, formulas[0](P, to) * 1.1), "title": words[f"{quantity}_axis"], "tickformat": ".3~s"},
        height=340,
        right=90,
    )
    lanes = (
        ("without", growth.without, formulas[0], p.wasted, p.wasted_text, "triangle-up"),
        ("kept", growth.kept, formulas[1], p.text, p.text, "circle"),
    )
    counted = np.arange(1, min(growth.n, to) + 1) if P == growth.P else np.zeros(0)
    for side, lane, formula, colour, ink, symbol in lanes:
        y = [formula(P, int(m)) for m in grid]
        figure.add_trace(
            go.Scatter(
                x=grid,
                y=y,
                mode="lines+text",
                name=f"{words[side]}, {words['formula']}",
                line={"color": colour, "width": 2, "dash": "dash" if side == "without" else "dot"},
                text=[""] * (len(grid) - 1) + [f"\u2002{_short(y[-1])}"],
                textposition="middle right",
                textfont={"size": 14, "color": ink},
                cliponaxis=False,
                hovertemplate=f"{words['tokens']} %{{x:,}}<br>%{{fullData.name}}: %{{y:,}}<extra></extra>",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=counted,
                y=np.cumsum(getattr(lane, quantity))[: len(counted)],
                mode="markers",
                name=f"{words[side]}, {words['counted']}",
                marker={"symbol": symbol, "size": 6, "color": colour},
                hovertemplate=f"{words['tokens']} %{{x:,}}<br>%{{fullData.name}}: %{{y:,}}<extra></extra>",
            )
        )
    return figure


def _grid(to: int) -> np.ndarray:
    return np.unique(np.linspace(1, to, min(to, 120)).round().astype(int))


def _short(n: int) -> str:
    """290, 4,870, 1.05 M, 2.10 G"""
    for size, unit in ((10**9, "G"), (10**6, "M")):
        if n >= size:
            return f"{n / size:,.2f} {unit}"
    return f"{n:,}"


def curves_table(growth: Growth, *, words: Words, quantity: str, P: int, to: int) -> dict[str, list]:
    grid = [int(m) for m in _grid(to)]
    out: dict[str, list] = {words["tokens"]: grid}
    for side, lane, formula in zip(
        ("without", "kept"), (growth.without, growth.kept), _FORMULAS[quantity], strict=True
    ):
        sums = np.cumsum(getattr(lane, quantity))
        if P == growth.P:
            out[f"{words[side]}, {words['counted']}"] = [int(sums[m - 1]) if m <= growth.n else None for m in grid]
        out[f"{words[side]}, {words['formula']}"] = [formula(P, m) for m in grid]
    return out


def curves_values(growth: Growth, quantity: str, P: int, to: int) -> dict[str, object]:
    without, kept = (f(P, to) for f in _FORMULAS[quantity])
    return {
        "P": text.count(P),
        "to": text.count(to),
        "without": text.count(without),
        "kept": text.count(kept),
        "times": f"{without / kept:,.1f}",
        "twice": f"{_FORMULAS[quantity][0](2 * P, 2 * to) / without:.1f}",
        "twice_kept": f"{_FORMULAS[quantity][1](2 * P, 2 * to) / kept:.1f}",
    }


def growth_values(growth: Growth) -> dict[str, object]:
    """What sentences about it name. "case" tells prefill alone from what follows."""
    without, kept = growth.without, growth.kept
    m, P, n = growth.model, growth.P, growth.n
    T = P + n - 1
    values: dict[str, object] = {
        "case": "prefill" if n == 1 else "decode",
        "P": text.count(P),
        "n": text.count(n),
        "N": text.count(growth.new),
        "last": text.count(n - 1),
        "T": text.count(T),
        "newest": text.count(int(without.rows[-1])),
        "again_newest": text.count(int(without.rows[-1] - kept.rows[-1])),
        "times": f"{without.rows.sum() / kept.rows.sum():.1f}",
        "again": text.count(int(without.rows.sum() - kept.rows.sum())),
        "scores_times": f"{without.scores.sum() / kept.scores.sum():.1f}",
        "token_bytes": text.count(m.kv_bytes_per_token),
    }
    for name in ("rows", "scores", "visible", "written"):
        values[f"{name}_without"] = text.count(int(getattr(without, name).sum()))
        values[f"{name}_kept"] = text.count(int(getattr(kept, name).sum()))
    said = text.count if without.written.sum() < 10**7 else human  # what the card holds; one unit in a row
    for side, lane in (("without", without), ("kept", kept)):
        values[f"written_{side}"] = said(int(lane.written.sum()))
        done = work.flops(
            int(lane.rows.sum()),
            int(lane.scores.sum()),
            n,
            matrix_values=growth.matrix_values,
            heads=m.heads,
            head_dim=m.head_dim,
            layers=m.layers,
            output_values=m.vocab_size * m.width,
        )
        short = _short(done)
        unit = "FLOP" if short[-1].isalpha() else " FLOP"  # 2.81 GFLOP, 4,870 FLOP
        values[f"flops_{side}"] = f"{short}{unit}" if growth.matrix_values else "–"
    return values
