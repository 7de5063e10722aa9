"""The sidebar, the same on every page: model, prompt, sampling, Run, language, size."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from kvviz.core import lessons
from kvviz.models import catalog, device, memory
from kvviz.theory.memory import human
from kvviz.ui import browser, examples, links, state, warm
from kvviz.ui.fragment import fragment
from kvviz.ui.getting import getting
from kvviz.ui.guard import guarded, refused
from kvviz.ui.language import current, named, t
from kvviz.ui.settings import LANGUAGE_NAMES, NEW_TOKENS, Shared
from kvviz.ui.share import open_and_save, share_fragment
from kvviz.ui.spec import PageSpec, fields_of
from kvviz.ui.stage import POLL_SECONDS

COMING_SECONDS = 1.0  # while a model loads: each look takes time from the imports
EMPTY_LINE = "&nbsp;"  # the character itself would be stripped, and the line with it
BOUNDS = fields_of(Shared)
PROMPT_CHARACTERS = 20_000  # longer texts are refused without counting their tokens


def s(section: str, **values: object) -> str:
    return t("shell", section, **values)


def sidebar(entries: list[catalog.Entry], page: PageSpec, opening: Callable[[catalog.Entry], None]) -> None:
    """Every control has a key that is its name in links. `opening` is called when all of them have their values,
    and may start a run: what shows the run is drawn after it."""
    entry = _model(entries)
    getting(entries, entry)
    _prompt(entry)
    run = st.container()
    _new_and_sampling()
    share = st.container()
    _reader()
    opening(entry)
    state.settle_place(state.current_run())
    with run:
        _run(entry, page)
    with share:
        share_fragment()
        open_and_save()
    browser.watch_typing(key="typing")


def _model(entries: list[catalog.Entry]) -> catalog.Entry:
    names = [e.name for e in entries]
    default = state.default_model()
    st.selectbox(
        s("model"),
        names,
        index=None,
        placeholder=s("model_unset", name=default),
        key="model",
        bind="query-params",
        on_change=_model_changed,
        help=s("model_help") + "\n\n" + "\n".join(f"- {_described(e)}" for e in entries),
    )
    chosen = next((e for e in entries if e.name == state.model_name()), None)
    if chosen is None:  # the list has changed under a session that had chosen from it
        chosen = next(e for e in entries if e.name == default)
    facts = {
        "parameters": _millions(chosen),
        "positions": f"{chosen.trained_positions:,}",
    }
    known = "model_facts" if chosen.parameters else "model_facts_damaged"
    section = known if chosen.on_disk else "facts_folder" if chosen.kind == "folder" else "facts_not_on_disk"
    space = "" if current() == "zh" else " "
    st.caption(f"{s(section, **facts)}{space}{_takes(chosen)}")
    return chosen


def _millions(e: catalog.Entry) -> str:
    """Parameters in millions, those of a toy with more digits; empty where they could not be counted."""
    millions = (e.parameters or 0) / 1e6
    return f"{millions:,.1f}" if millions >= 1 else f"{millions:.3f}" if millions else ""


def _takes(e: catalog.Entry) -> str:
    """What the model takes of this machine's memory, before it is loaded."""
    needed, there = _memory(e.name, state.dtype(), str(e.path), e)
    if needed is None:
        return ""
    section = "memory_of" if there is not None else "memory"
    return s(section, needed=memory.gib(needed), there=memory.gib(there), room=f"{memory.MARGIN // 2**20} MiB")


@st.cache_data(ttl=10, show_spinner=False)
def _memory(name: str, dtype: str, path: str, _e: catalog.Entry) -> tuple[int | None, int | None]:
    found = memory.figures(_e, dtype=dtype)
    return found.needed, found.there


def _model_changed() -> None:
    """Choosing a model that was refused tries it again: its files may have come meanwhile."""
    warm.forget(state.model_name())


