"""The player alone, on runs made of random numbers. `?case=` picks one; other parameters set it up."""

from __future__ import annotations

import streamlit as st

from kvviz.ui.player import View, player
from tests import factories

CASES = {
    "six": {"layers": 6, "heads": 8, "head_dim": 32, "P": 9, "N": 68},
    "twelve": {"layers": 12, "heads": 12, "head_dim": 64, "P": 64, "N": 65},
    "thirty": {"layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64, "P": 20, "N": 20, "positions": "rotary"},
    "shared": {"layers": 6, "heads": 8, "kv_heads": 2, "head_dim": 32, "P": 9, "N": 12, "positions": "rotary"},
    "long": {"layers": 6, "heads": 8, "head_dim": 32, "P": 180, "N": 24},
    "thousand": {"layers": 12, "heads": 12, "head_dim": 64, "P": 1000, "N": 4},
    "markup": {
        "prompt": [b"<b>", b"bold", b"</", b"b>", b"<script>", b"alert(1)", b"</script>", b" $x$", b" *y*", b" :smile:", b" [z](w)"],
        "chosen": [b"<i>", b"{token}", b"[q](w)", b"\xf0\x9f", b"\x99\x82", b"\n\n"],
        "N": 7,
    },
    "alone": {"layers": 6, "heads": 8, "head_dim": 32, "P": 9, "N": 20, "compared": False},
    "one": {"layers": 1, "heads": 1, "head_dim": 8, "P": 1, "N": 1},
    "none": {"layers": 6, "heads": 8, "head_dim": 32, "P": 9, "N": 0},
}  # fmt: skip


def page() -> None:
    q = st.query_params
    case = q.get("case", "six")
    if st.session_state.get("case") != case:
        st.session_state["case"] = case
        st.session_state["run"] = factories.make_run(**CASES[case])
        st.session_state["extends"] = []

    def extend(to: int) -> None:
        st.session_state["extends"].append(to)
        run = st.session_state["run"]
        while len(run.steps) < to:
            run = run.with_step(*factories.next_step(run))
        st.session_state["run"] = run

    @st.fragment
    def hero() -> None:
        opened = q.get("opened", "all")
        substep = int(q["substep"]) if "substep" in q else None
        view = View(int(q.get("step", 0)), int(q.get("layer", 0)), int(q.get("head", 0)), opened, substep)
        if "moved" in st.session_state:
            view = st.session_state["moved"]
        place = player(
            st.session_state["run"],
            key="player",
            language=q.get("lang", "en"),
            view=view,
            can_extend="fixed" not in q,
            mode=q.get("mode", "run"),
            presenter="presenter" in q,
            on_extend=extend,
            room=50,
        )
        st.text(f"at {place.step} {place.layer} {place.head} {place.opened} {place.substep}")
        st.text(f"asked {st.session_state['extends']}")

    hero()
    if st.button("Move"):
        st.session_state["moved"] = View(2, 1, 1)
        st.rerun()
    st.text_input("Typing")


def other() -> None:
    st.text("elsewhere")


st.set_page_config(layout="wide")
st.navigation([st.Page(page, title="Player", default=True), st.Page(other, title="Other")]).run()
