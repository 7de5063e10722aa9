"""The picture with its lanes, what was proved, and what follows below the fold."""

from __future__ import annotations

import streamlit as st

from kvviz.core import Run, lessons
from kvviz.features.ladder.figure import ladder as figures
from kvviz.features.ladder.figure import ladders as said
from kvviz.features.ladder.parts.controls import NAME, wish_of
from kvviz.features.ladder.parts.wish import LadderWish, ReadsWish, reads
from kvviz.features.ladder.record.ladder import WIDTH, Ladder, Reads
from kvviz.features.ladder.spec import SPEC
from kvviz.features.race.record import ENOUGH
from kvviz.theory.memory import human
from kvviz.ui import experiment, kit, links, sentences, state
from kvviz.ui.guard import guarded
from kvviz.ui.job import State
from kvviz.ui.language import t

T_READ = 512  # positions that the layouts are read at, until the learner says otherwise


def values_of(ladder: Ladder) -> dict[str, object]:
    """The numbers of the sentences; the model's and the device's names as they can be shown."""
    values = said.ladder_values(ladder, kit.words(NAME))
    return values | {"model": lessons.literal(ladder.model.name), "device": sentences.plain(ladder.machine.device_name)}


def hero(now: State) -> object:
    """The lanes by length; beside them a line a lane. Before the first start: what the bytes will be, by formula."""
    run = state.current_run()
    found: Ladder | None = now.found
    wish = wish_of(run)
    if found is None or (now.busy and not any(rung.n for rung in found.rungs)):
        return _before(run, wish, now)
    values = values_of(found)
    kit.answer(NAME, f"answer_{values['case']}", **values, pays_text=_pays(values))
    picture, side = st.columns([3.1, 1.9])
    with picture:
        view = kit.choice(SPEC, "ladder_view", labelled=False) or "time"
        draw, table = figures.DRAW[view]
        kit.chart(NAME, view, draw, table, found, values=values, answer="", key="hero")
    with side:
        _lanes(found)
        _besides(found, values)
        if not now.about(wish) and not now.busy:
            st.caption(t(NAME, "other", **_asked(now.answers, values)))
        return st.container()


def _plan(run: Run, wish: LadderWish) -> Ladder:
    """What Start would race, with no lane in it yet: the formulas have their numbers."""
    return Ladder("plan", run.model, run.machine, wish.length or run.P, wish.new, (), 0, batch=wish.batch)


def _before(run: Run, wish: LadderWish, now: State) -> object:
    plan = _plan(run, wish)
    values = values_of(plan)
    kit.answer(NAME, "answer_warming" if now.busy else "answer_empty", **values)
    picture, side = st.columns([3.1, 1.9])
    with picture:
        kit.chart(NAME, "plan", said.plan, said.plan_table, plan, values=values, answer="", key="hero")
    with side:
        st.markdown(t(NAME, "waiting", **values))
        return st.container()


def _pays(values: dict) -> str:
    return t(NAME, f"pays_{values['pays']}", **values)


def _asked(wish: LadderWish | None, values: dict) -> dict[str, object]:
    prompt = lessons.literal(links.shorten(wish.prompt)) if wish else "–"
    return {name: values[name] for name in ("P", "N", "batch", "model")} | {"prompt": prompt}


def _lanes(found: Ladder) -> None:
    """A line a lane: first token, a later one from ENOUGH passes on, and how far that is from the floor."""
    words = kit.words(NAME)
    table = figures.tokens_table(found, words=words)
    ms = figures.text.milliseconds
    rows = []
    for name, rung, far in zip(table[words["lane"]], found.rungs, table[words["distance"]], strict=True):
        first = ms(rung.ttft.median) if rung.ttft.count else "–"
        enough = rung.tpot.count >= ENOUGH
        later = ms(rung.tpot.median) if enough else "–"
        rows.append((name, first, later, f"{far:.1f} ×" if enough and far is not None else "–"))
    kit.counters("ladder-lanes", (t(NAME, "card_lane"), "TTFT, ms", "TPOT, ms", t(NAME, "card_floor")), rows)
    st.caption(t(NAME, "numbers", width=WIDTH))
    if found.complete and (same := figures.prefills(found)) is not None:
        count, short, long = same
        st.caption(
            t(NAME, "prefills", P=f"{found.P:,}", count=count, short=ms(short), long=ms(long),
              times=f"{long / short:.2f}", rounds=f"{found.complete:,}")
        )  # fmt: skip