def _described(e: catalog.Entry) -> str:
    """One line of the catalogue: what it is, how large, and whether it is here."""
    size = [f"{_millions(e)} M" if e.parameters else "", human(e.size_bytes) if e.size_bytes else ""]
    where = "on_disk" if e.on_disk else "folder_broken" if e.kind == "folder" else "not_on_disk"
    parts = [lessons.literal(e.name), *filter(None, size), s(f"model_{where}")]
    return ", ".join(parts)


def _prompt(entry: catalog.Entry) -> None:
    st.text_area(
        s("prompt"),
        key="prompt",
        bind="query-params",
        height=96,
        placeholder=s("prompt_placeholder"),
    )
    prompt = state.shared().prompt
    counted = token_count(entry, prompt)
    lines = []
    limit = limit_of(entry)
    if prompt and counted is not None and counted <= limit:  # a longer one is spoken of under Run
        lines.append(s("count", P=f"{counted:,}", limit=f"{limit:,}", n=f"{limit - counted + 1:,}"))
    if prompt and prompt.rstrip(" ") != prompt:
        lines.append(s("trailing_space"))
    # Always there: typing ends with the click on what comes next, which must not move away under it.
    st.caption("  \n".join(lines) or EMPTY_LINE)
    with st.popover(s("examples"), width="stretch"):
        examples.choices(entry.name)


def limit_of(entry: catalog.Entry) -> int:
    """Positions the model's cache may hold here."""
    model = warm.loaded(entry.name, state.dtype())
    return model.facts.max_positions if model else entry.trained_positions


def token_count(entry: catalog.Entry, prompt: str) -> int | None:
    """Tokens of the prompt, or None while the model's vocabulary is not there. Remembers the last count."""
    model = warm.loaded(entry.name, state.dtype())
    if model is None or len(prompt) > PROMPT_CHARACTERS:
        return None
    held = st.session_state.get("kv_count")
    if held is None or held[0] != (entry.name, prompt):
        held = st.session_state.kv_count = ((entry.name, prompt), len(model.encode(prompt)))
    return held[1]


def why_not_run(entry: catalog.Entry) -> str | None:
    """The sentence that says why Run is off, or None."""
    prompt = state.shared().prompt
    if not entry.on_disk:
        return s("reason_model")
    status = warm.status(entry.name, state.dtype())
    if status.stage == "failed":
        return refused(status.refusal) if status.refusal else s("reason_broken")
    if not prompt:
        return s("reason_empty")
    if len(prompt) > PROMPT_CHARACTERS:
        return s("reason_text", limit=f"{PROMPT_CHARACTERS:,}")
    counted, limit = token_count(entry, prompt), limit_of(entry)
    if counted is not None and counted > limit:
        return s("reason_long", P=f"{counted:,}", limit=f"{limit:,}")
    return None


def _run(entry: catalog.Entry, page: PageSpec) -> None:
    """The one part of the page that looks after the worker and the model while there is news."""
    progress = state.learner().progress()
    coming = progress.stage == "model" or (entry.on_disk and warm.status(entry.name, state.dtype()).coming)
    busy = progress.stage == "passes"
    st.session_state.kv_stage = _stage(entry)
    fragment(_progress, key="progress", run_every=POLL_SECONDS if busy else COMING_SECONDS if coming else None)(
        entry, page
    )


def _stage(entry: catalog.Entry) -> tuple[object, ...]:
    """What more than Run and Stop depends on: token count and limit, who looks for new passes, which run is shown."""
    return warm.status(entry.name, state.dtype()).coming, state.learner().progress().stage, state.current_run().key


