"""Why K and V may be kept: edit one token and see which of them change; then use the cache wrongly on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

import streamlit as st

from kvviz.core import Run
from kvviz.core.tokens import label
from kvviz.features.permission.figure import breaks as wrong
from kvviz.features.permission.figure import permission as figures
from kvviz.features.permission.record.breaks import KINDS, Breaks
from kvviz.features.permission.record.permission import Permission
from kvviz.features.permission.spec import SPEC, Own
from kvviz.ui import experiment, held, kit, sentences, state
from kvviz.ui.guard import guarded
from kvviz.ui.job import PromptWish, State, Wish
from kvviz.ui.language import literal, t

if TYPE_CHECKING:
    from kvviz.models.loading import LoadedModel

NAME = SPEC.name


@dataclass(frozen=True)
class EditWish(Wish):
    """The prompt with `text`'s first token at `position`."""

    prompt: str
    position: int
    text: str
    how: str

    @property
    def meanwhile(self) -> object:
        return type(self), self.model, self.dtype, self.prompt


def edited(model: LoadedModel, wish: EditWish, stop: Event) -> Iterator[Permission]:
    from kvviz.features.permission.measure import permission as engine

    return engine.compare(model, wish.prompt, wish.position, wish.text, wish.how)


def middle(run: Run) -> int:
    """Where an edit is worth seeing: there is something before it, and more after it."""
    return min(run.P - 1, run.P // 3)


def usual_edit(run: Run, position: int) -> str:
    """What is put in until the learner types something: not what stands there already."""
    there = run.pieces[int(run.prompt_ids[position])] if position < run.P else b""
    return " the" if there != b" the" else " and"


@dataclass(frozen=True)
class BreakWish(PromptWish):
    """Every fault on that prompt."""


def broken(model: LoadedModel, wish: BreakWish, stop: Event) -> Iterator[Breaks]:
    from kvviz.features.permission.measure import breaks as engine

    return engine.all_kinds(model, wish.prompt)


def controls(run: Run) -> EditWish:
    """Which token, what in its place, and whether the causal mask is on. A link may hold it all."""
    place, text, how, mask = st.columns([1.2, 1.5, 1.9, 1.2], vertical_alignment="bottom")
    place.number_input(
        t(NAME, "edit_label"),
        *SPEC.fields["edit"],
        None,
        placeholder=t(NAME, "edit_unset", position=f"{middle(run)}"),
        help=t(NAME, "edit_help", last=f"{run.P - 1:,}"),
        key="edit",
        persist_state="session",
    )
    own = held.values(Own)
    at = middle(run) if own.edit is None else own.edit
    text.text_input(
        t(NAME, "edit_to_label"),
        max_chars=SPEC.fields["edit_to"].most,
        placeholder=label(usual_edit(run, at).encode()),
        help=t(NAME, "edit_to_help"),
        key="edit_to",
        persist_state="session",
    )
    with how:
        kit.choice(SPEC, "edit_how")
    with mask:
        kit.choice(SPEC, "causal")
    own = held.values(Own)
    return EditWish(run.model.name, run.model.dtype, run.prompt, at, own.edit_to or usual_edit(run, at), own.edit_how)


def masked() -> bool:
    return held.values(Own).causal != "off"


def hero(now: State, wish: EditWish) -> object:
    """The map, and beside it what became of a cached run."""
    run = state.current_run()
    if (result := now.result_for(wish)) is None:
        kit.answer(NAME, "answer_waiting")
        st.markdown(t(NAME, "waiting", tokens=" ".join(sentences.token(run, i) for i in run.prompt_ids[:40])))
        return None
    values = told(result)
    kit.answer(NAME, f"answer_{'on' if masked() else 'off'}_{values['case']}", **values)
    picture, side = st.columns([3.5, 1.3])
    with picture:
        kit.chart(
            NAME, "map", figures.change_map, figures.change_map_table, result, values=values, answer="", masked=masked()
        )
    with side:
        rows = [(t(NAME, f"counter_{name}"), values[f"{name}_on"], values[f"{name}_off"]) for name in figures.COUNTED]
        kit.counters(NAME, (t(NAME, "causal_label"), t(NAME, "causal_on"), t(NAME, "causal_off")), rows)
        st.caption(t(NAME, "counted", **values))
        if typed := held.values(Own).edit_to:
            whole = literal(label(typed.encode()))
            if whole != values["new_token"]:
                st.caption(t(NAME, "edit_first", text=whole, **values))
        return st.container()


def told(result: Permission) -> dict[str, object]:
    """The numbers of the sentences, tokens as code."""
    values = figures.permission_values(result) | {"device": sentences.plain(result.machine.device_name)}
    return {k: literal(str(v)) if k.endswith("_token") else v for k, v in values.items()}


def put(**chosen: object) -> None:
    """Sets the page's controls; those not named go back to what nobody has touched."""
    held.reset(Own, broken=held.values(Own).broken, **chosen)


def breaking(now: State, wish: BreakWish) -> None:
    """One fault: its logits step by step, and what it wrote."""
    kind = held.values(Own).broken
    result = now.result_for(wish)
    if kind is None or result is None or kind not in result.broken:
        st.markdown(t(NAME, "broken_unset" if kind is None else "broken_wait"))
        return
    values = wrong.breaks_values(result, kind) | {"kind": t(NAME, f"broken_{kind}")}
    st.markdown(t(NAME, f"broken_{kind}_says", **values))
    kit.chart(
        NAME,
        "wrong",
        wrong.wrong_by_step,
        wrong.wrong_by_step_table,
        result,
        values=values,
        answer=f"wrong_{values['case']}",
        kind=kind,
    )
    for column, (name, text) in zip(st.columns(2), wrong.texts(result, kind).items(), strict=True):
        column.markdown(f"**{t(NAME, f'text_{name}')}**")
        column.container(key=f"written-{name}").text(text)
    names = {k: t(NAME, f"broken_{k}") for k in ("right", *KINDS)}
    table = wrong.breaks_table(result, words=kit.words(NAME), names=names)
    st.dataframe(table, hide_index=True, key="table-broken")


@guarded
def below(result: Permission | None, run: Run) -> None:
    values = sentences.step_facts(run, state.view(run)) | (told(result) if result is not None else figures.nothing(run))
    kit.read(NAME, **values)
    st.subheader(t(NAME, "broken_heading"), anchor=False)
    st.markdown(t(NAME, "broken_intro", **values))
    kind = kit.choice(SPEC, "broken", kind="pills")
    wish = BreakWish(run.model.name, run.model.dtype, run.prompt)
    experiment.live(
        "permission-broken", "broken", broken, wish, lambda now: breaking(now, wish), by_itself=kind is not None
    )
    st.subheader(t(NAME, "no_q_heading"), anchor=False)
    st.markdown(t(NAME, "no_q", **values))
    kit.code(NAME, **values)
    kit.questions(SPEC, **values)
