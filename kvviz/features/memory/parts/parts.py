"""The hero, the growth of a cache, one length on many models, kinds of attention, and what fits."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from kvviz.core import lessons
from kvviz.features.memory.figure import architectures, capacity, sizes
from kvviz.features.memory.parts.controls import NAME
from kvviz.features.memory.record.architectures import Architecture
from kvviz.features.memory.record.gpus import GPUS, Gpu
from kvviz.features.memory.record.presets import PRESETS
from kvviz.features.memory.record.sizes import Held, Wanted
from kvviz.features.memory.spec import SPEC
from kvviz.theory.memory import split_evenly
from kvviz.ui import kit
from kvviz.ui.guard import guarded
from kvviz.ui.language import t


def literal(values: Mapping[str, object]) -> dict[str, object]:
    """Names of models as code: a pasted config says what it likes."""
    names = ("name", "least", "most", "model")
    return {k: lessons.literal(str(v)) if k in names else v for k, v in values.items()}


# Counts that sentences give with their noun, which may have to be in the singular.
_SAID = {
    **dict.fromkeys(("T", "length", "block", "tokens", "longest", "request"), "tokens"),
    **dict.fromkeys(("blocks", "each", "most_blocks"), "blocks"),
    **{"L": "layers", "H": "query_heads", "Hkv": "kv_heads", "batch": "texts"},
    **{"positions": "positions", "rows": "rows"},
}


def told(values: Mapping[str, object]) -> dict[str, object]:
    """As `literal`, with counts and their nouns: `T_said` is "1 token" or "8,192 tokens". A count that is only known to
    be as large as that ("≥ …") has its `_bound` in words, as has one that is the largest."""
    said = {}
    for name, noun in _SAID.items():
        if (n := values.get(name)) is not None:
            number = str(n).removeprefix("≥ ")
            said[f"{name}_said"] = t(NAME, f"count_{noun}_one" if number == "1" else f"count_{noun}", n=number)
            said[f"{name}_bound"] = t(NAME, "bound_most" if number == n else "bound_least")
    return literal(values) | said


def values_of(held: Held) -> dict[str, object]:
    values = sizes.parts_values(held)
    return told(values | {"model": held.model.name, "positions": values["T"]})


def hero(held: Held) -> None:
    """The formula with this run's numbers, what was counted, and both within all that the run takes."""
    values = values_of(held)
    kit.answer(NAME, "answer", **values)
    st.container(key="formula").text(t(NAME, "formula", **values))
    picture, side = st.columns([3.2, 1.6])
    with picture:
        kit.chart(NAME, "parts", sizes.parts, sizes.parts_table, held, values=values, answer="")
    with side:
        labels = ("counted", "formula", "token", "share", "tensors")
        rows = [(t(NAME, f"fact_{name}"), t(NAME, f"fact_{name}_value", **values)) for name in labels]
        kit.facts(NAME, rows, t(NAME, "facts_title"))


@guarded
def growth(wanted: Wanted) -> None:
    """Bytes with length, a line for each precision or batch."""
    m, values = wanted.model, told(sizes.wanted_values(wanted))
    kind = "latent" if m.latent else "window" if m.windowed else "plain"
    whose = "window_all" if m.windowed == m.layers else "window_some"
    values["whose"] = t(NAME, f"{whose}_one" if m.windowed == 1 else whose, **values)
    st.markdown(t(NAME, f"size_{kind}", **values))
    if m.past(wanted.positions):
        st.warning(t(NAME, "past", **values))
    by = kit.choice(SPEC, "memory_by") or "dtype"
    kit.chart(
        NAME, "growth", sizes.growth, sizes.growth_table, wanted, values=values, answer=f"growth_answer_{by}", by=by
    )


@guarded
def carried(here: Wanted) -> None:
    """This run's tokens in every preset."""
    models: list[Architecture] = [*PRESETS.values()]
    if here.model.name not in {m.name for m in models}:
        models.append(here.model)
    values = told(architectures.carried_values(here, models))
    kit.chart(NAME, "carried", architectures.carried, architectures.carried_table, here, values=values, models=models)


@guarded
def kinds(wanted: Wanted) -> None:
    values = told(architectures.kinds_values(wanted))
    said = "kinds_answer_mha" if values["own"] == "MHA" else "kinds_answer"
    kit.chart(NAME, "kinds", architectures.kinds, architectures.kinds_table, wanted, values=values, answer=said)


@guarded
def fits(wanted: Wanted, gpu: Gpu) -> None:
    """Weights and cache on GPUs, with the largest batch and the longest text."""
    values = told(capacity.fits_values(wanted, gpu))
    said = t(NAME, f"fits_{values['case']}", **values)
    st.markdown(f"{said} {t(NAME, 'fits_past', **values)}" if values.get("length_past") else said)
    if values["case"] == "unknown":
        return
    if wanted.model.estimated:
        st.caption(t(NAME, "fits_computed", **values))
    if values["case"] == "fits":
        st.markdown(t(NAME, "fits_read_experts" if values["experts"] else "fits_read", **values))
    if wanted.gpus > 1:
        m = wanted.model
        kind = "split_latent" if m.latent else "split_short" if wanted.gpus > m.kv_heads else "split"
        parts = [kind]
        if not split_evenly(m.heads, m.kv_heads, wanted.gpus):
            parts = ["split_uneven", kind if m.latent else "split_rounded"]
        st.markdown(" ".join(t(NAME, each, **values) for each in parts))
    kit.chart(
        NAME,
        "fits",
        capacity.fits,
        capacity.fits_table,
        wanted,
        values=values,
        answer="",
        gpus=list(GPUS.values()),
        chosen=gpu,
    )
