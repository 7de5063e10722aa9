"""Charts as Streamlit elements: the sentence, the explanation, the table and what the browser is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories import PLAYER_CASES, make_run
from streamlit.testing.v1 import AppTest

from kvviz.core import lessons
from kvviz.figures.palette import themes
from kvviz.figures.plots import PLOTS
from kvviz.ui import charts

APP = Path(__file__).parent.parent / "browser" / "apps" / "charts.py"


def shown(**query: str) -> AppTest:
    app = AppTest.from_file(str(APP), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, app.exception
    return app


def sent(app: AppTest) -> list[dict]:
    """What each chart's component was given, in order."""
    found = []

    def walk(block) -> None:
        for child in getattr(block, "children", {}).values():
            proto = getattr(child, "proto", None)
            if getattr(proto, "component_name", "") == "kvviz_chart":
                found.append(json.loads(proto.json))
            walk(child)

    walk(app.main)
    return found


def test_a_chart_has_its_sentence_explanation_and_table():
    app = shown(figure="rows", new="20", step="19")
    assert app.markdown[0].value == (
        "Step 19 computes 1 row with the cache and 24 without, 23 of them again. "
        "So far it is 24 rows against 290, 12.1 times as many."
    )
    assert [e.proto.popover.label for e in app.get("popover")] == ["How to read this", "The numbers"]
    table = app.dataframe[0].value
    assert table["with the cache"].sum() == 24
    assert table["without a cache"].sum() == 290


def test_the_browser_gets_figure_themes_and_words():
    (data,) = sent(shown(figure="rows", new="20", step="19"))
    assert data["themes"] == themes()
    assert data["alt"] == "Token rows computed at each step, two bars a step. So far 24 with the cache and 290 without."
    assert (data["key"], data["file"]) == ("0-rows", "kvviz-0-rows")
    assert data["words"]["save_png"] == "Save as PNG"
    figure = json.loads(data["figure"])
    assert figure["layout"]["uirevision"].startswith("random-")


def test_every_chart_on_one_page():
    """C04: each has its own key; one figure twice is no duplicate."""
    app = shown()
    assert len(sent(app)) == len(PLOTS)
    assert len(sent(shown(figure="row,row"))) == 2


def test_repeated_tokens_make_no_repeated_headers():
    """B16: Streamlit refuses a table with two columns of one name."""
    table = shown(figure="square", tokens="repeated", new="1", step="0").dataframe[0].value
    assert list(table.columns) == ["query", "0 the", "1 ·the", "2 ·the", "3 ·the"]


def test_a_learners_text_is_code_in_the_sentence():
    """B10: a token is fenced, so that Markdown finds nothing in it."""
    app = shown(figure="row", tokens="markup", new="1", step="0")
    assert "` ⏎⏎ `" in app.markdown[0].value
    values = {"token": "`a`", "top_token": "*x*", "T": 3, "position_bytes": "12"}
    made = charts._markdown(values)
    assert made == {"token": "`` `a` ``", "top_token": "` *x* `", "T": 3, "position_bytes": "12"}


def test_nothing_is_tabled_while_measuring():
    app = shown(figure="time", new="20", step="3")
    assert app.markdown[0].value.startswith("Measuring: 3 of 16 decode steps.")
    assert len(app.dataframe) == 0
    assert [e.proto.popover.label for e in app.get("popover")] == ["How to read this"]


@pytest.mark.parametrize("language", lessons.LANGUAGES)
@pytest.mark.parametrize("name", ["square", "row"])
def test_a_window_is_explained_where_the_layer_has_one(monkeypatch, language, name):
    """12 prompt tokens and 6 more; layer 0 sees the newest 8, layer 2 all."""
    told = {}
    monkeypatch.setattr(charts, "chart", lambda figure, *, key, **words: told.update({key: words}))
    monkeypatch.setattr(charts, "current", lambda: language)
    monkeypatch.setattr("kvviz.ui.language.current", lambda: language)
    run = make_run(**PLAYER_CASES["window"])
    for layer in (0, 2):
        charts.draw(name, run, key=str(layer), step=6, layer=layer)
    word, seen = {"en": ("window", "newest 8 "), "zh": ("窗口", "最新的 8 个")}[language]
    assert word in told["0"]["how"] and seen in told["0"]["how"] and seen in told["0"]["alt"]
    assert word not in told["2"]["how"] and seen not in told["2"]["alt"]


def test_an_unknown_figure_is_an_error():
    with pytest.raises(KeyError):
        charts.draw("no such figure", None, key="x", step=0)


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_words_of_the_axes(language):
    words = charts.axis_words(language)
    assert words["pass"] == {"en": "step", "zh": "步"}[language]
    assert set(words) == set(charts.axis_words("en"))


def test_plotly_comes_with_streamlit():
    """The module that the browser imports exists in the pinned Streamlit, and it is the one that sets `Plotly`."""
    import streamlit

    module = Path(streamlit.__file__).parent / "static" / charts._plotly_module()
    assert module.is_file()
    assert "Plotly" in module.read_text(encoding="utf-8")
