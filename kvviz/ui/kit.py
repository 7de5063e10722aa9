"""The page kit: the parts of which every page is laid out, in the order in which a page calls them.

    kit.heading(SPEC)              title, where the run comes from; the page's own settings are read from the link
    kit.answer(NAME, …)            one sentence with this run's numbers
    the hero                       stage.stage(SPEC), the player; or kit.chart(…), kit.facts, kit.counters
    kit.tries(SPEC, …)             Try this
    kit.proofs(NAME, …)            what was asserted
    kit.read(NAME, …)              below the fold: how to read it; kit.table, kit.code, kit.questions
    kit.onward(SPEC)               the pages before and after

What shows the step is drawn by `steps.follow`; `sentences` has what words may name; `held` has what a session holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import streamlit as st

from kvviz.core import Check, Run, lessons
from kvviz.player.view import View
from kvviz.ui import links, state, story
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded
from kvviz.ui.heading import heading
from kvviz.ui.held import held
from kvviz.ui.language import current, has, t
from kvviz.ui.sentences import step_facts, windowed
from kvviz.ui.spec import OneOf, PageSpec, Place, Try

__all__ = [
    "answer", "chart", "choice", "code", "counters", "facts", "heading", "number", "onward", "proofs", "questions",
    "read", "spoken", "table", "tries", "words",
]  # fmt: skip

SIGNS = {"holds": "✓", "rounding": "≈", "fails": "✗"}
SAYS_SECONDS = 1.0


# Beside and above the hero


def answer(page: str, section: str, **values: object) -> None:
    """The answer line."""
    with st.container(key=f"answer-{page}"):
        st.markdown(t(page, section, **values))


def counters(key: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A card with a small table of numbers: nothing in it is a learner's text."""
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        for cells in (head, [":--", *["--:"] * (len(head) - 1)], *rows)
    ]
    with st.container(key=f"facts-{key}"):
        st.markdown("\n".join(lines))


def facts(key: str, rows: Iterable[tuple[str, str]], title: str | None = None) -> None:
    """A card of label and value; values are shown literally, in a fixed-width face."""
    with st.container(key=f"facts-{key}"):
        if title:
            st.markdown(f"**{title}**")
        for label, value in rows:
            st.markdown(f"{label} {lessons.literal(value)}")


def choice(
    page: PageSpec, name: str, *, first: str | None = None, kind: str = "segmented", labelled: bool = True
) -> str | None:
    """A control for one of the page's settings, a `OneOf`, by the words name_VALUE of the lesson. `first` is chosen
    until somebody chooses, where the run says what that is; else the setting's default."""
    field = page.fields[name]
    assert isinstance(field, OneOf)
    if first is not None:
        st.session_state.setdefault(name, first)
    control = st.segmented_control if kind == "segmented" else st.pills
    return control(
        t(page.name, f"{name}_label"),
        field.words,
        format_func=lambda value: t(page.name, f"{name}_{value}"),
        key=name,
        persist_state="session",
        label_visibility="visible" if labelled else "collapsed",
    )


# Try this


def tries(
    page: PageSpec,
    acts: Mapping[str, Callable[[], object]] | None = None,
    *,
    values: Mapping[str, Mapping[str, object]] | None = None,
    off: bool | Collection[str] = False,
    which: Sequence[Try] | None = None,
) -> None:
    """The page's buttons (or those of `which`), with what to look for under each.

    One with a place sends the player there; of another, `acts` says by its name what it does (a callback: it may set
    the values of widgets). `values` fill the words of each; `off` names those that can't be pressed. KeyError if one
    has neither place nor act.
    """
    each = page.tries if which is None else which
    for column, one in zip(st.columns(len(each)), each, strict=True):
        act = _go if one.place is not None else (acts or {})[one.name]
        column.button(
            t(page.name, f"try_{one.name}"),
            key=f"try-{page.name}-{one.name}",
            on_click=act,
            args=(one,) if one.place is not None else (),
            disabled=off if isinstance(off, bool) else one.name in off,
            width="stretch",
        )
        if one.place is None:
            column.caption(t(page.name, f"try_{one.name}_says", **(values or {}).get(one.name, {})))
            continue
        lacks = not one.recorded and len(state.current_run().steps) <= max(1, one.place.step or 0)
        grows = lacks and state.learner().progress().stage == "passes"
        with column:
            fragment(_says, key=f"says-{one.name}", run_every=SAYS_SECONDS if grows else None)(page.name, one)


@guarded
def _says(page: str, each: Try) -> None:
    """What to look for. While a run grows it is looked up again: its numbers may not have been there yet."""
    run = state.bundled_run() if each.recorded else state.current_run()
    alone = f"try_{each.name}_alone" if len(run.steps) == 1 else ""
    section = alone if has(page, alone) else f"try_{each.name}_says"
    st.caption(t(page, section, **step_facts(run, _within(run, each.place or Place()))))


def _go(each: Try) -> None:
    """The place is clamped here, silently: a short run shows what it has."""
    if each.recorded:
        state.show_recorded(state.bundled_run() if state.live_run() or state.opened_run() else None)
    view = _within(state.current_run(), each.place or Place())
    state.ask(Place(view.step, view.layer, view.head), opened=each.opened, substep=each.substep)


