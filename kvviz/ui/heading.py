"""What stands above every page: its title, where its run comes from, and what has to be said before anything else."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

from kvviz.core import Run, lessons
from kvviz.ui import links, request, sentences, state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
from kvviz.ui.language import t
from kvviz.ui.spec import PageSpec


def within() -> None:
    """To be called first by every page. A link to a page may be the first request of a server, and Streamlit then
    runs the file in pages/ by itself, without app.py: begin again with it."""
    if PagesManager.uses_pages_directory:
        PagesManager.uses_pages_directory = False
        st.rerun()


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
        model=sentences.plain(run.model.name),
        file=sentences.plain(run.source),
        device=sentences.plain(m.device_name),
        threads=f"{m.threads:,}",
        torch=sentences.plain(m.torch),
        transformers=sentences.plain(m.transformers),
        date=sentences.plain(run.created[:10] or "?"),
        repeats=f"{run.repeats:,}",
        dtype=sentences.plain(run.model.dtype),
    )
