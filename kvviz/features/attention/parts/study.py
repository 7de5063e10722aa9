"""What this page has measured: every head's habits, the proofs, and the gallery of masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np
import streamlit as st

from kvviz.core import Check, Run
from kvviz.features.attention.record.heads import HABITS, HeadFacts, Induction, head_facts
from kvviz.figures import text
from kvviz.ui import experiment, kit
from kvviz.ui.job import State, Wish
from kvviz.ui.language import t

NAME = "attention"
LONGEST = 512  # tokens of the run that the proofs are made on


@dataclass(frozen=True)
class HeadWish(Wish):
    """Induction on this model, and the proofs on the run's tokens."""

    ids: tuple[int, ...]


@dataclass(frozen=True)
class MaskWish(Wish):
    """The gallery, with the run's tokens."""

    ids: tuple[int, ...]


def measure_heads(model: Any, wish: HeadWish, stop: Event) -> Iterator[tuple[Induction, tuple[Check, ...]]]:
    from kvviz.features.attention.measure import heads as engine

    yield engine.induction(model), engine.checks(model, wish.ids)


def make_masks(model: Any, wish: MaskWish, stop: Event) -> Iterator[Any]:
    from kvviz.features.attention.measure import masks as mask_gallery

    yield mask_gallery.gallery(model, wish.ids)


def wishes(run: Run) -> tuple[HeadWish, MaskWish]:
    ids = tuple(int(i) for i in run.ids)
    facts = (run.model.name, run.model.dtype)
    return HeadWish(*facts, ids[: min(LONGEST, run.P)]), MaskWish(*facts, ids[:12])


def study(run: Run) -> tuple[Induction | None, tuple[Check, ...]]:
    """What the experiment on this run's model has found, if it has."""
    now = experiment.at_hand("heads", measure_heads, wishes(run)[0])
    return now.result_for(wishes(run)[0]) or (None, ())


def _facts(run: Run, step: int) -> HeadFacts:
    """Kept until another step or run is asked for: every pick of a head asks again."""
    key = (run.key, run.source, step)
    if st.session_state.get("kv_head_facts", (None,))[0] != key:
        st.session_state.kv_head_facts = key, head_facts(run, step)
    return st.session_state.kv_head_facts[1]


def scores(run: Run, step: int) -> dict[str, np.ndarray]:
    """(L, H) of each habit; of induction NaN until it has been measured."""
    facts, found = _facts(run, step), study(run)[0]
    missing = np.full((run.model.layers, run.model.heads), np.nan)
    return {name: getattr(facts, name) for name in HABITS if name != "induction"} | {
        "induction": found.score if found else missing
    }


def written(name: str, value: float) -> str:
    if np.isnan(value):
        return "–"
    return t(NAME, "bits_n", bits=f"{value:.2f}") if name == "entropy" else text.percent(value)


def proofs(run: Run) -> None:
    """Live: what was asserted on the tensors of this model, and that masked runs come to the plain run's logits."""
    experiment.live("proofs", "heads", measure_heads, wishes(run)[0], lambda now: _proofs(run, now))


def _proofs(run: Run, now: State) -> None:
    own, wish = wishes(run)
    found = list((now.result_for(own) or (None, ()))[1])
    if masked := experiment.at_hand("masks", make_masks, wish).result_for(wish):
        found += [
            Check(f"mask_{c.name}", "holds" if c.equal else "fails", c.max_abs_dlogit, c.limit)
            for c in masked.comparisons
            if c.must_equal
        ]
    if found:
        rows = min(run.P, LONGEST)
        kit.proofs(NAME, found, P=text.count(rows), heads=run.model.layers * run.model.heads)
