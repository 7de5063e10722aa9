"""The parts every page has: title, player, Try this, what follows the step below, and the way on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from kvviz.core import Run, lessons
from kvviz.core.refusal import Refusal
from kvviz.player.view import View
from kvviz.ui import browser, links, request, shell, stage, state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
from kvviz.ui.language import current, has, t

LAST = 10**6  # as a step: the run's last one
SAYS_SECONDS = 1.0


@dataclass(frozen=True)
class Try:
    """A button that puts the app in a state worth seeing. `name` finds its sections: try_NAME, try_NAME_says, and
    try_NAME_alone where a run of its prefill alone has nothing of the kind to show.

    `recorded` shows the run that ships with kvviz, for what can only be promised there.
    """

    name: str
    place: links.Place
    opened: str | None = None
    substep: int | None = None
    recorded: bool = False


@guarded
def page(name: str, mode: str, tries: tuple[Try, ...], below: Callable[[Run, View], None]) -> None:
    """Lays the page out. `below` draws what follows the player's step; it runs on its own when the step changes."""
    shell.heading(name)
    stage.stage(name, mode)
    request.player_first()
    _tries(name, tries)
    fragment(follow, key="below")(name, below)
    onward(name)


def _tries(name: str, tries: tuple[Try, ...]) -> None:
    for column, each in zip(st.columns(len(tries)), tries, strict=True):
        column.button(
            t(name, f"try_{each.name}"),
            key=f"try-{name}-{each.name}",
            on_click=_take,
            args=(each,),
            width="stretch",
        )
        lacks = not each.recorded and len(state.current_run().steps) <= max(1, each.place.step or 0)
        grows = lacks and state.learner().progress().stage == "passes"
        with column:
            fragment(_says, key=f"says-{each.name}", run_every=SAYS_SECONDS if grows else None)(name, each)


@guarded
def _says(name: str, each: Try) -> None:
    """What to look for. While a run grows it is looked up again: its numbers may not have been there yet."""
    run = state.bundled_run() if each.recorded else state.current_run()
    alone = f"try_{each.name}_alone" if len(run.steps) == 1 else ""
    section = alone if has(name, alone) else f"try_{each.name}_says"
    st.caption(t(name, section, **facts(run, _within(run, each.place))))


def _take(each: Try) -> None:
    """The place is clamped here, silently: a short run shows what it has."""
    if each.recorded:
        state.show_recorded(state.bundled_run() if state.live_run() or state.opened_run() else None)
    view = _within(state.current_run(), each.place)
    state.ask(links.Place(view.step, view.layer, view.head), opened=each.opened, substep=each.substep)


def _within(run: Run, place: links.Place) -> View:
    kept, _ = links.clamp(place, len(run.steps), run.model.layers, run.model.heads)
    here = state.view(run)
    step, layer, head = (
        a if a is not None else b for a, b in ((kept.step, here.step), (kept.layer, here.layer), (kept.head, here.head))
    )
    return View(step, layer, head)


@guarded
def follow(name: str, below: Callable[[Run, View], None]) -> None:
    run = state.current_run()
    view = st.session_state.kv_followed = state.view(run)
    text_so_far(run, view.step)
    below(run, view)
    if not state.place_waits():  # the link's own place stays in the address until it has been reached
        browser.show_address(links.Place(view.step, view.layer, view.head), key="address")


def figure(name: str, run: Run, view: View, *, key: str) -> None:
    """A chart that follows the step. Pandas and Plotly take most of a second to import: the player comes first."""
    from kvviz.ui import charts

    charts.draw(name, run, key=key, step=view.step, layer=view.layer, head=view.head)


def text_so_far(run: Run, step: int) -> None:
    """Prompt and chosen tokens up to `step`, exactly as they are, and where the model meant to end."""
    ids = run.ids[: run.P + step + 1]
    text = b"".join(run.pieces[int(i)] for i in ids).decode("utf-8", errors="replace")
    st.markdown(f"**{t('shell', 'text_so_far')}**")
    # Not st.code: the browser would fetch and start a syntax highlighter for it, which takes it a second.
    st.container(key="running_text").text(text)
    st.caption(t("shell", "signs"))
    ends = [s.index for s in run.steps[: step + 1] if s.is_end]
    if ends:
        section = "text_end_once" if len(ends) == 1 else "text_end"
        st.caption(t("shell", section, step=f"{ends[0]:,}", times=f"{len(ends):,}"))
    limit_reached(run)


def code(name: str, run: Run, view: View) -> None:
    """The pass in a few lines: section `code` of a lesson, as plain text for the same reason as `text_so_far`.

    `code_window`, where there is one, for a layer that does not see all that is stored.
    """
    st.subheader(t(name, "code_heading"), anchor=False)
    section = "code_window" if windowed(run, view) and has(name, "code_window") else "code"
    st.container(key="code").text(t(name, section, **facts(run, view)))


