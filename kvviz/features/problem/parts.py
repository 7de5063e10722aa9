"""Without a cache: the triangle of rows that are computed again and again, counted."""

import streamlit as st

from kvviz.core import Run
from kvviz.features.problem import figure as figures
from kvviz.features.problem.record import Growth, of_run
from kvviz.ui import experiment, links, request, shell, state
from kvviz.ui.experimenter import State
from kvviz.ui.experiments import GrowthWish, found, growth
from kvviz.ui.guard import guarded
from kvviz.ui.language import t

NAME = "problem"
NEW = 20  # tokens, until the learner says otherwise
SMALL, MIDDLE, LONG = (5, 20), (4, 30), (100, 100)  # P, N of Try this


def controls(run: Run) -> GrowthWish:
    """Prompt length and new tokens; a link may hold both."""
    request.take_own(NAME, work_N=NEW)
    length, new, start, stop = st.columns([2.4, 2, 2.4, 1.4], vertical_alignment="bottom")
    own = links.OWN[NAME]
    P = length.number_input(
        t(NAME, "control_P"),
        *own["work_P"],
        None,
        placeholder=t(NAME, "control_P_unset", P=f"{run.P:,}"),
        help=t(NAME, "control_P_help"),
        key="work_P",
        persist_state="session",
    )
    N = new.number_input(t(NAME, "control_N"), *own["work_N"], key="work_N", persist_state="session")
    wish = wished(run, P, N)

    def asked() -> GrowthWish:
        return wished(run, *(st.session_state.get(name) for name in ("work_P", "work_N")))

    experiment.start_and_stop(NAME, growth, wish, t(NAME, "start"), where=(start, stop), asked=asked)
    return wish


def wished(run: Run, P: int | None, N: int | None) -> GrowthWish:
    return GrowthWish(run.model.name, run.model.dtype, run.prompt, N or NEW, P)


def hero(now: State) -> object:
    """The triangle, its counters, and how many passes of it are shown.

    Until the experiment has counted on this run's prompt: the first passes of the run itself.
    """
    run = state.current_run()
    whole = found(now, run) or of_run(run, NEW)
    line = st.container()
    picture, side = st.columns([3.2, 1.4])
    with side:
        shown = whole if now.busy else whole.upto(passes(whole))
        values = figures.growth_values(shown) | {"device": shell.plain(shown.machine.device_name)}
        counters(values)
        st.caption(t(NAME, f"counted_{whole.source}", **values))
        waits = st.container()
    with line:
        experiment.answer(NAME, f"answer_{values['case']}", **values)
    with picture:
        experiment.chart(NAME, "triangle", figures.triangle, figures.triangle_table, shown, values=values, answer="")
    st.session_state.kv_growth = whole
    return waits


def passes(whole: Growth) -> int:
    """How many passes the learner wants to see: all, or fewer."""
    if whole.n < 2:
        return whole.n
    held = st.session_state.get("work_shown")
    st.session_state.work_shown = min(held, whole.n) if held and held != st.session_state.get("kv_all") else whole.n
    st.session_state.kv_all = whole.n
    return st.slider(t(NAME, "passes"), 1, whole.n, key="work_shown")


def counters(values: dict) -> None:
    rows = [
        (t(NAME, f"counter_{name}"), values[f"{name}_without"], values[f"{name}_kept"])
        for name in ("rows", "scores", "visible", "flops", "written")
    ]
    experiment.counters(NAME, ("", t(NAME, "axis_without"), t(NAME, "axis_kept")), rows)


def take(run: Run, P: int, N: int) -> None:
    """Sets the controls and generates."""
    st.session_state.work_P, st.session_state.work_N = P, N
    experiment.experimenter(NAME, growth).start(wished(run, P, N))


@guarded
def curves(whole: Growth) -> None:
    """The same counts for any prompt and length, by the formulas."""
    st.subheader(t(NAME, "curves_heading"), anchor=False)
    which, prompt, length = st.columns([2, 1.5, 1.5])
    names = {name: t(NAME, f"counter_{name}") for name in figures.QUANTITIES}
    with which:
        quantity = st.segmented_control(
            t(NAME, "quantity"), list(names), default="rows", format_func=names.get, key="work_quantity", required=True
        )
    P = prompt.slider(t(NAME, "formula_P"), 1, 500, whole.P, key=f"formula_P_{whole.P}")  # another run, its own P
    to = length.slider(t(NAME, "formula_N"), 2, 1000, 200, key="formula_N")
    chosen = {"quantity": quantity, "P": P, "to": to}
    experiment.chart(
        NAME,
        "curves",
        figures.curves,
        figures.curves_table,
        whole,
        values=figures.curves_values(whole, **chosen),
        answer=f"curves_answer_{quantity}",
        **chosen,
    )
