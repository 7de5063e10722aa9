"""The parts of a page whose hero is an experiment or one figure, in the order in which a page calls them:

    shell.heading(NAME)             title, provenance
    own controls
    experiment.answer(...)          one sentence with this run's numbers
    experiment.chart(...)           the hero; experiment.facts(...) beside it
    experiment.tries(...)           Try this
    experiment.proofs(...)          what the experiment asserted
    experiment.read(...)            below the fold: how to read it; then table, code
    page.questions(...), page.onward(NAME)

An experiment that needs a model goes through `at_hand`, which starts it, and `live`, which looks for what it found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kvviz.core import Check, Run, lessons
from kvviz.core.refusal import Refusal
from kvviz.models import catalog
from kvviz.ui import charts, links, state, warm
from kvviz.ui.experimenter import Experimenter, State, Wish, Work
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded, refused
from kvviz.ui.language import current, has, t
from kvviz.ui.page import asked_everywhere

POLL_SECONDS = 0.3
COMING_SECONDS = 1.0  # while a model loads: each look takes time from the imports
SIGNS = {"holds": "✓", "rounding": "≈", "fails": "✗"}


# Experiments on a model


def experimenter(name: str, work: Work) -> Experimenter:
    """This session's experiments of that name."""
    held: dict[str, Experimenter] = st.session_state.setdefault("kv_experiments", {})
    return held.setdefault(name, Experimenter(work))


def at_hand(name: str, work: Work, wish: Wish, *, by_itself: bool = True) -> State:
    """Where the experiment is. A cheap one starts `by_itself` whenever `wish` is new, once its model is there."""
    mine = experimenter(name, work)
    now = mine.state()
    if by_itself and (wish.model, wish.dtype) != (state.model_name(), state.dtype()) and _on_disk(wish):
        warm.request(wish.model, wish.dtype)  # the sidebar's own model comes up with every page
    if by_itself and wish != now.wish and warm.loaded(wish.model, wish.dtype) is not None:
        mine.start(wish)
        now = mine.state()
    return now


def live(key: str, name: str, work: Work, wish: Wish, body: Callable[[State], Any], *, by_itself: bool = True) -> None:
    """Draws `body(state)`, again and again while there is news to come; then the rest of the page follows once.

    `body` may return a container: what is being waited for is said there, else below.
    """
    now = at_hand(name, work, wish, by_itself=by_itself)
    every = POLL_SECONDS if now.busy else COMING_SECONDS if by_itself and coming(wish) else None
    st.session_state[f"kv_live_{key}"] = now.busy, now.answers, every
    fragment(_live, key=key, run_every=every)(key, name, work, wish, body, by_itself)


@guarded
def _live(key: str, name: str, work: Work, wish: Wish, body: Callable[[State], None], by_itself: bool) -> None:
    now = at_hand(name, work, wish, by_itself=by_itself)
    place = body(now)
    with place or st.container():
        waits(now, wish, by_itself=by_itself)
    was_busy, answered, every = st.session_state[f"kv_live_{key}"]
    still_coming = by_itself and not now.busy and coming(wish)
    if (
        was_busy != now.busy
        or (not now.busy and answered != now.answers)
        or (every is not None) != (now.busy or still_coming)
    ):
        st.rerun()


def coming(wish: Wish) -> bool:
    """The model is on its way, and the experiment would begin without a click."""
    return _on_disk(wish) and warm.status(wish.model, wish.dtype).coming


def why_not(wish: Wish) -> str | None:
    """The sentence that says why there can be no experiment on that model, or None."""
    try:
        if catalog.entry(wish.model).on_disk:
            status = warm.status(wish.model, wish.dtype)
            return refused(status.refusal) if status.refusal else None
    except Refusal as refusal:
        return refused(refusal)
    return refused(Refusal("not_on_disk", model=wish.model))


def _on_disk(wish: Wish) -> bool:
    try:
        return catalog.entry(wish.model).on_disk
    except Refusal:
        return False


def waits(now: State, wish: Wish, *, by_itself: bool = True) -> None:
    """What is being waited for, or why nothing comes: a line that keeps its place."""
    line = "\u00a0"
    if reason := why_not(wish):
        line = reason
    elif now.busy or (by_itself and now.wish != wish and coming(wish)):
        status = warm.status(wish.model, wish.dtype)
        if now.before:
            line = t("shell", "experiment_queue", before=f"{now.before:,}")
        elif status.ready:
            line = t("shell", "experiment_running")
        else:
            line = t(
                "shell", "experiment_model", state=t("shell", f"status_{status.stage}", seconds=f"{status.seconds:.0f}")
            )
    elif now.stopped:
        line = t("shell", "experiment_stopped")
    st.caption(line)
    if now.refusal and not now.busy:
        st.warning(refused(now.refusal))
    if now.failed and not now.busy:
        st.error(t("shell", "experiment_failed"))


