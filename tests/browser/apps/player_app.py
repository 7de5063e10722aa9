"""The player alone, on runs made of random numbers. `?case=` picks one; other parameters set it up."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import streamlit as st
from factories import PLAYER_CASES, drifting, failing, make_run, next_step

from kvviz.core import Run, storage
from kvviz.player import message
from kvviz.player.component import player
from kvviz.player.view import View


def opened_run(case: str) -> Run:
    if case == "bundled":
        return storage.bundled()
    if case in ("fails", "rounding"):
        return failing(make_run(**PLAYER_CASES["six"]), 4, case)
    if case == "logits":
        return drifting(make_run(**PLAYER_CASES["six"]), 4)
    return make_run(**PLAYER_CASES[case])


def ahead(run: Run, passes: int) -> list[Run]:
    """The run with one pass more, two more, ...: the same that `extend` makes."""
    runs = [run]
    for _ in range(passes):
        runs.append(runs[-1].with_step(next_step(runs[-1]), {}))
    return runs[1:]


def page() -> None:
    q = st.query_params
    case = q.get("case", "six")
    if st.session_state.get("case") != case:
        run = opened_run(case)
        st.session_state.update({"case": case, "run": run, "asked": []})
        if "lost" in q:  # Python believes that the browser has the first passes, which it has not
            held = message.Have(passes=5, language="en")
            st.session_state["kvviz.player"] = OrderedDict({message.identity(run): held})

    def extend(to: int) -> None:
        st.session_state["asked"].append(to)
        run = st.session_state["run"]
        while len(run.steps) < to:
            run = run.with_step(next_step(run), {})
        st.session_state["run"] = run

    @st.fragment
    def hero() -> None:
        substep = int(q["substep"]) if "substep" in q else None
        view = View(
            int(q.get("step", 0)), int(q.get("layer", 0)), int(q.get("head", 0)), q.get("opened", "all"), substep
        )
        place = player(
            st.session_state["run"],
            key="player",
            language=q.get("lang", "en"),
            view=st.session_state.get("moved", view),
            can_extend="fixed" not in q,
            mode=q.get("mode", "run"),
            presenter="presenter" in q,
            on_extend=extend,
            room=int(q.get("room", 50)) - len(st.session_state["asked"]),
            ahead=ahead(st.session_state["run"], int(q.get("ahead", 0))),
            busy=q.get("busy"),
        )
        st.text(f"at {place.step} {place.layer} {place.head} {place.opened} {place.substep}")
        st.text(f"passes {len(st.session_state['run'].steps)}")

    hero()
    if st.button("Move"):
        st.session_state["moved"] = View(2, 1, 1)
        st.rerun()
    st.text_input("Typing")
    st.slider("Amount", 0, 10)


def other() -> None:
    st.text("elsewhere")


st.set_page_config(layout="wide")
st.navigation([st.Page(page, title="Player", default=True), st.Page(other, title="Other")]).run()