def _within(run: Run, place: Place) -> View:
    kept, _ = links.clamp(place, len(run.steps), run.model.layers, run.model.heads)
    here = state.view(run)
    step, layer, head = (
        a if a is not None else b for a, b in ((kept.step, here.step), (kept.layer, here.layer), (kept.head, here.head))
    )
    return View(step, layer, head)


# Proofs


def proofs(page: str, checks: Sequence[Check], **values: object) -> None:
    """The proof strip: a sentence for each check, sections proof_NAME and, where it can fail, proof_NAME_fails.

    A failing check comes first. `value` and `limit` are filled in as numbers.
    """
    with st.container(key=f"proofs-{page}", horizontal=True):
        for i, check in enumerate(sorted(checks, key=lambda c: c.verdict != "fails")):
            section = f"proof_{check.name}"
            if has(page, f"{section}_{check.verdict}"):
                section += f"_{check.verdict}"
            said = t(page, section, **(values | {"value": number(check.value), "limit": number(check.limit)}))
            with st.container(key=f"proof-{check.verdict}-{page}-{i}", width="content"):
                st.markdown(f"**{SIGNS[check.verdict]} {t('shell', f'verdict_{check.verdict}')}** {said}")


def number(value: float) -> str:
    """As the proof strip writes it: whole numbers with separators, others with two significant digits."""
    if math.isnan(value):
        return "n/a"
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    if 0.01 <= abs(value) < 1000:
        return f"{value:.3g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"


# Charts and tables


def chart(
    page: str,
    name: str,
    draw: Callable,
    table: Callable,
    record: object,
    *,
    values: Mapping[str, object],
    answer: str | None = None,
    height: int | None = None,
    key: str | None = None,
    **chosen: object,
) -> None:
    """A figure of a record: `draw(record, words=…, dark=…, **chosen)`, `table(record, words=…, **chosen)`.

    The lesson has its words as sections axis_WORD, and NAME_how, NAME_alt and (unless `answer` names another one, or
    is "") NAME_answer. Pandas and Plotly take most of a second to import: what needs no chart does not wait for them.
    """
    from kvviz.ui import charts

    named = words(page)
    said = f"{name}_answer" if answer is None else answer
    charts.chart(
        draw(record, words=named, dark=False, **chosen),  # the browser exchanges the colours
        key=f"{page}-{key or name}",
        answer=t(page, said, **values) if said else "",
        how=t(page, f"{name}_how", **values),
        table=lambda: table(record, words=named, **chosen),
        alt=spoken(t(page, f"{name}_alt", **values)),
        height=height,
    )


def spoken(text: str) -> str:
    """A sentence for those who hear the page: code spans without their fences."""
    return re.sub(r"(`+) ?(.+?) ?\1", r"\2", text)


def words(page: str) -> dict[str, str]:
    """The page's axis words in the current language: its sections axis_WORD."""
    found = lessons.sections(current(), page)
    return {name.removeprefix("axis_"): body for name, body in found.items() if name.startswith("axis_")}


def table(heading: str, of: Callable[..., dict[str, list]], page: str, record: object) -> None:
    """A record's table below the fold, with the words of the page's lesson."""
    st.subheader(heading, anchor=False)
    st.dataframe(of(record, words=words(page)), hide_index=True, key=f"table-{page}-{of.__name__}")


# Below the fold


def read(page: str, section: str = "read", **values: object) -> None:
    """How to read the picture."""
    st.subheader(t(page, "read_heading"), anchor=False)
    st.markdown(t(page, section, **values))


def code(page: str, section: str = "code", *, heading: str | None = None, **values: object) -> None:
    """A few lines of code with this run's numbers, as plain text: for st.code the browser would fetch and start a
    syntax highlighter, which takes it a second."""
    st.subheader(t(page, heading or f"{section}_heading"), anchor=False)
    st.container(key="code").text(t(page, section, **values))


def questions(page: PageSpec, **values: object) -> None:
    """What people ask here, in the lesson's order: sections q_NAME (the question) and q_NAME_a (the answer); then those
    of words/five that the page asks for in its spec. `values` fill them besides the step's own.

    q_NAME_a_window answers instead where the layer in view does not see all that is stored.
    """
    st.subheader(t("shell", "questions"), anchor=False)
    run = state.current_run()
    view = state.view(run)
    filled = step_facts(run, view) | values
    found, window = lessons.sections(current(), page.name), windowed(run, view)
    for section in found:
        if section.startswith("q_") and f"{section}_a" in found:
            own = f"{section}_a_window"
            said = own if own in found and window else f"{section}_a"
            with st.expander(t(page.name, section, **filled)):
                st.markdown(t(page.name, said, **filled))
    ends = {"rope": f"_{run.model.positions}", "mask": "_window" if window else ""}
    for question in page.asks:
        with st.expander(t("five", f"q_{question}")):
            st.markdown(t("five", f"q_{question}_a{ends.get(question, '')}", **step_facts(run, view)))


def onward(page: PageSpec) -> None:
    """The story's neighbours, inside the content: an embedded app has no other navigation."""
    targets = held(story.Story).targets
    for column, other, section in zip(st.columns(2), story.neighbours(page), ("previous", "next"), strict=True):
        if other is not None:
            label = t("shell", section, title=t(other.name, "nav"))
            column.page_link(targets[other.name], label=label, width="stretch")
