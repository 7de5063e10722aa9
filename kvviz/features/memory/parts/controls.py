"""Which model, how long, how many, how precise: the page's own controls, all of them in the link but pasted text."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from kvviz.core import Run
from kvviz.core.refusal import Refusal
from kvviz.features.memory.record.architectures import FORMATS, Architecture, checked, checked_request, of_facts
from kvviz.features.memory.record.gpus import GPUS, Gpu
from kvviz.features.memory.record.model_config import read
from kvviz.features.memory.record.presets import PRESETS
from kvviz.features.memory.record.sizes import LEAST_MEMORY, Wanted
from kvviz.features.memory.spec import SPEC
from kvviz.ui.guard import refused
from kvviz.ui.language import t

NAME = "memory"
MODEL, GPU = "llama-3-8b", "h100"  # until the learner says otherwise
OWN_NUMBERS = {"memory_L": 32, "memory_H": 32, "memory_Hkv": 8, "memory_D": 128, "memory_window": 0}
_CONTROLS = {
    "layers": "control_L",
    "heads": "control_H",
    "kv_heads": "control_Hkv",
    "head_dim": "control_D",
    "window": "control_window",
}
LEAST = {"memory_L": 1, "memory_H": 1, "memory_Hkv": 1, "memory_D": 1, "memory_total": LEAST_MEMORY}  # zero is refused


def take(**chosen: object) -> None:
    """Sets the controls that a Try names, and Llama-3-8B in 16 bits where it names no other. The rest stays."""
    st.session_state.update({"memory_model": MODEL, "memory_kv": "half"} | chosen)


def number(where: st.delta_generator.DeltaGenerator, name: str, default: float | None, **more: object) -> float | None:
    """A number of the page; its limits are the link's. The browser marks a number outside them and does not send it;
    its sentence is English and seen on hover alone, so the help says the limits."""
    st.session_state.setdefault(name, default)
    least, most = SPEC.fields[name]
    limits = t(NAME, "control_limits", least=f"{LEAST.get(name, least):,}", most=f"{most:,}")
    more["help"] = f"{more.get('help', '')} {limits}".strip()
    return where.number_input(
        t(NAME, f"control_{name.removeprefix('memory_')}"),
        least,
        most,
        None if default is None else "min",
        key=name,
        persist_state="session",
        **more,
    )


def pick(where: st.delta_generator.DeltaGenerator, name: str, default: str, shown: Callable[[str], str]) -> str:
    """One of a few. A link sets it, Copy link holds it."""
    held, options = st.session_state.get(name), SPEC.fields[name].words
    if held not in options:  # after a reload the browser tells the text of the line
        st.session_state[name] = next((each for each in options if shown(each) == held), default)
    label = t(NAME, f"control_{name.removeprefix('memory_')}")
    return where.selectbox(label, options, format_func=shown, key=name, persist_state="session")


def asked(run: Run) -> Wanted:
    """The model, length, batch and precision of the cache that the controls say, each told apart from this run's."""
    which, length, batch, kept = st.columns([3, 2.2, 1.5, 1.8], vertical_alignment="bottom")
    kind = pick(which, "memory_model", MODEL, lambda key: _model_name(run, key))
    T = number(length, "memory_T", None, placeholder=t(NAME, "control_T_unset", T=f"{run.length:,}"))
    B = number(batch, "memory_B", 1)
    precision = pick(kept, "memory_kv", "half", lambda key: FORMATS[key].name)
    model = _model(run, kind)
    # These two have their controls further down.
    held = st.session_state.get("memory_weights")
    weights = next((f for key, f in FORMATS.items() if held in (key, f.name)), FORMATS["half"])
    gpus = int(st.session_state.get("memory_gpus") or 1)
    positions, several = int(T or run.length), int(B or 1)
    checked_request(positions, several)
    return Wanted(run.key, model, positions, several, FORMATS[precision], weights, gpus)


def configured(wanted: Wanted) -> tuple[Wanted, Gpu]:
    """Weights, GPU and how many of them: the controls of what fits."""
    which, many, weights = st.columns([3, 2, 2], vertical_alignment="bottom")
    gpu = pick(which, "memory_gpu", GPU, lambda key: t(NAME, "gpu_option", gpu=GPUS[key].name, gib=GPUS[key].memory))
    gpus = number(many, "memory_gpus", 1)
    kept = pick(weights, "memory_weights", "half", lambda key: FORMATS[key].name)
    wanted = Wanted(
        wanted.key, wanted.model, wanted.positions, wanted.batch, wanted.kept, FORMATS[kept], int(gpus or 1)
    )
    return wanted, GPUS[gpu]


def _model_name(run: Run, key: str) -> str:
    """As a list shows it: literally."""
    if key in PRESETS:
        return PRESETS[key].name
    return t(NAME, f"model_{key}", model=run.model.name)


def _model(run: Run, kind: str) -> Architecture:
    """The chosen model. What can't be one gets a sentence, and the run's own model stands in."""
    own = of_facts(run.model)
    try:
        if kind == "own":
            return _own_numbers()
        if kind == "config":
            text = st.text_area(
                t(NAME, "control_config"),
                placeholder=t(NAME, "config_unset"),
                key="memory_config",
                height=140,
                persist_state="session",
            )
            if not text.strip():
                st.caption(t(NAME, "config_waits"))
                return own
            return read(text)
    except Refusal as refusal:
        st.warning(refused(_labelled(refusal)))
        st.caption(t(NAME, "stands_in"))
        return own
    return PRESETS.get(kind, own)


def _labelled(refusal: Refusal) -> Refusal:
    """The same, a part of a model called as its control is."""
    control = _CONTROLS.get(refusal.values.get("part"))
    return Refusal(refusal.code, **refusal.values | {"part": t(NAME, control)}) if control else refusal


def _own_numbers() -> Architecture:
    columns = st.columns(6)
    L, H, Hkv, D, window = (
        int(number(column, name, default) or 0)
        for column, (name, default) in zip(columns[:5], OWN_NUMBERS.items(), strict=True)
    )
    millions = number(columns[5], "memory_millions", 8_030)
    return checked(
        Architecture(
            t(NAME, "own_name"), L, H, Hkv, D, parameters=int(millions or 0) * 10**6 or None,
            window=window, windowed=L if window else 0,
        )
    )  # fmt: skip
