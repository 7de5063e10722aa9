"""What is measured: positions and precision; and the batch that is explained. All three are in the link."""

from __future__ import annotations

import streamlit as st

from kvviz.core import Run
from kvviz.features.roofline.record import BATCHES, Roofline
from kvviz.features.roofline.spec import SPEC
from kvviz.ui import experiment, kit
from kvviz.ui.experiments import RooflineWish, roofline
from kvviz.ui.language import t

NAME = "roofline"
POSITIONS = 256  # until the learner says otherwise


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
    asked = experiment.experimenter(NAME, roofline).state().wish
    return timed if asked == timed else wish_of(run)


def batch() -> int:
    """The batch that is explained; one if none is chosen."""
    held = st.session_state.get("roofline_B")
    return int(held) if held in SPEC.fields["roofline_B"].words else BATCHES[0]


def take(run: Run, **chosen: object) -> None:
    """Sets the controls, the others as they come, and measures unless just that has been measured."""
    for name, unset in (("roofline_P", POSITIONS), ("roofline_dtype", run.model.dtype), ("roofline_B", "1")):
        st.session_state[name] = chosen.get(name, unset)
    mine, wish = experiment.experimenter(NAME, roofline), wish_of(run, timed=True)
    now = mine.state()
    if not (now.wish == wish and (now.busy or (now.complete and now.answers == wish))):
        mine.start(wish)


def shown(found: object, answers: object, run: Run) -> Roofline | None:
    """What was found, if it is about what the controls ask for."""
    about = isinstance(answers, RooflineWish) and (answers.model, answers.dtype, answers.length)
    wish = wish_of(run)
    return found if isinstance(found, Roofline) and about == (wish.model, wish.dtype, wish.length) else None
