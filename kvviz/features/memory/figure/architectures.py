"""Caches of models side by side: one length on many models, and kinds of attention on one model."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from kvviz.features.memory.figure.sizes import Kept, Words, exact, hatched, kept_bars, sideways, unit_of, wanted_values
from kvviz.features.memory.record.architectures import Architecture
from kvviz.features.memory.record.sizes import Wanted
from kvviz.figures import text
from kvviz.figures.frame import between, frame
from kvviz.figures.palette import palette
from kvviz.theory.memory import precise

# One length on many models


def _sorted(wanted: Wanted, models: Sequence[Architecture]) -> list[tuple[Architecture, int]]:
    found = [(m, m.cache_bytes(wanted.positions, wanted.kept, wanted.batch)) for m in models]
    return sorted(found, key=lambda pair: pair[1])


def carried(wanted: Wanted, *, words: Words, dark: bool, models: Sequence[Architecture]) -> go.Figure:
    """A run's tokens in every model's cache, the smallest first. Hatched where a model was not made for so many."""
    p = palette(dark)
    rows = _sorted(wanted, models)
    unit, size = unit_of(rows[-1][1])
    figure = frame(
        wanted,
        p,
        x={**between(0, rows[-1][1] / size * 1.16), "title": words["cache_in"].format(unit=unit), "tickformat": ","},
        y=sideways(p, [text.literal(m.name) for m, _ in rows], size=12),
        height=110 + 20 * len(rows),
        bargap=0.25,
        margin={"l": 130, "r": 16, "t": 44, "b": 52},
        barmode="stack",
    )
    bars = [
        Kept(i, n / size, bool(m.latent), exact(n), m.past(wanted.positions), edge=m.name == wanted.model.name)
        for i, (m, n) in enumerate(rows)
    ]
    figure.add_traces(kept_bars(p, words, bars))
    if any(bar.past for bar in bars):  # for the legend alone
        figure.add_trace(go.Bar(y=[None], x=[None], name=words["past_column"], marker=hatched(p, p.background, p.text)))
    for i, (m, n) in enumerate(rows):
        own = m.name == wanted.model.name
        figure.add_annotation(
            x=n / size, y=i, text=f"<b>{precise(n)}</b>" if own else precise(n), xanchor="left", xshift=5,
            showarrow=False, font={"color": p.text, "size": 12},
        )  # fmt: skip
    return figure


def carried_table(wanted: Wanted, *, words: Words, models: Sequence[Architecture]) -> dict[str, list]:
    rows = _sorted(wanted, models)
    return {
        words["model"]: [m.name for m, _ in rows],
        "L": [m.layers for m, _ in rows],
        "H": [m.heads for m, _ in rows],
        "Hkv": [m.kv_heads for m, _ in rows],
        "D": [m.head_dim for m, _ in rows],
        words["latent"]: [m.latent or None for m, _ in rows],
        words["window"]: [m.window or None for m, _ in rows],
        words["trained"]: [m.trained or None for m, _ in rows],
        words["token_bytes"]: [m.token_bytes(wanted.kept) for m, _ in rows],
        words["bytes"]: [n for _, n in rows],
        words["past_column"]: [words["yes"] if m.past(wanted.positions) else "" for m, _ in rows],
        words["source"]: [f"{m.source.url} ({m.source.what})" if m.source else "" for m, _ in rows],
    }


def carried_values(wanted: Wanted, models: Sequence[Architecture]) -> dict[str, object]:
    rows = _sorted(wanted, models)
    return wanted_values(wanted) | {
        "count": text.count(len(rows)),
        "least": rows[0][0].name,
        "least_bytes": precise(rows[0][1]),
        "most": rows[-1][0].name,
        "most_bytes": precise(rows[-1][1]),
        "times": text.count(round(rows[-1][1] / rows[0][1])),
    }


# Kinds of attention on one model


def kinds_of(model: Architecture) -> list[tuple[str, Architecture, bool]]:
    """MHA, GQA, MQA, MLA of the same layers and heads, each with whether it is the model's own kind."""
    H, own = model.heads, model.kv_heads
    between_both = (
        own if 1 < own < H else next((H // n for n in (8, 4, 2, 3, 5) if H % n == 0 and 1 < H // n < H), None)
    )
    found = [("mha", model.with_kv_heads(H), not model.latent and own == H)]
    if between_both:
        found.append(("gqa", model.with_kv_heads(between_both), not model.latent and own == between_both))
    if H > 1:
        found.append(("mqa", model.with_kv_heads(1), not model.latent and own == 1))
    return [*found, ("mla", model.with_latent(), bool(model.latent))]


def kinds(wanted: Wanted, *, words: Words, dark: bool) -> go.Figure:
    """The same model's cache under each kind of attention; its own kind in full colour."""
    p = palette(dark)
    rows = [(kind, m, m.cache_bytes(wanted.positions, wanted.kept, wanted.batch), own)
            for kind, m, own in kinds_of(wanted.model)]  # fmt: skip
    most = max(n for *_, n, _ in rows)
    unit, size = unit_of(most)
    figure = frame(
        wanted,
        p,
        x={**between(0, most / size * 1.3), "title": words["cache_in"].format(unit=unit), "tickformat": ","},
        y=sideways(p, [_kind_name(kind, m, words) for kind, m, *_ in rows]),
        height=290,
        bargap=0.3,
        barmode="stack",
        margin={"l": 250, "r": 16, "t": 44, "b": 52},
    )
    bars = [Kept(i, n / size, bool(m.latent), exact(n), own=own) for i, (_, m, n, own) in enumerate(rows)]
    figure.add_traces(kept_bars(p, words, bars))
    for i, (_, _, n, own) in enumerate(rows):
        said = f"<b>{precise(n)}</b>   {words['as_is']}" if own else precise(n)
        figure.add_annotation(
            x=n / size, y=i, text=said, xanchor="left", xshift=6, showarrow=False, font={"color": p.text, "size": 13}
        )
    return figure


def _kind_name(kind: str, m: Architecture, words: Words) -> str:
    if kind == "mla":
        return words["mla_name"].format(values=text.count(m.latent))
    return words[f"{kind}_name"].format(Hkv=text.count(m.kv_heads))


def kinds_table(wanted: Wanted, *, words: Words) -> dict[str, list]:
    rows = kinds_of(wanted.model)
    return {
        words["kind"]: [_kind_name(kind, m, words) for kind, m, _ in rows],
        words["values_column"]: [m.values for _, m, _ in rows],
        words["token_bytes"]: [m.token_bytes(wanted.kept) for _, m, _ in rows],
        words["bytes"]: [m.cache_bytes(wanted.positions, wanted.kept, wanted.batch) for _, m, _ in rows],
        words["as_is"]: [words["yes"] if own else "" for *_, own in rows],
    }


def kinds_values(wanted: Wanted) -> dict[str, object]:
    found = {kind: m for kind, m, _ in kinds_of(wanted.model)}
    own = next((kind for kind, _, mine in kinds_of(wanted.model) if mine), "mha")
    full = found["mha"].values
    return wanted_values(wanted) | {
        "own": own.upper(),
        "mha": precise(found["mha"].cache_bytes(wanted.positions, wanted.kept, wanted.batch)),
        "times": f"{full / wanted.model.values:.3g}",
        "mla_times": f"{full / found['mla'].values:.3g}",
        "mqa_times": text.count(wanted.model.heads),
        "mla_values": text.count(found["mla"].values),
        "mha_values": text.count(full),
    }
