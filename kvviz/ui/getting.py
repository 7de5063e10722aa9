"""Fetching a model that is not on this machine: the offer, how far it is, and the offer to switch to it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kvviz.core.refusal import Refusal
from kvviz.models import catalog, fetch
from kvviz.ui import state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
from kvviz.ui.language import t

LOOK_SECONDS = 1.0  # at a download under way


def getting(entries: Sequence[catalog.Entry], chosen: catalog.Entry) -> None:
    """One block a model at most: the one chosen if it is missing, those on their way or just come, else GPT-2."""
    fetched = [e for e in entries if e.kind in ("hub", "wheel")]
    shown = [e for e in fetched if e.name == chosen.name and not e.on_disk]
    shown += [e for e in fetched if e not in shown and _news(e.name)]
    if not shown and fetch.offline() is None:
        shown = [e for e in fetched if e.name == "gpt2" and not e.on_disk]
    for e in shown:
        looking = st.session_state[f"kv_looking_{e.name}"] = fetch.status(e.name).coming
        fragment(_getting, key=f"get-{e.name}", run_every=LOOK_SECONDS if looking else None)(e)


def _news(name: str) -> bool:
    """On its way, or here since this session looked, and not the model it uses."""
    status = fetch.status(name)
    return status.coming or (status.ready and state.model_name() != name)


@guarded
def _getting(entry: catalog.Entry) -> None:
    status = fetch.status(entry.name)
    if status.coming != st.session_state[f"kv_looking_{entry.name}"]:
        st.rerun()  # begun: look from now on. Or over: the list of models has changed, and nobody need look any more
    label = {"title": entry.title}
    if status.coming:
        done, total = f"{status.done / 1e6:,.1f}", f"{status.total / 1e6:,.1f}"
        section = status.stage if status.stage in ("asking", "converting") else "fetching"
        text = t("shell", f"get_{section}", **label, done=done, total=total)
        st.progress(min(1.0, status.done / max(1, status.total)), text=text)
        return
    if status.ready and entry.on_disk:
        st.caption(t("shell", "get_ready", **label))
        switch, key = t("shell", "get_switch", **label), f"switch-{entry.name}"
        if st.button(switch, key=key, width="stretch", on_click=_switch, args=(entry.name,)):
            st.rerun()
        return
    if variable := fetch.offline():
        st.caption(refused(Refusal("offline", model=entry.name, variable=variable)))
        return
    if status.refusal and entry.name in st.session_state.get("kv_fetches", ()):  # who did not ask needs no answer
        st.warning(refused(status.refusal))
    parameters, size = f"{entry.parameters / 1e6:,.0f}", f"{entry.size_bytes / 1e6:,.0f}"
    st.button(
        t("shell", "get_button", **label, parameters=parameters, size=size),
        key=f"get-{entry.name}",
        icon=":material/download:",
        width="stretch",
        help=t("shell", "get_help", **label, parameters=parameters, size=size),
        on_click=_fetch,
        args=(entry.name,),
    )


def _fetch(name: str) -> None:
    st.session_state.setdefault("kv_fetches", set()).add(name)
    fetch.request(name)


def _switch(name: str) -> None:
    """The new model is this session's from now on; the default if it is this machine's."""
    default = st.session_state.kv_default = catalog.default_name()
    st.session_state.model = None if name == default else name
