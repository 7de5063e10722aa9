"""What a wrong position does, and what lies past the trained length."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.core.tokens import label
from kvviz.features.positions.record import Lengths, Misplaced
from kvviz.figures import text
from kvviz.figures.frame import between, frame
from kvviz.figures.palette import palette

BLOCK = 64  # positions a mean is taken over


def misplaced(run: Run, found: Misplaced, offset: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """max |Δlogit| of the first decode step, by how far its position is off; the chosen offset in full colour."""
    p = palette(dark)
    names = [f"{k:+d}" if k else "0" for k in found.offsets.tolist()]
    chosen = [k == offset for k in found.offsets.tolist()]
    figure = frame(
        run,
        p,
        x={**between(-0.6, len(names) - 0.4), "title": words["offset"], "tickmode": "array",
           "tickvals": list(range(len(names))), "ticktext": names, "showgrid": False},
        y={"title": words["dlogit"], "rangemode": "tozero"},
        height=300,
        showlegend=False,
    )  # fmt: skip
    figure.add_trace(
        go.Bar(
            x=list(range(len(names))),
            y=found.max_abs_dlogit,
            marker={
                "color": [p.wasted if c else p.wasted_ground for c in chosen],
                "line": {"color": p.wasted, "width": [2 if c else 1 for c in chosen]},
                "pattern": {"shape": ["" if c else "/" for c in chosen], "fgcolor": p.wasted, "size": 6},
            },
            text=[f"{d:.2f}" for d in found.max_abs_dlogit],
            textposition="outside",
            textfont={"size": 12, "color": p.text},
            cliponaxis=False,
            customdata=names,
            hovertemplate=f"{words['offset']} %{{customdata}}: %{{y:.3g}}<extra></extra>",
        )
    )
    return figure


def misplaced_table(run: Run, found: Misplaced, offset: int, *, words: Mapping[str, str]) -> dict[str, list]:
    return {
        words["offset"]: found.offsets.tolist(),
        words["dlogit"]: [float(f"{d:.3g}") for d in found.max_abs_dlogit],
        words["goes_on"]: ["".join(label(found.pieces[int(t)]) for t in row) for row in found.chosen],
    }


def misplaced_values(found: Misplaced, offset: int) -> dict[str, object]:
    at, right = found.at(offset), found.at(0)

    def said(i: int) -> str:
        return b"".join(found.pieces[int(t)] for t in found.chosen[i]).decode("utf-8", "replace")

    differs = np.flatnonzero(found.chosen[at] != found.chosen[right])
    return {
        "case": "zero" if offset == 0 else "same" if not len(differs) else "differs",
        "offset": f"{offset:+d}" if offset else "0",
        "P": found.P,
        "fed": found.P + offset,
        "d": f"{found.max_abs_dlogit[at]:.3g}",
        "right_text": said(right),
        "wrong_text": said(at),
        "first": int(differs[0]) if len(differs) else 0,
        "new": found.chosen.shape[1],
        "held": found.evicted.held,
        "kept_first": found.evicted.first,
        "kept_last": found.evicted.last,
        "kept": found.evicted.first + found.evicted.last,
        "next_right": found.evicted.right,
        "next_default": found.evicted.default,
        "d_evicted": f"{found.evicted.max_abs_dlogit:.3g}",
    }


def loss(run: Run, found: Lengths, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """Mean loss in blocks of positions, a line a model or scaling; where training and a table end."""
    p = palette(dark)
    longest = max(len(c.loss) for c in found.curves)
    figure = frame(
        run,
        p,
        x={**between(0, longest * 1.02), "title": words["position"], "showgrid": False, "tickformat": ","},
        y={"title": words["loss"]},
        height=400,
        showlegend=True,
        right=36,
    )
    styles = {
        "none": (p.wasted, "solid", "triangle-up"),
        "linear": (p.k, "dash", "square"),
        "yarn": (p.v, "solid", "diamond"),
        "learned": (p.text, "dot", "circle"),
    }
    rotary = next((c.model for c in found.curves if c.scaling != "none"), found.curves[0].model)
    for c in found.curves:
        kind = c.scaling if c.model == rotary else "learned"
        colour, dash, symbol = styles[kind]
        means = c.blocks(BLOCK)
        figure.add_trace(
            go.Scatter(
                x=[min((i + 0.5) * BLOCK, len(c.loss)) for i in range(len(means))],
                y=means,
                mode="lines+markers",
                line={"color": colour, "width": 2.5, "dash": dash},
                marker={"symbol": symbol, "size": 8, "color": colour},
                hovertemplate=f"%{{x}}: %{{y:.3f}}<extra>{text.literal(c.model)}</extra>",
                name=text.literal(words[f"curve_{kind}"].format(model=c.model, factor=f"{c.factor:g}")),
            )
        )
    trained = next(c.trained for c in found.curves if c.model == rotary)
    for at, said, colour, ink in (
        (trained, words["trained"].format(n=text.count(trained)), p.wasted, p.wasted_text),
        *(((found.table_end[1] - 1, words["table_ends"], p.text, p.text),) if found.table_end else ()),
    ):
        figure.add_shape(
            type="line", yref="paper", x0=at, x1=at, y0=0, y1=1, line={"color": colour, "width": 2, "dash": "dash"}
        )
        figure.add_annotation(
            yref="paper", x=at, y=1, xanchor="right" if at > trained else "left", yanchor="top",
            xshift=-4 if at > trained else 4, text=said, showarrow=False, font={"size": 13, "color": ink},
        )  # fmt: skip
    return figure


def loss_table(run: Run, found: Lengths, *, words: Mapping[str, str]) -> dict[str, list]:
    blocks = max(len(c.blocks(BLOCK)) for c in found.curves)
    columns: dict[str, list] = {words["position"]: [f"{i * BLOCK:,} – {(i + 1) * BLOCK - 1:,}" for i in range(blocks)]}
    for c in found.curves:
        means = [round(float(x), 3) for x in c.blocks(BLOCK)]
        columns[f"{c.model}, {words[f'scaling_{c.scaling}']}"] = means + [None] * (blocks - len(means))
    return columns


def loss_values(found: Lengths) -> dict[str, object]:
    """Mean losses within the trained length and in the last quarter, of every curve; `–` where none was run."""
    values: dict[str, object] = {"rows": max((c.rows for c in found.curves), default=0), "done": found.done}
    values |= {"of": found.of, "block": BLOCK}
    rotary = next((c.model for c in found.curves if c.scaling != "none"), "")
    for name, c in {
        "plain": found.curve(rotary), "linear": found.curve(rotary, "linear"), "yarn": found.curve(rotary, "yarn"),
        "learned": next((c for c in found.curves if c.model != rotary), None),
    }.items():  # fmt: skip
        inside = c.loss[: c.trained].mean() if c is not None else None
        past = c.loss[-len(c.loss) // 4 :].mean() if c is not None else None
        values |= {f"{name}_in": f"{inside:.2f}" if c is not None else "–"}
        values |= {f"{name}_past": f"{past:.2f}" if c is not None else "–"}
    return values


def kept(run: Run, found: Lengths, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """max |Δlogit| between a cached run and a recomputed one, by length, on a logarithmic axis; the tolerance."""
    p = palette(dark)
    every = sorted({int(n) for k in found.kept for n in k.lengths})
    figure = frame(
        run,
        p,
        x={**between(every[0] - 2, every[-1] + 2), "title": words["length"], "tickmode": "array", "tickvals": every,
           "showgrid": False},
        y={"title": words["dlogit"], "type": "log", "dtick": 1, "exponentformat": "power"},
        height=340,
        showlegend=True,
    )  # fmt: skip
    styles = {
        "none": (p.text, "dot", "circle"),
        "linear": (p.k, "dash", "square"),
        "yarn": (p.v, "solid", "diamond"),
        "dynamic": (p.wasted, "solid", "triangle-up"),
    }
    for k in found.kept:
        colour, dash, symbol = styles[k.scaling]
        figure.add_trace(
            go.Scatter(
                x=k.lengths,
                y=np.maximum(k.max_abs_dlogit, 1e-9),
                mode="lines+markers",
                line={"color": colour, "width": 2.5, "dash": dash},
                marker={"symbol": symbol, "size": 9, "color": colour},
                hovertemplate="%{x}: %{y:.2e}<extra></extra>",
                name=words[f"scaling_{k.scaling}"],
            )
        )
    limit = found.kept[0].limit
    figure.add_shape(
        type="line", xref="paper", x0=0, x1=1, y0=limit, y1=limit, line={"color": p.muted, "width": 1, "dash": "dash"}
    )
    figure.add_annotation(
        xref="paper", x=1, y=np.log10(limit), xanchor="right", yanchor="bottom", showarrow=False,
        text=words["tolerance"].format(limit=f"{limit:g}"), font={"size": 13, "color": p.muted},
    )  # fmt: skip
    return figure


def kept_table(run: Run, found: Lengths, *, words: Mapping[str, str]) -> dict[str, list]:
    return {words["length"]: found.kept[0].lengths.tolist()} | {
        words[f"scaling_{k.scaling}"]: [float(f"{d:.2e}") for d in k.max_abs_dlogit] for k in found.kept
    }