def _besides(found: Ladder, values: dict) -> None:
    st.caption(t(NAME, "rounds" if found.complete else "rounds_first", **values))
    if found.rates is not None and values["floor"] != "–":
        st.caption(t(NAME, "floor_above" if values["above"] else "floor_says", **values))
    if len(found.generate):
        st.caption(t(NAME, "generate_says", **values))


def proofs(found: Ladder | None) -> None:
    if found is not None:
        memory = found.allocator
        names = ("allocated", "reserved", "peak")
        sizes = {n: human(getattr(memory, n) if memory else None) for n in names}
        kit.proofs(NAME, found.checks, **values_of(found), **sizes)
        st.caption(t(NAME, "allocator_none" if memory is None else "allocator", **sizes))


@guarded
def below(found: Ladder | None) -> None:
    """How to read it, when the cache pays, the bytes, the warm-up."""
    run = state.current_run()
    values = values_of(found or _plan(run, wish_of(run)))
    kit.read(NAME, **values)
    st.subheader(t(NAME, "crossover_heading"), anchor=False)
    st.markdown(t(NAME, "crossover_says", **values, pays_text=_pays(values)))
    words = kit.words(NAME)
    if found is not None and found.pairs:
        st.dataframe(said.pairs_table(found, words=words), hide_index=True, key="table-ladder-pairs", placeholder="–")
    st.subheader(t(NAME, "copied_heading"), anchor=False)
    st.markdown(t(NAME, "copied_says", **values))
    st.subheader(t(NAME, "warm_heading"), anchor=False)
    if found is None or not found.n:
        st.markdown(t(NAME, "warm_none"))
        return
    warm = said.warm_values(found, words)
    st.markdown(t(NAME, f"warm_{warm['case']}", **{"lane_" if k == "lane" else k: v for k, v in warm.items()}))
    st.dataframe(said.warm_table(found, words=words), hide_index=True, key="table-ladder-warm", placeholder="–")


def reading(run: Run) -> None:
    """Where K and V lie, and what it costs to read them."""
    st.subheader(t(NAME, "reads_heading"), anchor=False)
    st.markdown(t(NAME, "reads_says"))
    st.session_state.setdefault("ladder_T", min(T_READ, run.model.max_positions))
    length, start, stop, _ = st.columns([2, 1.6, 1.6, 4], vertical_alignment="bottom")
    length.number_input(t(NAME, "control_T"), *SPEC.fields["ladder_T"], key="ladder_T", persist_state="session")

    def asked() -> ReadsWish:
        T = int(st.session_state.get("ladder_T") or T_READ)
        return ReadsWish(run.model.name, run.model.dtype, run.prompt, T)

    wish = asked()
    experiment.start_and_stop("reads", reads, wish, t(NAME, "reads_start"), where=(start, stop), asked=asked)
    experiment.live("ladder-reads", "reads", reads, wish, lambda now: _read(now, wish), by_itself=False)


def _read(now: State, wish: ReadsWish) -> None:
    found: Reads | None = now.result_for(wish)
    if found is None or not found.layouts[0].ms.count:
        return
    values = said.reads_values(found)
    kit.chart(NAME, "reads", said.reads, said.reads_table, found, values=values,
                     answer=f"reads_answer_{values['case']}")  # fmt: skip