@guarded
def _progress(entry: catalog.Entry, page: PageSpec) -> None:
    """Run and Stop, and how far model and worker are. Reruns the page when something else on it depends on that."""
    progress, status = state.learner().progress(), warm.status(entry.name, state.dtype())
    reason = why_not_run(entry)
    run, stop = st.columns(2)
    run.button(
        s("run"),
        key="run_button",
        type="primary",
        width="stretch",
        disabled=reason is not None or progress.busy,
        on_click=_start,
        args=(page,),
    )
    stop.button(s("stop"), key="stop_button", width="stretch", disabled=not progress.busy, on_click=_stop)
    lines = []
    if progress.stage == "passes":
        done, wanted = f"{progress.done:,}", f"{max(1, progress.wanted):,}"
        section = "progress_queue" if progress.before else "progress_passes"
        lines.append(s(section, done=done, wanted=wanted, before=f"{progress.before:,}"))
    elif entry.on_disk and status.coming:
        lines.append(s(f"status_{status.stage}", seconds=f"{status.seconds:.0f}"))
    if reason is not None:
        lines.append(reason)
    elif state.learner().settings and not state.settings().same_run(state.learner().settings):
        lines.append(s("changed"))
    elif stopped := _stopped():
        lines.append(s("stopped_prefill" if page.player == "prefill" else "stopped", **stopped))
    st.caption("  \n".join(lines) or EMPTY_LINE)  # one line stays free: what is below does not move while a run goes on
    if st.session_state.kv_stage != _stage(entry):
        st.rerun()


def _stopped() -> dict[str, str] | None:
    """How far the run on screen came, if it was to go on: by Stop, or because nobody looked at it for a while."""
    learner = state.learner()
    progress, settings = learner.progress(), learner.settings
    whole = progress.busy or progress.at_limit or progress.refusal or progress.failed
    if whole or not state.is_live(state.current_run()) or progress.done >= settings.new:
        return None
    return {"done": f"{progress.done:,}", "wanted": f"{settings.new:,}"}


def _start(page: PageSpec) -> None:
    """Run, from the step at which the page's player begins, as far as there is one."""
    new = int(state.shared().new)
    state.clear_notes()
    state.ask(links.Place(step=min(page.begins, new - 1)))
    state.start()
    st.rerun()


def _stop() -> None:
    state.learner().stop()


def _new_and_sampling() -> None:
    least, greatest = BOUNDS["new"]
    st.number_input(s("new"), least, greatest, NEW_TOKENS, key="new", bind="query-params")
    st.toggle(s("compare"), True, key="compare", bind="query-params", help=s("compare_help"))
    temperature = float(state.shared().temperature)
    label = s("sampling_greedy") if temperature == 0 else s("sampling_on", temperature=f"{temperature:g}")
    if state.dtype() != "float32":
        label = f"{label} · {state.dtype()}"
    with st.popover(label, width="stretch"):
        low, high = BOUNDS["temperature"]
        st.number_input(
            s("temperature"), low, high, 0.0, 0.1, key="temperature", bind="query-params", help=s("temperature_help")
        )
        least, greatest = BOUNDS["top_k"]
        st.number_input(s("top_k"), least, greatest, 0, key="top_k", bind="query-params", help=s("top_k_help"))
        low, high = BOUNDS["top_p"]
        st.number_input(s("top_p"), low, high, 1.0, 0.05, key="top_p", bind="query-params", help=s("top_p_help"))
        least, greatest = BOUNDS["seed"]
        st.number_input(s("seed"), least, greatest, 0, key="seed", bind="query-params", help=s("seed_help"))
        st.selectbox(
            s("dtype"),
            list(device.DTYPES),
            index=None,
            placeholder=s("dtype_unset", name=device.owner_dtype()),
            key="dtype",
            bind="query-params",
            help=s("dtype_help"),
        )


def _reader() -> None:
    """What suits the reader, not the run."""
    row = st.container(horizontal=True, vertical_alignment="center", gap="small")
    row.segmented_control(
        s("language"),
        list(LANGUAGE_NAMES.values()),
        default=named(),
        key="lang",
        bind="query-params",
        label_visibility="collapsed",
    )
    row.toggle(s("presenter"), False, key="presenter", bind="query-params")
