"""The masks of a gallery, side by side: who may look at whom, and for what reason a cell is not seen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.core.tokens import label
from kvviz.features.attention.record.masks import MaskedPass, MaskGallery
from kvviz.figures.cells import hatch
from kvviz.figures.frame import MONO, between, frame
from kvviz.figures.palette import palette
from kvviz.figures.text import literal, short

CELL, HEAD, FOOT, GAP = 19, 58, 22, 64  # pixels: of a cell, above and below a panel, between two
LEFT = 46
PANELS: tuple[tuple[tuple[str, int], ...], ...] = (
    (("causal", 0), ("decode", 0), ("window", 0)),
    (("chunk", 0), ("chunk", 1), ("chunk", 2)),
    (("padding", 0), ("padding", 1)),
)


def _panel(gallery: MaskGallery, kind: str, index: int) -> MaskedPass:
    return gallery.of(kind)[index]


def masks(run: Run, gallery: MaskGallery, group: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """One group of PANELS. Cells of one size in all of them; queries down, keys across, by the position fed."""
    p = palette(dark)
    panels = [_panel(gallery, *each) for each in PANELS[group]]
    wide = [each.shape[1] * CELL for each in panels]
    width = LEFT + sum(wide) + GAP * (len(panels) - 1) + 24
    tall = max(each.shape[0] for each in panels) * CELL
    height = HEAD + tall + FOOT + 44
    hidden_axis = {"showgrid": False, "zeroline": False, "ticks": "", "fixedrange": True}
    layout: dict = {}
    left, inner, high = LEFT, width - LEFT - 24, tall
    for n, each in enumerate(panels):
        rows, columns = each.shape
        tag = "" if n == 0 else str(n + 1)
        x0 = (left - LEFT) / inner
        font = {"family": MONO, "size": 11, "color": p.muted}
        layout[f"xaxis{tag}"] = {
            **hidden_axis, **between(-0.5, columns - 0.5), "domain": [x0, x0 + columns * CELL / inner],
            "anchor": f"y{tag}", "side": "top", "tickmode": "array", "tickvals": list(range(columns)),
            "ticktext": _positions(each), "tickfont": font,
        }  # fmt: skip
        layout[f"yaxis{tag}"] = {
            **hidden_axis, **between(rows - 0.5, -0.5), "domain": [1 - rows * CELL / high, 1],
            "anchor": f"x{tag}", "tickmode": "array", "tickvals": list(range(rows)),
            "ticktext": _positions(each)[columns - rows :], "tickfont": font,
        }  # fmt: skip
        left += wide[n] + GAP
    figure = frame(
        run,
        p,
        x={},
        y={},
        height=height,
        width=width,
        margin={"l": LEFT, "r": 24, "t": HEAD, "b": FOOT + 44},
        showlegend=True,
        **{k: v for k, v in layout.items() if k not in ("xaxis", "yaxis")},
    )
    figure.update_layout(xaxis=layout["xaxis"], yaxis=layout["yaxis"])
    figure.update_layout(legend={"y": -12 / tall, "yanchor": "top"})
    for n, each in enumerate(panels):
        _draw(figure, gallery, each, "" if n == 0 else str(n + 1), p, words, legend=n == 0, group=group)
        figure.add_annotation(
            text=f"<b>{words[f'mask_{each.kind}'].format(n=each.index + 1, of=each.of)}</b><br>"
            + words["mask_count"].format(
                Tq=each.shape[0], T=each.shape[1], count=each.count, cells=each.visible.size
            ),
            xref=f"x{'' if n == 0 else n + 1} domain", x=0, xanchor="left", xshift=-4,
            yref="paper", y=1, yanchor="bottom", yshift=16,
            align="left", showarrow=False, font={"size": 13, "color": p.text},
        )  # fmt: skip
    return figure


def _positions(each: MaskedPass) -> list[str]:
    """The position fed for each key; padding has none."""
    return ["·" if i < 0 else str(p) for i, p in zip(each.ids.tolist(), each.positions.tolist(), strict=True)]


def _draw(figure, gallery: MaskGallery, each: MaskedPass, tag: str, p, words, *, legend: bool, group: int) -> None:
    rows, columns = each.shape
    axes = {"xaxis": f"x{tag}", "yaxis": f"y{tag}"}

    def cells(where: np.ndarray) -> list[tuple[int, int]]:
        return [(int(c), int(r)) for r, c in np.argwhere(where)]

    old = np.arange(columns)[None] < each.cached
    reused = each.visible & old
    kinds = [
        (reused, p.q_muted, p.q_muted, "visible_cached", ""),
        (each.visible & ~reused, p.q, p.q, "visible", ""),
        (each.ahead, p.masked, p.masked_hatch, "ahead", "/"),
        (each.hidden, p.background, p.wasted, "padding" if each.kind == "padding" else "outside", "x"),
    ]
    for where, ground, line, name, shape in kinds:
        wanted = cells(where)
        figure.add_trace(
            hatch(wanted, ground, line, words[name], shape=shape, legendgroup=name, showlegend=bool(wanted) and
                  not any(t.legendgroup == name and t.showlegend for t in figure.data), **axes)
        )  # fmt: skip
    names = [words["padding_token"] if i < 0 else literal(short(label(gallery.pieces[i]))) for i in each.ids.tolist()]
    asking = names[columns - rows :]
    said = [[f"{asking[r]} → {names[c]}<br>{words[_why(each, r, c)]}" for c in range(columns)] for r in range(rows)]
    figure.add_trace(
        go.Heatmap(
            z=np.zeros((rows, columns), dtype=np.int8),
            opacity=0,
            showscale=False,
            customdata=said,
            hovertemplate="%{customdata}<extra></extra>",
            **axes,
        )
    )
    for i in range(rows + 1):
        figure.add_shape(
            type="line", x0=-0.5, x1=columns - 0.5, y0=i - 0.5, y1=i - 0.5, xref=axes["xaxis"], yref=axes["yaxis"],
            line={"color": p.background, "width": 1},
        )  # fmt: skip
    for j in range(columns + 1):
        figure.add_shape(
            type="line", x0=j - 0.5, x1=j - 0.5, y0=-0.5, y1=rows - 0.5, xref=axes["xaxis"], yref=axes["yaxis"],
            line={"color": p.text if 0 < j == each.cached else p.background, "width": 2 if j == each.cached else 1},
        )  # fmt: skip


def _why(each: MaskedPass, row: int, column: int) -> str:
    if each.visible[row, column]:
        return "visible_cached" if column < each.cached else "visible"
    if each.ahead[row, column]:
        return "ahead"
    return "padding" if each.kind == "padding" else "outside"


def masks_table(gallery: MaskGallery, *, words: Mapping[str, str]) -> dict[str, list]:
    """A row a mask: its shape, how many cells it shows, and how many each query sees."""
    every = [_panel(gallery, *each) for group in PANELS for each in group]
    return {
        words["mask"]: [words[f"mask_{m.kind}"].format(n=m.index + 1, of=m.of) for m in every],
        "Tq × T": [f"{m.shape[0]} × {m.shape[1]}" for m in every],
        words["cells"]: [m.visible.size for m in every],
        words["visible"]: [m.count for m in every],
        words["by_row"]: [", ".join(map(str, m.by_row)) for m in every],
        words["in_cache"]: [m.cached for m in every],
    }