def start_and_stop(
    name: str,
    work: Work,
    wish: Wish,
    label: str,
    *,
    where: Sequence | None = None,
    asked: Callable[[], Wish] | None = None,
) -> None:
    """Two buttons, for an experiment that takes its time. `where`: two columns. `asked`: the wish at the click,
    which may have ended the typing of a number."""
    mine = experimenter(name, work)
    busy, reason = mine.state().busy, why_not(wish)
    begin, end = where or st.columns(2)
    begin.button(
        label,
        key=f"{name}_start",
        type="primary",
        width="stretch",
        disabled=busy or reason is not None,
        on_click=lambda: mine.start(asked() if asked else wish),
    )
    end.button(t("shell", "stop"), key=f"{name}_stop", width="stretch", disabled=not busy, on_click=mine.stop)


# What is on the page


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


def table(heading: str, of: Callable[..., dict[str, list]], page: str, record: object) -> None:
    """A record's table below the fold, with the words of the page's lesson."""
    st.subheader(heading, anchor=False)
    st.dataframe(of(record, words=words(page)), hide_index=True, key=f"table-{page}-{of.__name__}")


def choice(page: str, name: str, default: str | None, *, kind: str = "segmented", labelled: bool = True) -> str | None:
    """One of links.OWN[page][name], by the words name_VALUE of the lesson. request.take_own reads it from a link."""
    options = links.OWN[page][name]
    assert isinstance(options, tuple)
    st.session_state.setdefault(name, default)
    control = st.segmented_control if kind == "segmented" else st.pills
    return control(
        t(page, f"{name}_label"),
        options,
        format_func=lambda value: t(page, f"{name}_{value}"),
        key=name,
        persist_state="session",
        label_visibility="visible" if labelled else "collapsed",
    )


def code(page: str, section: str = "code", **values: object) -> None:
    """A few lines of code with this run's numbers, as plain text."""
    st.subheader(t(page, f"{section}_heading"), anchor=False)
    st.container(key="code").text(t(page, section, **values))


def facts(key: str, rows: Iterable[tuple[str, str]], title: str | None = None) -> None:
    """A card of label and value; values are shown literally, in a fixed-width face."""
    with st.container(key=f"facts-{key}"):
        if title:
            st.markdown(f"**{title}**")
        for label, value in rows:
            st.markdown(f"{label} {lessons.literal(value)}")


@dataclass(frozen=True)
class Try:
    """A button that puts the page in a state worth seeing: sections try_NAME and try_NAME_says of its lesson."""

    name: str
    act: Callable[[], None]  # a callback: may set the values of widgets
    values: Mapping[str, object] | None = None
    off: bool = False


def tries(page: str, each: Sequence[Try]) -> None:
    for column, one in zip(st.columns(len(each)), each, strict=True):
        column.button(
            t(page, f"try_{one.name}"),
            key=f"try-{page}-{one.name}",
            on_click=one.act,
            disabled=one.off,
            width="stretch",
        )
        column.caption(t(page, f"try_{one.name}_says", **(one.values or {})))


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
    is "") NAME_answer.
    """
    named = words(page)
    said = f"{name}_answer" if answer is None else answer
    charts.chart(
        draw(record, words=named, dark=False, **chosen),  # the browser exchanges the colours
        key=f"{page}-{key or name}",
        answer=t(page, said, **values) if said else "",
        how=t(page, f"{name}_how", **values),
        table=table(record, words=named, **chosen),
        alt=spoken(t(page, f"{name}_alt", **values)),
        height=height,
    )


def spoken(text: str) -> str:
    """A sentence for those who hear the page: code spans without their fences."""
    return re.sub(r"(`+) ?(.+?) ?\1", r"\2", text)


def axis_words(language: str, page: str) -> dict[str, str]:
    found = lessons.sections(language, page)
    return {name.removeprefix("axis_"): body for name, body in found.items() if name.startswith("axis_")}


def words(page: str) -> dict[str, str]:
    """The page's axis words in the current language."""
    return axis_words(current(), page)


def read(page: str, section: str = "read", **values: object) -> None:
    st.subheader(t(page, "read_heading"), anchor=False)
    st.markdown(t(page, section, **values))


def questions(page: str, **values: object) -> None:
    """As page.questions, with values of the page's own: sections q_NAME and q_NAME_a."""
    st.subheader(t("shell", "questions"), anchor=False)
    found = lessons.sections(current(), page)
    for section in found:
        if section.startswith("q_") and f"{section}_a" in found:
            with st.expander(t(page, section, **values)):
                st.markdown(t(page, f"{section}_a", **values))
    run = state.current_run()
    asked_everywhere(page, run, state.view(run))


def token(run: Run, token_id: int) -> str:
    """A token as code within Markdown."""
    from kvviz.core.tokens import label

    return lessons.literal(label(run.pieces[int(token_id)]))


def token_of(pieces: Mapping[int, bytes], token_id: int) -> str:
    """A token's label, not yet made literal: for widgets that show text as it is."""
    from kvviz.core.tokens import label

    return label(pieces[int(token_id)])