def limit_reached(run: Run) -> None:
    """The sentence at the end of the model's positions."""
    progress = state.learner().progress()
    if not (state.is_live(run) and progress.at_limit):
        return
    m = run.model
    if run.length >= m.max_positions:
        code = "limit_reached" if m.positions == "learned" else "limit_reached_rotary"
        refusal = Refusal(code, model=m.name, length=run.length, limit=m.max_positions)
    else:
        session = state.session()
        limit = session.keep_bytes if session else run.nbytes
        refusal = Refusal("run_full", bytes=run.nbytes, limit=limit, step=len(run.steps))
    st.warning(refused(refusal))


def questions(name: str, run: Run, view: View) -> None:
    """The questions of a lesson: sections `q_NAME` (the question) and `q_NAME_a` (the answer), in its order.

    `q_NAME_a_window` answers instead where the layer in view does not see all that is stored.
    """
    st.subheader(t("shell", "questions"), anchor=False)
    values = facts(run, view)
    found = lessons.sections(current(), name)
    for section in found:
        if section.startswith("q_") and f"{section}_a" in found:
            own = f"{section}_a_window"
            answer = own if own in found and windowed(run, view) else f"{section}_a"
            with st.expander(t(name, section, **values)):
                st.markdown(t(name, answer, **values))
    asked_everywhere(name, run, view)


# What everybody asks, and which of it a page has not answered in its own words.
FIVE = {
    "problem": ("rope", "mask", "prefill"),
    "permission": ("rope", "mask", "prefill"),
    "attention": ("no_q", "changed", "rope"),
    "positions": ("no_q", "changed", "mask", "prefill"),
    "source": ("rope", "mask"),
}


def asked_everywhere(name: str, run: Run, view: View) -> None:
    """The questions of five.md that the page called `name` has not answered itself, with this step's numbers."""
    values = facts(run, view)
    ends = {"rope": f"_{run.model.positions}", "mask": "_window" if windowed(run, view) else ""}
    for question in FIVE.get(name, ()):
        with st.expander(t("five", f"q_{question}")):
            st.markdown(t("five", f"q_{question}_a{ends.get(question, '')}", **values))


def windowed(run: Run, view: View) -> bool:
    """Whether the newest query of the step sees less in the layer in view than is stored."""
    newest = run.P + view.step - 1
    return run.model.visible(view.layer, newest) <= newest


def _mask(run: Run, view: View) -> str:
    """What hides scores in this pass, as a comment in code."""
    if windowed(run, view):
        window = run.model.visible(view.layer, run.P + view.step - 1)
        return t("decode", "mask_window" if view.step else "mask_later_window", window=f"{window:,}")
    return t("decode", "mask_none" if view.step else "mask_later")


def _scaling(run: Run) -> str:
    """What code does to Q·K: `/ sqrt(64)`, but for models that have a number of their own."""
    m = run.model
    usual = math.isclose(m.attention_scale * math.sqrt(m.head_dim), 1, rel_tol=1e-3)
    return f"/ sqrt({m.head_dim})" if usual else f"* {m.attention_scale:.3g}"


def facts(run: Run, view: View) -> dict[str, object]:
    """What sentences about a step may name; tokens as code spans."""
    m, record = run.model, run.steps[view.step]
    Tq, T = record.rows, record.length_after
    name = {int(i): lessons.literal(_label(run, i)) for i in (*record.ids[-1:], record.chosen)}
    return {
        "model": lessons.literal(m.name),
        "step": f"{view.step:,}",
        "last": f"{len(run.steps) - 1:,}",
        "layer": view.layer,
        "head": view.head,
        "P": f"{run.P:,}",
        "N": f"{len(run.steps):,}",
        "T": f"{T:,}",
        "reused": f"{record.length_before:,}",
        "token": name[int(record.ids[-1])],
        "chosen": name[record.chosen],
        "L": m.layers,
        "H": m.heads,
        "Hkv": m.kv_heads,
        "D": m.head_dim,
        "q_shape": f"(1, {m.heads}, {Tq}, {m.head_dim})",
        "kv_shape": f"(1, {m.kv_heads}, {T}, {m.head_dim})",
        "weights_shape": f"(1, {m.heads}, {Tq}, {T})",
        "divide": _scaling(run).ljust(10),  # comments of the lines of code stand below each other
        "hidden": "later | too_old" if windowed(run, view) else "later",
        "mask": _mask(run, view),
        "window": m.visible(view.layer, T - 1),
        "pad": " " * (14 - len(str(m.visible(view.layer, T - 1)))),  # as `divide`
        "token_bytes": f"{m.kv_bytes_per_token:,}",
        "kv_bytes": f"{record.kv_bytes:,}",
        "limit": f"{m.max_positions:,}",
        "ttft": f"{run.steps[0].ms:,.1f}",
    }


def _label(run: Run, token: int) -> str:
    from kvviz.core.tokens import label

    return label(run.pieces[int(token)])


def onward(name: str) -> None:
    """The story's neighbours, inside the content: an embedded app has no other navigation."""
    at = shell.PAGES.index(name)
    pages = st.session_state.kv_pages
    for column, other, section in zip(st.columns(2), (at - 1, at + 1), ("previous", "next"), strict=True):
        if 0 <= other < len(shell.PAGES):
            target = shell.PAGES[other]
            column.page_link(
                pages[target], label=t("shell", section, title=t("shell", f"nav_{target}")), width="stretch"
            )
