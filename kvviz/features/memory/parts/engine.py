"""The budget of a serving engine: its fields, what is left for K and V, and how many requests that holds."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from kvviz.features.memory.figure import capacity
from kvviz.features.memory.parts.controls import NAME, number, take
from kvviz.features.memory.parts.parts import told
from kvviz.features.memory.record.gpus import Gpu
from kvviz.features.memory.record.sizes import Budget, Wanted
from kvviz.features.memory.spec import SPEC
from kvviz.theory.capacity import GIB
from kvviz.ui import kit
from kvviz.ui.guard import guarded
from kvviz.ui.language import t
from kvviz.ui.spec import Try

FIELDS = {  # None: as the GPU, the weights and the model above have it
    "memory_total": None,
    "memory_percent": 90,
    "memory_resident": None,
    "memory_peak": 1.5,
    "memory_other": 0.3,
    "memory_block": 16,
    "memory_longest": None,
    "memory_request": 800,
}
UNKNOWN = 14.0  # GiB of weights, where the parameters are not known
# Real cases. The first two logs have the weights within the peak; the second one's budget gives 2.89 GiB.
LOG = {"total": 23.58, "percent": 90, "resident": 0.0, "peak": 17.06, "other": 0.35, "longest": 20_000}
LONG = {"total": 24.0, "percent": 90, "resident": 0.0, "peak": 18.36, "other": 0.35, "longest": 29_000}
NOTHING = {"total": 24.0, "percent": 60, "resident": 14.0, "peak": 1.5, "other": 0.3, "longest": None}


def cases() -> None:
    """Budgets worth seeing, all of them Llama-3-8B's."""
    kit.tries(
        SPEC,
        {"log": lambda: _take(LOG), "long": lambda: _take(LONG), "nothing": lambda: _take(NOTHING)},
        which=(Try("log"), Try("long"), Try("nothing")),
    )


def _take(case: Mapping[str, float | None]) -> None:
    fields = {f"memory_{name}": value for name, value in case.items()}
    take(**{"memory_block": 16, "memory_request": 800} | fields)


@guarded
def engine(wanted: Wanted, gpu: Gpu) -> None:
    weights = wanted.weights_a_gpu
    usual = dict(FIELDS) | {
        "memory_total": float(gpu.memory),
        "memory_resident": UNKNOWN if weights is None else weights / GIB,
        "memory_longest": wanted.model.trained or wanted.positions,
    }
    names = list(FIELDS)
    given = {}
    for row in (names[:5], names[5:]):
        for column, name in zip(st.columns(5), row, strict=False):
            unset = {}
            if FIELDS[name] is None:
                shown = f"{usual[name]:,.2f}" if isinstance(usual[name], float) else f"{usual[name]:,}"
                unset = {"placeholder": shown, "help": t(NAME, "control_unset_help")}
            given[name] = number(column, name, FIELDS[name], **unset)
    total, percent, resident, peak, other, block, longest, request = (
        usual[name] if given[name] is None else given[name] for name in names
    )
    budget = Budget(
        wanted.key, float(total), int(percent) / 100, float(resident), float(peak), float(other), int(block),
        wanted.model.token_bytes(wanted.kept), int(longest), int(request), bool(wanted.model.latent),
    )  # fmt: skip
    values = told(capacity.budget_values(budget) | {"name": wanted.model.name, "kept": wanted.kept.name})
    values["less"] = t(NAME, "less_within" if values["within"] else "less_apart", **values)
    st.markdown(t(NAME, f"engine_{budget.case}", **values))
    if said := _whose(given["memory_resident"], weights):
        model = "n/a" if weights is None else f"{weights / GIB:,.2f}"
        st.caption(t(NAME, said, **values | {"model_weights": model, "field": t(NAME, "control_resident")}))
    if budget.within and budget.room > 0:
        st.caption(t(NAME, "engine_logged", **values))
    asked = max(budget.longest, budget.request)
    if wanted.model.past(asked):
        trained = f"{wanted.model.trained:,}"
        st.warning(t(NAME, "engine_past", **values | {"request_tokens": f"{asked:,}", "trained": trained}))
    kit.chart(NAME, "budget", capacity.budget, capacity.budget_table, budget, values=values, answer="")


def _whose(given: float | None, weights: int | None) -> str | None:
    """The section that says where the size of the weights comes from; None: from the model above."""
    if given is None:
        return "engine_weights_unknown" if weights is None else None
    if given == 0:
        return "engine_weights_within"
    if weights is not None and abs(given - weights / GIB) < 0.005:  # as it is shown
        return None
    return "engine_weights_given" if weights is None else "engine_weights_differ"
