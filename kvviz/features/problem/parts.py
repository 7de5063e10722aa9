"""Without a cache: the triangle of rows that are computed again and again, counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

import streamlit as st

from kvviz.core import Run
from kvviz.features.problem import figure as figures
from kvviz.features.problem.record import Growth, of_run
from kvviz.features.problem.spec import SPEC, Own
from kvviz.ui import experiment, held, kit, sentences, state
from kvviz.ui.guard import guarded
from kvviz.ui.job import PromptWish, State
from kvviz.ui.language import t

if TYPE_CHECKING:
    from kvviz.models.loading import LoadedModel

NAME = SPEC.name
NEW = Own().work_N
SMALL, MIDDLE, LONG = (5, 20), (4, 30), (100, 100)  # P, N of Try this


@dataclass(frozen=True)
class GrowthWish(PromptWish):
    """`length` None: the prompt as it is; else cut, or said again, to so many tokens."""

    new: int
    length: int | None = None


def growth(model: LoadedModel, wish: GrowthWish, stop: Event) -> Iterator[Growth]:
    from kvviz.features.problem import measure as engine

    return engine.generate(model, wish.prompt, wish.new, wish.length)


@dataclass(frozen=True)
class Shown:
    """How many passes the learner wants to see; None: all."""

    work_shown: int | None = None


@dataclass
class Last:
    """What the hero has drawn last, and of how many passes."""

    growth: Growth | None = None
    passes: int = 0


def controls(run: Run) -> GrowthWish:
    """Prompt length and new tokens; a link may hold both."""
    length, new, start, stop = st.columns([2.4, 2, 2.4, 1.4], vertical_alignment="bottom")
    length.number_input(
        t(NAME, "control_P"),
        *SPEC.fields["work_P"],
        None,
        placeholder=t(NAME, "control_P_unset", P=f"{run.P:,}"),
        help=t(NAME, "control_P_help"),
        key="work_P",
        persist_state="session",
    )
    new.number_input(t(NAME, "control_N"), *SPEC.fields["work_N"], key="work_N", persist_state="session")
    wish = wished(run, held.values(Own))

    def asked() -> GrowthWish:
        return wished(run, held.values(Own))

    experiment.start_and_stop(NAME, growth, wish, t(NAME, "start"), where=(start, stop), asked=asked)
    return wish


def wished(run: Run, own: Own) -> GrowthWish:
    return GrowthWish(run.model.name, run.model.dtype, run.prompt, own.work_N, own.work_P)


def hero(now: State) -> object:
    """The triangle, its counters, and how many passes of it are shown.

    Until the experiment has counted on this run's prompt: the first passes of the run itself.
    """
    run, last = state.current_run(), held.held(Last)
    whole = now.result_for(wished(run, Own())) or of_run(run, NEW)
    line = st.container()
    picture, side = st.columns([3.2, 1.4])
    with side:
        shown = whole if now.busy else whole.upto(passes(whole))
        values = figures.growth_values(shown) | {"device": sentences.plain(shown.machine.device_name)}
        counters(values)
        st.caption(t(NAME, f"counted_{whole.source}", **values))
        waits = st.container()
    with line:
        kit.answer(NAME, f"answer_{values['case']}", **values)
    with picture:
        kit.chart(NAME, "triangle", figures.triangle, figures.triangle_table, shown, values=values, answer="")
    last.growth = whole
    return waits


def passes(whole: Growth) -> int:
    """How many passes the learner wants to see: all, or fewer."""
    if whole.n < 2:
        return whole.n
    chosen, last = held.values(Shown).work_shown, held.held(Last)
    held.put(Shown, work_shown=min(chosen, whole.n) if chosen and chosen != last.passes else whole.n)
    last.passes = whole.n
    return st.slider(t(NAME, "passes"), 1, whole.n, key="work_shown")


def counters(values: dict) -> None:
    rows = [
        (t(NAME, f"counter_{name}"), values[f"{name}_without"], values[f"{name}_kept"])
        for name in ("rows", "scores", "visible", "flops", "written")
    ]
    kit.counters(NAME, ("", t(NAME, "axis_without"), t(NAME, "axis_kept")), rows)


def take(run: Run, P: int, N: int) -> None:
    """Sets the controls and generates."""
    held.put(Own, work_P=P, work_N=N)
    experiment.job(NAME, growth).start(wished(run, held.values(Own)))


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
    kit.chart(
        NAME,
        "curves",
        figures.curves,
        figures.curves_table,
        whole,
        values=figures.curves_values(whole, **chosen),
        answer=f"curves_answer_{quantity}",
        **chosen,
    )
