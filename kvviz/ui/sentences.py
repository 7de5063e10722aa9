"""What sentences may name: the numbers of a step, and tokens as they can stand in Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from kvviz.core import Run, lessons
from kvviz.core.tokens import label
from kvviz.player.view import View
from kvviz.ui import links
from kvviz.ui.language import t


def windowed(run: Run, view: View) -> bool:
    """Whether the newest query of the step sees less in the layer in view than is stored."""
    newest = run.P + view.step - 1
    return run.model.visible(view.layer, newest) <= newest


def _mask(run: Run, view: View) -> str:
    """What hides scores in this pass, as a comment in code."""
    if windowed(run, view):
        window = run.model.visible(view.layer, run.P + view.step - 1)
        return t("decode", "mask_window" if view.step else "mask_later_window", window=f"{window:,}")
    return t("decode", "mask_none" if view.step else "mask_later")


def _scaling(run: Run) -> str:
    """What code does to Q·K: `/ sqrt(64)`, but for models that have a number of their own."""
    m = run.model
    usual = math.isclose(m.attention_scale * math.sqrt(m.head_dim), 1, rel_tol=1e-3)
    return f"/ sqrt({m.head_dim})" if usual else f"* {m.attention_scale:.3g}"


def step_facts(run: Run, view: View) -> dict[str, object]:
    """What sentences about a step may name; tokens as code spans."""
    m, record = run.model, run.steps[view.step]
    Tq, T = record.rows, record.length_after
    name = {int(i): token(run, i) for i in (*record.ids[-1:], record.chosen)}
    return {
        "model": lessons.literal(m.name),
        "step": f"{view.step:,}",
        "last": f"{len(run.steps) - 1:,}",
        "layer": view.layer,
        "head": view.head,
        "P": f"{run.P:,}",
        "N": f"{len(run.steps):,}",
        "T": f"{T:,}",
        "reused": f"{record.length_before:,}",
        "token": name[int(record.ids[-1])],
        "chosen": name[record.chosen],
        "L": m.layers,
        "H": m.heads,
        "Hkv": m.kv_heads,
        "D": m.head_dim,
        "q_shape": f"(1, {m.heads}, {Tq}, {m.head_dim})",
        "kv_shape": f"(1, {m.kv_heads}, {T}, {m.head_dim})",
        "weights_shape": f"(1, {m.heads}, {Tq}, {T})",
        "divide": _scaling(run).ljust(10),  # comments of the lines of code stand below each other
        "hidden": "later | too_old" if windowed(run, view) else "later",
        "mask": _mask(run, view),
        "window": m.visible(view.layer, T - 1),
        "pad": " " * (14 - len(str(m.visible(view.layer, T - 1)))),  # as `divide`
        "token_bytes": f"{m.kv_bytes_per_token:,}",
        "kv_bytes": f"{record.kv_bytes:,}",
        "limit": f"{m.max_positions:,}",
        "ttft": f"{run.steps[0].ms:,.1f}",
    }


def token(run: Run, token_id: int) -> str:
    """A token as code within Markdown."""
    return lessons.literal(token_of(run.pieces, token_id))


def token_of(pieces: Mapping[int, bytes], token_id: int) -> str:
    """A token's label, not yet made literal: for widgets that show text as it is."""
    return label(pieces[int(token_id)])


def plain(text: str) -> str:
    """A name from a file or a machine within Markdown: as it is if it can mean nothing there, else as code."""
    short = links.shorten(text)
    return short if re.fullmatch(r"[A-Za-z0-9 .+()@/,-]+", short) else lessons.literal(short)
