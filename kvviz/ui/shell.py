"""What every page stands in: navigation, sidebar, opening a link, and what is said above the page."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

from kvviz.core import Run, lessons
from kvviz.models import catalog, device, fetch
from kvviz.ui import links, request, state, style, warm
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
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


def within() -> None:
    """To be called first by every page. A link to a page may be the first request of a server, and Streamlit then
    runs the file in pages/ by itself, without app.py: begin again with it."""
    if PagesManager.uses_pages_directory:
        PagesManager.uses_pages_directory = False
        st.rerun()


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


def heading(page: PageSpec) -> None:
    """The page's title, where its run comes from, and what has to be said before anything else. From here on the
    page's own settings are what a link says, or their defaults."""
    within()
    state.add_notes(links.check_own(page.fields, request.query_values()))
    request.take_own(page)
    st.title(t(page.name, "title"), anchor=False)
    fragment(_provenance, key="provenance")()


@guarded
def _provenance() -> None:
    st.caption(provenance(state.current_run()))
    progress = state.learner().progress()
    if progress.refusal:
        st.warning(refused(progress.refusal))
    if progress.failed:
        st.error(t("shell", "pass_failed"))
    if said := [_said(note) for note in state.notes()]:
        several = [t("shell", "notes"), "\n".join(f"- {each}" for each in said)]
        st.info(said[0] if len(said) == 1 else "\n\n".join(several))


def _said(note: links.Note) -> str:
    return t(
        "shell", note.section, **{k: lessons.literal(str(v)) if k == "value" else v for k, v in note.values.items()}
    )


def provenance(run: Run) -> str:
    """One line: live or recorded, which model, on what, with which versions."""
    m = run.machine
    section = {"live": "from_live", "bundled": "from_bundled"}.get(
        run.source, "from_file" if run.repeats > 1 else "from_file_once"
    )
    return t(
        "shell",
        section,
        model=plain(run.model.name),
        file=plain(run.source),
        device=plain(m.device_name),
        threads=f"{m.threads:,}",
        torch=plain(m.torch),
        transformers=plain(m.transformers),
        date=plain(run.created[:10] or "?"),
        repeats=f"{run.repeats:,}",
        dtype=plain(run.model.dtype),
    )


def plain(text: str) -> str:
    """A name from a file or a machine within Markdown: as it is if it can mean nothing there, else as code."""
    short = links.shorten(text)
    return short if re.fullmatch(r"[A-Za-z0-9 .+()@/,-]+", short) else lessons.literal(short)
