"""Bytes that the cache holds after each pass: counted from its tensors, with the formula's line beside them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.figures import text
from kvviz.figures.frame import between, by_pass, frame
from kvviz.figures.palette import palette
from kvviz.theory.memory import human, kv_bytes

_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


def counted(run: Run, step: int) -> np.ndarray:
    """(step + 1,) int64: bytes of the cache's storages after each pass."""
    return np.array([s.kv_bytes for s in run.steps[: step + 1]], dtype=np.int64)


def formula(run: Run, step: int) -> np.ndarray:
    """(step + 1,) int64: 2 · L · Hkv · D · T · B · (bytes a value), with T = P, P+1, …"""
    m = run.model
    return np.array(
        [kv_bytes(m.layers, m.kv_heads, m.head_dim, run.P + s, m.value_bytes) for s in range(step + 1)],
        dtype=np.int64,
    )


def bytes_held(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """Stacked by tensor: K below, V above, each with what was there before muted and what the pass added in full."""
    p = palette(dark)
    held = counted(run, step)
    before = np.concatenate([[0], held[:-1]])
    most = int(counted(run, len(run.steps) - 1).max())
    unit, size = _unit(most)
    passes = np.arange(step + 1)
    figure = frame(
        run,
        p,
        x=by_pass(run, p, words),
        y={**between(0, most / size * 1.08), "title": words["bytes_axis"].format(unit=unit), "tickformat": ","},
        barmode="stack",
        bargap=0.25,
    )
    # K and V have one shape, so half of the bytes are K's.
    for name, amount, colour, edge in (
        (words["k_reused"], before, p.k_muted, 0),
        (words["k_new"], held - before, p.k, 2),
        (words["v_reused"], before, p.v_muted, 0),
        (words["v_new"], held - before, p.v, 2),
    ):
        figure.add_trace(
            go.Bar(
                x=passes,
                y=amount / 2 / size,
                name=name,
                customdata=amount // 2,
                marker={"color": colour, "line": {"color": p.text, "width": edge}},
                hovertemplate=f"{words['pass']} %{{x}}<br>{name}: %{{customdata:,}} bytes<extra></extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=passes,
            y=formula(run, step) / size,
            name=words["formula"],
            mode="lines+markers",
            line={"color": p.text, "width": 1, "dash": "dot"},
            marker={"symbol": "diamond-open", "size": 8, "color": p.text},
            customdata=formula(run, step),
            hovertemplate=f"{words['pass']} %{{x}}<br>{words['formula']}: %{{customdata:,}} bytes<extra></extra>",
        )
    )
    return figure


def _unit(n: int) -> tuple[str, int]:
    return next((name, size) for name, size in _UNITS if n >= size or size == 1)


def bytes_table(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str]) -> dict[str, list]:
    held, expected = counted(run, step), formula(run, step)
    return {
        words["pass"]: list(range(step + 1)),
        words["positions_held"]: [s.length_after for s in run.steps[: step + 1]],
        words["bytes_counted"]: held.tolist(),
        words["bytes_formula"]: expected.tolist(),
        words["bytes_added"]: np.diff(held, prepend=0).tolist(),
    }


def bytes_values(run: Run, step: int, layer: int, head: int) -> dict[str, object]:
    record, m = run.steps[step], run.model
    B = record.kv_shape[2]
    added = record.kv_bytes - (run.steps[step - 1].kv_bytes if step else 0)
    return {
        "case": "prefill" if step == 0 else "decode",
        "bytes": text.count(record.kv_bytes),
        "human": human(record.kv_bytes),
        "added": text.count(added),
        "tensors": record.kv_tensors,
        "T": text.count(record.length_after),
        "L": m.layers,
        "Hkv": m.kv_heads,
        "D": m.head_dim,
        "B": B,
        "value_bytes": m.value_bytes,
        "product": text.count(kv_bytes(m.layers, m.kv_heads, m.head_dim, record.length_after, m.value_bytes, batch=B)),
        "position_bytes": text.count(m.kv_bytes_per_token),
    }
