"""Taking a run elsewhere: a link to this very step, or a file; and opening a file somebody else saved."""

from __future__ import annotations

import dataclasses
import datetime

import streamlit as st

from kvviz.core import Run, storage
from kvviz.core.refusal import Refusal
from kvviz.ui import links, request, state, story
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
from kvviz.ui.language import current, t
from kvviz.ui.settings import LANGUAGE_NAMES

FILE_MB = 128  # of a recorded run; .streamlit/config.toml has the same limit


def link(run: Run) -> str:
    """The page's address with every value in it, so that nothing depends on the reader's machine."""
    here = state.view(run)
    values: dict[str, object] = {}
    if run.source == "live":
        sampling = run.sampling
        values |= {
            "model": run.model.name,
            "dtype": run.model.dtype,
            "prompt": run.prompt,
            "temperature": f"{sampling.temperature:g}",
            "top_k": sampling.top_k,
            "top_p": f"{sampling.top_p:g}",
            "seed": sampling.seed,
            "new": max(1, len(run.steps)),
            "compare": bool(state.shared().compare),
        }
    values |= {"lang": LANGUAGE_NAMES[current()], "presenter": bool(state.shared().presenter)}
    values |= {"step": here.step, "layer": here.layer, "head": here.head}
    fields = story.here().fields
    asked = links.own(fields, request.query_values())  # on arrival: the page's own controls come after the sidebar
    values |= {name: st.session_state.get(name, asked.get(name)) for name in fields}
    return links.build(st.context.url or "", values)


def share_fragment() -> None:
    fragment(_share, key="share")()


@guarded
def _share() -> None:
    run = state.current_run()
    with st.popover(t("shell", "link"), width="stretch", key="link_popover"):
        if run.source not in ("live", "bundled"):
            st.write(t("shell", "link_file"))
            return
        st.write(t("shell", "link_says" if run.source == "live" else "link_recorded"))
        st.code(link(run), language=None, wrap_lines=True)


def open_and_save() -> None:
    """A recorded run in, this run out."""
    with st.popover(t("shell", "file"), width="stretch"):
        run, learner = state.current_run(), state.learner()
        live = run.source == "live"
        st.download_button(
            t("shell", "save"),
            # The run may have grown since this was drawn: what is saved is what is there at the click.
            lambda: storage.dumps(_dated((learner.run if live else None) or run)),
            file_name=f"kvviz-{run.model.name.replace('/', '-')}.npz",
            mime="application/octet-stream",
            key="save_run",
            on_click="ignore",
            width="stretch",
        )
        if problem := st.session_state.get("kv_open_problem"):  # above the control: below it the popover may end
            st.warning(refused(problem))
        st.file_uploader(t("shell", "open"), type="npz", key="open_run", max_upload_size=FILE_MB, on_change=_opened)
        if state.opened_run() is not None:
            st.button(
                t("shell", "close_file" if run.source != "bundled" else "close_recorded"),
                key="close_run",
                on_click=_close,
                width="stretch",
            )


def _dated(run: Run) -> Run:
    """The run with today's date, unless it came with one of its own."""
    return run if run.created else dataclasses.replace(run, created=datetime.date.today().isoformat())


def _opened() -> None:
    """Reads the file at once: what is wrong with it is said beside the control, and nothing shown is lost."""
    uploaded = st.session_state.open_run
    st.session_state.kv_open_problem = None
    if uploaded is None:
        return
    try:
        run = storage.load(uploaded.getvalue(), source=uploaded.name)
        if any(step.attention.shape[2] == 0 for step in run.steps):
            raise Refusal("file_no_capture")
    except Refusal as refusal:
        st.session_state.kv_open_problem = refusal
        return
    state.show_recorded(run)
    state.ask(links.Place(step=0))


def _close() -> None:
    state.show_recorded(None)
