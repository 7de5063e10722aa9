"""A figure on a page: one sentence above it, how to read it on demand, and a table with the same numbers.

The figure is drawn by a small component with Streamlit's own copy of Plotly, not by `st.plotly_chart`: that one
makes a new element whenever the figure changes, and a reader's zoom is gone at each step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go
import plotly.io
import streamlit as st

from kvviz.core import Run, lessons
from kvviz.figures.palette import themes
from kvviz.figures.plots import PLOTS
from kvviz.ui import warm
from kvviz.ui.language import current, has, t

warm.keep_for_good()  # pandas and Plotly
_HERE = Path(__file__).parent
_BUTTONS = ("save_png", "save_svg", "zoom", "pan", "reset")

_plot = st.components.v2.component(
    "kvviz_chart",
    js=(_HERE / "charts.js").read_text(encoding="utf-8"),
    css=(_HERE / "charts.css").read_text(encoding="utf-8"),
    isolate_styles=False,  # Plotly's style sheet and a test's querySelector both work on the page
)


def chart(
    figure: go.Figure,
    *,
    key: str,
    answer: str,
    how: str,
    table: Mapping[str, Sequence] | Callable[[], Mapping[str, Sequence]],
    alt: str,
    height: int | None = None,
) -> None:
    """Show a figure. `answer` (none if empty) and `how` are Markdown in which user text is already literal; `key` is
    unique.

    Raises ValueError for a table whose columns differ in length.
    """
    if height:
        figure.update_layout(height=height)
    if answer:
        st.markdown(answer)
    _plot(
        key=f"chart-{key}",
        data={
            "figure": plotly.io.to_json(figure, validate=False),
            "themes": themes(),
            "module": _plotly_module(),
            "key": key,
            "height": figure.layout.height,
            "file": f"kvviz-{key}",
            "alt": alt,
            "words": {name: t("figures", f"button.{name}") for name in _BUTTONS},
        },
        height=figure.layout.height,  # kept free while the browser loads Plotly: nothing jumps when it draws
    )
    # Popovers: what is in them comes into the page when they are opened. An expander's tables would be there always,
    # and the browser would go through them with every step.
    left, right = st.columns(2)
    with left.popover(t("figures", "label.how"), type="tertiary", width="stretch"):
        st.markdown(how)
    if found := table() if callable(table) else table:
        with right.popover(t("figures", "label.numbers"), type="tertiary", width="stretch"):
            st.dataframe(dict(found), hide_index=True, key=f"table-{key}")


def draw(name: str, run: Run, *, key: str, step: int, layer: int = 0, head: int = 0) -> None:
    """One of `figures.plots.PLOTS` with its words, sentence, explanation and table from the lessons.

    KeyError for an unknown name. `step`, `layer` and `head` must exist in the run.
    """
    plot = PLOTS[name]
    words = axis_words(current())
    place = (run, step, layer, head)
    values = plot.values(*place)
    case = values.get("case")
    newest = run.P + step - 1
    window = "_window" if run.model.visible(layer, newest) <= newest else ""
    # Colours are exchanged in the browser, which knows the theme; Python hears of a change of theme too late.
    chart(
        plot.figure(*place, words=words, dark=False),
        key=key,
        answer=t("figures", f"{name}.{case}" if case else f"{name}.answer", **_markdown(values)),
        how=t("figures", _own(f"{name}.how", window), **_markdown(values)),
        table=plot.table(*place, words=words),
        alt=t("figures", _own(f"{name}.alt", window), **values),
    )


def _own(section: str, ending: str) -> str:
    """The section of that ending where the lessons have one of its own."""
    return section + ending if has("figures", section + ending) else section


@functools.cache
def axis_words(language: str) -> dict[str, str]:
    """Axis titles, legend entries and column names: the sections `word.…` of figures.md."""
    found = lessons.sections(language, "figures")
    return {name.removeprefix("word."): body for name, body in found.items() if name.startswith("word.")}


def _markdown(values: Mapping[str, object]) -> dict[str, object]:
    """Values for a sentence: tokens, which are a learner's text, as code that nothing inside can close."""
    return {k: lessons.literal(str(v)) if k.endswith("token") else v for k, v in values.items()}


@functools.cache
def _plotly_module() -> str:
    """Where the browser finds Streamlit's chart module, relative to the page. RuntimeError if it moved."""
    static = Path(st.__file__).parent / "static"
    found = sorted(static.glob("static/js/PlotlyChart.*.js"))
    if len(found) != 1:
        raise RuntimeError(f"this Streamlit has {len(found)} Plotly modules where one was expected; pin its version")
    return found[0].relative_to(static).as_posix()
