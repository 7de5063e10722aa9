"""What is raced: lengths, batch, lanes, and what besides. All of it is in the link."""

from __future__ import annotations

import streamlit as st

from kvviz.core import Run
from kvviz.core.refusal import Refusal
from kvviz.features.ladder.parts.wish import LadderWish, ladder
from kvviz.features.ladder.spec import LANES as EVERY
from kvviz.features.ladder.spec import SPEC
from kvviz.ui import experiment, warm
from kvviz.ui.guard import refused
from kvviz.ui.language import t

NAME = "ladder"
NEW, BATCH = 64, 1  # until the learner says otherwise
LANES = ["none-sdpa", "concatenated-sdpa", "preallocated-sdpa"]
MORE: list[str] = []


def controls(run: Run) -> LadderWish:
    """Lengths, batch, what besides, Start and Stop; the lanes below them."""
    length, new, batch, more, start, stop = st.columns([1.9, 1.6, 1.6, 2.4, 1.6, 1.6], vertical_alignment="bottom")
    length.number_input(
        t(NAME, "control_P"),
        *SPEC.fields["ladder_P"],
        None,
        placeholder=t(NAME, "control_P_unset", P=f"{run.P:,}"),
        help=t(NAME, "control_P_help"),
        key="ladder_P",
        persist_state="session",
    )
    new.number_input(t(NAME, "control_N"), *SPEC.fields["ladder_N"], key="ladder_N", persist_state="session")
    batch.number_input(
        t(NAME, "control_B"),
        *SPEC.fields["ladder_B"],
        help=t(NAME, "control_B_help"),
        key="ladder_B",
        persist_state="session",
    )
    _several(more, "ladder_more", _further(run))
    _several(st.container(), "ladder_lanes", EVERY)
    wish = wish_of(run)
    problem = too_long(run, wish)

    def asked() -> LadderWish:
        at_click = wish_of(run)
        return at_click if at_click.lanes and too_long(run, at_click) is None else wish

    off = not wish.lanes or problem is not None
    experiment.start_and_stop(NAME, ladder, wish, t(NAME, "start"), where=(start, stop), asked=asked, off=off)
    if off:
        st.caption(t(NAME, "no_lane") if problem is None else refused(problem))
    return wish


def too_long(run: Run, wish: LadderWish) -> Refusal | None:
    """Why these lengths can't be run: the engine would refuse them in the same words after Start."""
    P, facts = wish.length or run.P, run.model
    room = max(0, facts.max_positions - P + 1)
    if wish.new <= room:
        return None
    code = "too_many_new" if facts.positions == "learned" else "too_many_new_rotary"
    return Refusal(code, model=facts.name, P=P, new=wish.new, room=room, limit=facts.max_positions)


def _several(where: st.delta_generator.DeltaGenerator, name: str, words: tuple[str, ...]) -> None:
    st.session_state[name] = [word for word in words if word in (st.session_state.get(name) or [])]
    where.pills(
        t(NAME, f"{name}_label"),
        words,
        selection_mode="multi",
        format_func=lambda word: t(NAME, f"{name}_{word.replace('-', '_')}"),
        help=t(NAME, f"{name}_help"),
        key=name,
        persist_state="session",
    )


def _further(run: Run) -> tuple[str, ...]:
    """A compiled decode step is for CUDA, where it becomes a graph. A run from a file tells of another machine: the
    model itself, once it is there, says where it runs."""
    model = warm.loaded(run.model.name, run.model.dtype)
    device = model.machine.device if model else run.machine.device if run.source == "live" else ""
    compiled = device.startswith("cuda")
    return ("half", "generate", "compiled") if compiled else ("half", "generate")


def wish_of(run: Run) -> LadderWish:
    """What Start would race: the lanes chosen, and their SDPA ones once more in half precision if that is asked for."""
    held = st.session_state
    chosen, more = held.get("ladder_lanes") or [], held.get("ladder_more") or []
    lanes = [(*lane.split("-"), "", False) for lane in EVERY if lane in chosen]
    if "half" in more and run.model.dtype != "bfloat16":
        lanes += [(cache, kernel, "bfloat16", False) for cache, kernel, *_ in lanes if kernel == "sdpa"]
    if "compiled" in more and "compiled" in _further(run):
        lanes.append(("preallocated", "sdpa", "", True))
    return LadderWish(
        run.model.name, run.model.dtype, run.prompt, held.get("ladder_N") or NEW, held.get("ladder_P"),
        held.get("ladder_B") or BATCH, tuple(lanes), "generate" in more,
    )  # fmt: skip


def take(run: Run, **chosen: object) -> None:
    """Sets the controls, the others as they come, and starts."""
    usual = {"ladder_P": None, "ladder_N": NEW, "ladder_B": BATCH, "ladder_lanes": LANES, "ladder_more": MORE,
             "ladder_view": "time"}  # fmt: skip
    st.session_state.update(usual | chosen)
    experiment.job(NAME, ladder).start(wish_of(run))
