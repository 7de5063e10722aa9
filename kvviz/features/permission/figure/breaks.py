"""How wrong a cache gets that is used wrongly: its logits pass by pass, what was fed, and what it wrote."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core.tokens import character_groups, label
from kvviz.features.permission.figure.permission import short, written
from kvviz.features.permission.record.breaks import Breaks, Broken
from kvviz.figures import text
from kvviz.figures.frame import between, frame
from kvviz.figures.palette import palette

FLOOR = 1e-7  # where an exact 0 stands on a logarithmic axis
Words = Mapping[str, str]


def wrong_by_step(found: Breaks, *, words: Words, dark: bool, kind: str) -> go.Figure:
    """max |Δlogit| of each pass against the right pass over the same text, on a logarithmic axis."""
    p = palette(dark)
    broken = found.broken[kind]
    figure = frame(
        found,
        p,
        x={**between(-0.5, found.new - 0.5), "title": words["pass"], "showgrid": False, "dtick": 1},
        y={
            "type": "log",
            "autorange": True,
            "autorangeoptions": {"include": [FLOOR / 2, 100]},
            "title": "max |Δlogit|",
            "tickvals": [FLOOR, 1e-5, 1e-3, 0.1, 10],
            "ticktext": [words["exact_zero"], "1e-5", "0.001", "0.1", "10"],
        },
        height=300,
        right=110,
    )
    for lane, name, colour, ink, dash, symbol in (
        (broken, words[f"kind_{kind}"], p.wasted, p.wasted_text, "dash", "triangle-up"),
        (found.right, words["kind_right"], p.text, p.text, "solid", "circle"),
    ):
        y = lane.dlogit
        figure.add_trace(
            go.Scatter(
                x=np.arange(len(y)),
                y=np.maximum(y, FLOOR),
                customdata=[written(v) for v in y],
                mode="lines+markers+text",
                name=name,
                line={"color": colour, "width": 2, "dash": dash},
                marker={"symbol": [symbol if v else f"{symbol}-open" for v in y], "size": 8, "color": colour},
                text=[""] * (len(y) - 1) + [f"\u2002{short(float(y[-1]))}"],
                textposition="middle right",
                textfont={"size": 14, "color": ink},
                cliponaxis=False,
                hovertemplate=f"{words['pass']} %{{x}}<br>max |Δlogit| %{{customdata}}<extra></extra>",
            )
        )
    figure.add_shape(
        type="line", xref="paper", x0=0, x1=1, y0=found.tolerance, y1=found.tolerance,
        line={"color": p.muted, "width": 1, "dash": "dot"},
    )  # fmt: skip
    figure.add_annotation(
        xref="paper", x=1, y=np.log10(found.tolerance), xanchor="left", text=words["tolerance"], showarrow=False,
        font={"size": 12, "color": p.muted}, xshift=4,
    )  # fmt: skip
    return figure


def wrong_by_step_table(found: Breaks, *, words: Words, kind: str) -> dict[str, list]:
    """Each pass with what was fed to it and what would have been right."""
    steps = found.broken[kind].steps

    def tokens(ids: tuple[int, ...]) -> str:
        return " ".join(label(found.pieces[i]) for i in ids)

    return {
        words["pass"]: list(range(len(steps))),
        words["fed"]: [tokens(s.fed) for s in steps],
        words["positions"]: [_span(s.positions) for s in steps],
        words["right_position"]: [s.right_position for s in steps],
        words["held"]: [s.held for s in steps],
        words["right_held"]: [s.right_position + 1 - len(s.fed) if i == 0 else s.right_position
                              for i, s in enumerate(steps)],
        words["visible"]: [s.visible for s in steps],
        "max |Δlogit|": [written(s.dlogit) for s in steps],
        words["chosen"]: [label(found.pieces[s.chosen]) for s in steps],
        words["right_choice"]: [label(found.pieces[s.right_choice]) for s in steps],
    }  # fmt: skip


def _span(positions: tuple[int, ...]) -> str:
    return f"{positions[0]}" if len(positions) == 1 else f"{positions[0]} – {positions[-1]}"


def texts(found: Breaks, kind: str) -> dict[str, str]:
    """What the fault wrote, and what would have been right, with blanks made visible."""
    lane = found.broken[kind]
    return {name: _text(found, ids) for name, ids in (("broken", lane.ids), ("right", lane.right_ids))}


def _text(found: Breaks, ids: tuple[int, ...]) -> str:
    return "".join(sign for _, _, sign in character_groups([found.pieces[i] for i in ids]))


def breaks_table(found: Breaks, *, words: Words, names: Mapping[str, str]) -> dict[str, list]:
    """All faults that have been run, the right use first."""
    lanes = [found.right, *found.broken.values()]
    return {
        words["fault"]: [names[b.kind] for b in lanes],
        words["largest"]: [written(float(b.dlogit.max())) for b in lanes],
        words["same_tokens"]: [f"{b.same} / {len(b.ids)}" for b in lanes],
        words["text"]: [_text(found, b.ids) for b in lanes],
        words["right_text"]: [_text(found, b.right_ids) for b in lanes],
    }


def breaks_values(found: Breaks, kind: str) -> dict[str, object]:
    """Numbers of a fault; those of a pass are of the first one that it is in. "case": whether its text differs."""
    b: Broken = found.broken[kind]
    odd = b.steps[0 if kind in ("stale", "restart") else min(1, len(b.steps) - 1)]
    return {
        "case": "other" if b.same < len(b.ids) else "same",
        "largest": written(float(b.dlogit.max())),
        "right": written(float(found.right.dlogit.max())),
        "tolerance": written(found.tolerance),
        "same": text.count(b.same),
        "N": text.count(found.new),
        "P": text.count(len(found.prompt_ids)),
        "position": text.count(odd.positions[-1]),
        "first_position": text.count(odd.positions[0]),
        "right_position": text.count(odd.right_position),
        "right_first": text.count(odd.right_position - len(odd.fed) + 1),
        "visible": text.count(odd.visible),
        "held": text.count(odd.held),
        "stored": text.count(odd.held + len(odd.fed)),
        "other": text.count(len(b.other_ids)),
    }
