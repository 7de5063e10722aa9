"""Why K and V may be kept: edit one token and see which of them change; then use the cache wrongly on purpose."""

import streamlit as st

from kvviz.core import Run
from kvviz.core.tokens import label
from kvviz.features.permission.figure import breaks as wrong
from kvviz.features.permission.figure import permission as figures
from kvviz.features.permission.record.breaks import KINDS
from kvviz.features.permission.record.permission import Permission
from kvviz.ui import experiment, links, page, request, shell, state
from kvviz.ui.experimenter import State
from kvviz.ui.experiments import BreakWish, EditWish, broken, found, middle, usual_edit
from kvviz.ui.guard import guarded
from kvviz.ui.language import literal, t

NAME = "permission"


def controls(run: Run) -> EditWish:
    """Which token, what in its place, and whether the causal mask is on. A link may hold it all."""
    request.take_own(NAME)
    place, text, how, mask = st.columns([1.2, 1.5, 1.9, 1.2], vertical_alignment="bottom")
    position = place.number_input(
        t(NAME, "edit_label"),
        *links.OWN[NAME]["edit"],
        None,
        placeholder=t(NAME, "edit_unset", position=f"{middle(run)}"),
        help=t(NAME, "edit_help", last=f"{run.P - 1:,}"),
        key="edit",
        persist_state="session",
    )
    at = middle(run) if position is None else position
    new = text.text_input(
        t(NAME, "edit_to_label"),
        max_chars=links.OWN[NAME]["edit_to"],
        placeholder=label(usual_edit(run, at).encode()),
        help=t(NAME, "edit_to_help"),
        key="edit_to",
        persist_state="session",
    )
    with how:
        chosen = experiment.choice(NAME, "edit_how", "replace")
    with mask:
        experiment.choice(NAME, "causal", "on")
    return EditWish(run.model.name, run.model.dtype, run.prompt, at, new or usual_edit(run, at), chosen or "replace")


def masked() -> bool:
    return st.session_state.get("causal") != "off"


def hero(now: State) -> object:
    """The map, and beside it what became of a cached run."""
    run = state.current_run()
    if (result := found(now, run)) is None:
        experiment.answer(NAME, "answer_waiting")
        st.markdown(t(NAME, "waiting", tokens=" ".join(experiment.token(run, i) for i in run.prompt_ids[:40])))
        return None
    values = told(result)
    experiment.answer(NAME, f"answer_{'on' if masked() else 'off'}_{values['case']}", **values)
    picture, side = st.columns([3.5, 1.3])
    with picture:
        experiment.chart(
            NAME, "map", figures.change_map, figures.change_map_table, result, values=values, answer="", masked=masked()
        )
    with side:
        rows = [(t(NAME, f"counter_{name}"), values[f"{name}_on"], values[f"{name}_off"]) for name in figures.COUNTED]
        experiment.counters(NAME, (t(NAME, "causal_label"), t(NAME, "causal_on"), t(NAME, "causal_off")), rows)
        st.caption(t(NAME, "counted", **values))
        if typed := st.session_state.get("edit_to"):
            whole = literal(label(typed.encode()))
            if whole != values["new_token"]:
                st.caption(t(NAME, "edit_first", text=whole, **values))
        return st.container()


def told(result: Permission) -> dict[str, object]:
    """The numbers of the sentences, tokens as code."""
    values = figures.permission_values(result) | {"device": shell.plain(result.machine.device_name)}
    return {k: literal(str(v)) if k.endswith("_token") else v for k, v in values.items()}


def put(**chosen: object) -> None:
    """Sets the page's controls; those not named go back to what nobody has touched."""
    for name, unset in (("edit", None), ("edit_to", ""), ("edit_how", "replace"), ("causal", "on")):
        st.session_state[name] = chosen.get(name, unset)


def breaking(now: State) -> None:
    """One fault: its logits step by step, and what it wrote."""
    kind = st.session_state.get("broken")
    result = found(now, state.current_run())
    if kind is None or result is None or kind not in result.broken:
        st.markdown(t(NAME, "broken_unset" if kind is None else "broken_wait"))
        return
    values = wrong.breaks_values(result, kind) | {"kind": t(NAME, f"broken_{kind}")}
    st.markdown(t(NAME, f"broken_{kind}_says", **values))
    experiment.chart(
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
    table = wrong.breaks_table(result, words=experiment.words(NAME), names=names)
    st.dataframe(table, hide_index=True, key="table-broken")


@guarded
def below(result: Permission | None, run: Run) -> None:
    values = page.facts(run, state.view(run)) | (told(result) if result is not None else figures.nothing(run))
    experiment.read(NAME, **values)
    st.subheader(t(NAME, "broken_heading"), anchor=False)
    st.markdown(t(NAME, "broken_intro", **values))
    kind = experiment.choice(NAME, "broken", None, kind="pills")
    wish = BreakWish(run.model.name, run.model.dtype, run.prompt)
    experiment.live("permission-broken", "broken", broken, wish, breaking, by_itself=kind is not None)
    st.subheader(t(NAME, "no_q_heading"), anchor=False)
    st.markdown(t(NAME, "no_q", **values))
    experiment.code(NAME, **values)
    experiment.questions(NAME, **values)
