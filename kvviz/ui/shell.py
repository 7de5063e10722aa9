"""What every page stands in: navigation, sidebar, opening a link, and what is said above the page."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import streamlit as st

from kvviz.models import catalog, device, fetch
from kvviz.ui import links, request, state, style, warm
from kvviz.ui.guard import guarded
from kvviz.ui.held import held
from kvviz.ui.language import current, t
from kvviz.ui.settings import LANGUAGE_NAMES
from kvviz.ui.sidebar import sidebar, why_not_run
from kvviz.ui.spec import PageSpec
from kvviz.ui.story import Story


def navigation(pages: Sequence[PageSpec]) -> PageSpec:
    """The pages with their titles in the reader's language. Returns the one to run."""
    targets = {
        page.name: st.Page(f"pages/{page.name}.py", title=t(page.name, "nav"), url_path=page.name, default=i == 0)
        for i, page in enumerate(pages)
    }
    asked = st.navigation(list(targets.values()), position="top")
    story = held(Story)
    story.pages, story.targets = tuple(pages), targets
    return next(page for page in pages if targets[page.name] == asked)


def run(page: PageSpec) -> None:
    """The sidebar, then the page, then the background work that may take its time."""
    story = held(Story)
    if story.here != page:
        state.leave_player()
    story.here = page
    entries = _catalogue()
    if request.arrived():
        _read_link(entries)
    with st.sidebar:
        guarded(sidebar)(entries, page, _start_link if request.arrived() else lambda entry: None)
    style.style(presenter=bool(state.shared().presenter))
    request.settle()
    guarded(story.targets[page.name].run)()
    _bring_up(entries)


def _bring_up(entries: list[catalog.Entry]) -> None:
    """After the page has been sent: importing torch would hold it up."""
    for entry in entries:
        if entry.name == state.model_name() and entry.on_disk:
            warm.request(entry.name, state.dtype())


@st.cache_resource(show_spinner=False)
def owner() -> None:
    """What the owner chose on the command line: streamlit run app.py -- --model PATH --device cpu. Once a process."""
    parser = argparse.ArgumentParser(add_help=False)
    for name in ("model", "device", "dtype"):
        parser.add_argument(f"--{name}")
    known, _ = parser.parse_known_args(sys.argv[1:])
    os.environ |= {f"KVVIZ_{n.upper()}": v for n in ("device", "dtype") if (v := getattr(known, n))}
    if known.model:
        catalog.name_owner_folder(known.model)


@st.cache_data(ttl=10, show_spinner=False)
def _entries(fetched: tuple[str, ...]) -> list[catalog.Entry]:
    return catalog.entries()


def _catalogue() -> list[catalog.Entry]:
    owner()
    return _entries(fetch.finished())


def _read_link(entries: list[catalog.Entry]) -> None:
    """Before any widget exists: where the link points, and what in it can't be used."""
    values = request.query_values()
    place, notes = links.read_place(values)
    state.clear_notes()
    state.add_notes([*links.check_settings(values, [e.name for e in entries], tuple(device.DTYPES)), *notes])
    if place:
        state.ask(place)
    asked = links.language(values)
    if asked and values["lang"] != LANGUAGE_NAMES[asked]:  # `lang=zh` is as good as the name the control shows
        st.session_state.kv_lang = asked


def _start_link(entry: catalog.Entry) -> None:
    """A link with a prompt runs by itself, unless the model it names was refused. All settings have their values."""
    settings, learner, named = state.settings(), state.learner(), request.query_values().get("model")
    state.say_what_is_used({name: _used(name) for name in links.SHARED})
    if named == entry.name and not entry.on_disk:
        missing = "note_folder" if entry.kind == "folder" else "note_not_on_disk"
        state.add_notes([links.Note(missing, {"value": named})])
    if request.by_history() and not settings.prompt:
        state.show_recorded(state.bundled_run() if learner.run else None)
    refused_model = any(n.section == "note_model" for n in state.notes())
    if not settings.prompt or refused_model or why_not_run(entry) is not None:
        if settings.prompt or refused_model or named not in (None, state.current_run().model.name):
            state.forget_place()  # it is one of a run that is not there
        return
    wanted = links.tokens_for(st.session_state.get("kv_pending") or links.Place(), settings.new)
    state.place_is_for(settings)
    if settings.same_run(learner.settings):
        state.show_recorded(None)
        learner.extend(wanted)
    else:
        state.start(wanted=wanted)


def _used(name: str) -> str:
    """A setting's value as a link would write it."""
    if name == "lang":
        return LANGUAGE_NAMES[current()]
    value = getattr(state.shared(), name)
    return str(value).lower() if isinstance(value, bool) else f"{value:,}"
