"""Ladders that were kept: of this machine or from a file, beside each other."""

from __future__ import annotations

import dataclasses
import json

import streamlit as st

from kvviz.core import lessons
from kvviz.core.refusal import Refusal
from kvviz.features.ladder.figure import ladders as figures
from kvviz.features.ladder.parts.controls import NAME
from kvviz.features.ladder.record import file as ladder_file
from kvviz.features.ladder.record.ladder import Ladder
from kvviz.ui import kit, links
from kvviz.ui.guard import guarded, refused
from kvviz.ui.language import t

MOST = 6  # ladders kept by a session
LONGEST = 40  # characters of a name
FILE_MB = 10


def _held() -> list[Ladder]:
    return st.session_state.setdefault("kv_ladders", [])


@guarded
def kept(now: Ladder | None) -> None:
    """Keep, save, open; and all that is kept in one picture."""
    st.subheader(t(NAME, "kept_heading"), anchor=False)
    st.markdown(t(NAME, "kept_says", most=MOST))
    name, keep, save = st.columns([3, 2, 2], vertical_alignment="bottom")
    name.text_input(
        t(NAME, "kept_name"),
        help=t(NAME, "kept_name_help", most=LONGEST),
        placeholder=now.machine.device_name[:LONGEST] if now else None,
        key="ladder_name",
        persist_state="session",
    )
    off = now is None or not now.n
    full = len(_held()) >= MOST
    keep.button(
        t(NAME, "kept_keep"), key="ladder_keep", width="stretch", disabled=off or full, on_click=_keep, args=(now,)
    )
    save.download_button(
        t(NAME, "kept_save"),
        lambda: json.dumps(ladder_file.to_json(_named(now)), indent=1).encode() if now else b"",
        file_name="kvviz-ladder.json",
        mime="application/json",
        key="ladder_save",
        on_click="ignore",
        disabled=off,
        width="stretch",
    )
    if full:
        st.caption(t(NAME, "kept_full", most=MOST))
    if problem := st.session_state.get("kv_ladder_problem"):
        st.warning(refused(problem))
    st.file_uploader(
        t(NAME, "kept_open"), type="json", key="ladder_open", max_upload_size=FILE_MB, on_change=_opened, disabled=full
    )
    _list()
    ladders = [(ladder.title, ladder) for ladder in _held() if ladder.order]
    if now is not None and now.order and now.key not in {ladder.key for _, ladder in ladders}:
        ladders.append((t(NAME, "kept_this"), now))
    if len(ladders) < 2:
        return
    values = figures.beside_values(ladders, kit.words(NAME))
    values["title"] = lessons.literal(str(values["title"]))
    kit.chart(NAME, "beside", figures.beside, figures.beside_table, ladders, values=values,
                     answer="beside_same" if values["same"] else "beside_other")  # fmt: skip


def _list() -> None:
    for i, ladder in enumerate(_held()):
        what, drop = st.columns([5, 1], vertical_alignment="center")
        what.markdown(
            t(
                NAME, "kept_line", title=lessons.literal(ladder.title), model=lessons.literal(ladder.model.name),
                device=lessons.literal(ladder.machine.device_name), P=f"{ladder.P:,}", N=f"{ladder.N:,}",
                batch=f"{ladder.batch:,}",
            )
        )  # fmt: skip
        drop.button(t(NAME, "kept_drop"), key=f"ladder_drop_{i}", on_click=_drop, args=(i,), width="stretch")


def _named(ladder: Ladder) -> Ladder:
    """With the name that the learner gave it, or the device's; one that is broken off is stopped."""
    title = links.shorten((st.session_state.get("ladder_name") or "").strip() or ladder.machine.device_name, LONGEST)
    state = "stopped" if ladder.state == "running" else ladder.state
    return dataclasses.replace(ladder, title=_apart(title), state=state)


def _apart(title: str) -> str:
    """Another name than those that are kept."""
    taken, found, i = {ladder.title for ladder in _held()}, title, 2
    while found in taken:
        found, i = f"{title} ({i})", i + 1
    return found


def _keep(ladder: Ladder) -> None:
    st.session_state.kv_ladder_problem = None
    if twin := next((held for held in _held() if held.key == ladder.key), None):
        st.session_state.kv_ladder_problem = Refusal("ladder_kept", title=twin.title)
    elif len(_held()) < MOST:
        _held().append(_named(ladder))


def _drop(i: int) -> None:
    if i < len(_held()):
        del _held()[i]


def _opened() -> None:
    """Reads the file at once: what is wrong with it is said here, and nothing kept is lost."""
    uploaded = st.session_state.ladder_open
    st.session_state.kv_ladder_problem = None
    if uploaded is None or len(_held()) >= MOST:
        return
    try:
        ladder = ladder_file.read(uploaded.getvalue())
    except Refusal as refusal:
        st.session_state.kv_ladder_problem = refusal
        return
    if twin := next((held for held in _held() if held.key == ladder.key), None):
        st.session_state.kv_ladder_problem = Refusal("ladder_kept", title=twin.title)
        return
    title = links.shorten(ladder.title or uploaded.name.removesuffix(".json"), LONGEST)
    _held().append(dataclasses.replace(ladder, title=_apart(title)))
