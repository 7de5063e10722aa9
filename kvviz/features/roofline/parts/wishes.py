"""What is measured: positions and precision; and the batch that is explained. All three are in the link."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

import streamlit as st

from kvviz.core import Run
from kvviz.features.roofline.record import BATCHES, Roofline
from kvviz.features.roofline.spec import SPEC
from kvviz.ui import experiment, kit
from kvviz.ui.job import Wish
from kvviz.ui.language import t

if TYPE_CHECKING:
    from kvviz.models.loading import LoadedModel

NAME = "roofline"
POSITIONS = 256  # until the learner says otherwise


@dataclass(frozen=True)
class RooflineWish(Wish):
    """Prefill of `length` tokens and decode steps after it: by formula alone, or `timed`."""

    length: int
    timed: bool = False

    @property
    def timing(self) -> bool:  # type: ignore[override]
        return self.timed

    @property
    def subject(self) -> object:
        return type(self), self.model, self.dtype, self.length


def roofline(model: LoadedModel, wish: RooflineWish, stop: Event) -> Iterator[Roofline]:
    from kvviz.features.roofline import measure as engine

    return engine.points(model, wish.length, stop=stop) if wish.timed else engine.plan(model, wish.length)


def wish_of(run: Run, *, timed: bool = False) -> RooflineWish:
    """What the controls ask for, of that run's model."""
    held = st.session_state
    chosen = held.get("roofline_dtype") or run.model.dtype
    return RooflineWish(run.model.name, chosen, int(held.get("roofline_P") or POSITIONS), timed)


def controls(run: Run) -> RooflineWish:
    """Positions, precision, batch, Measure and Stop. The wish stays the timed one once that has been asked for: the
    passes by formula alone would take its place."""
    length, precision, which, buttons = st.columns([1.35, 1.75, 2.95, 2.65], vertical_alignment="bottom")
    length.number_input(
        t(NAME, "control_P"),
        *SPEC.fields["roofline_P"],
        help=t(NAME, "control_P_help"),
        key="roofline_P",
        persist_state="session",
    )
    with precision:
        kit.choice(SPEC, "roofline_dtype", first=run.model.dtype)
    with which:
        kit.choice(SPEC, "roofline_B")
    timed = wish_of(run, timed=True)
    experiment.start_and_stop(
        NAME, roofline, timed, t(NAME, "start"), where=buttons.columns(2), asked=lambda: wish_of(run, timed=True)
    )
    asked = experiment.job(NAME, roofline).state().wish
    return timed if asked == timed else wish_of(run)


def batch() -> int:
    """The batch that is explained; one if none is chosen."""
    held = st.session_state.get("roofline_B")
    return int(held) if held in SPEC.fields["roofline_B"].words else BATCHES[0]


def take(run: Run, **chosen: object) -> None:
    """Sets the controls, the others as they come, and measures unless just that has been measured."""
    for name, unset in (("roofline_P", POSITIONS), ("roofline_dtype", run.model.dtype), ("roofline_B", "1")):
        st.session_state[name] = chosen.get(name, unset)
    mine, wish = experiment.job(NAME, roofline), wish_of(run, timed=True)
    now = mine.state()
    if not (now.wish == wish and (now.busy or (now.complete and now.about(wish)))):
        mine.start(wish)
