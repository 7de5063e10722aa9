"""A page's own settings in the address bar: a reload comes back to them, and a late address does not undo a click."""

from __future__ import annotations

import json

import pytest
from reading import text_of

from kvviz.features.memory.spec import SPEC
from kvviz.ui import links, request

pytestmark = pytest.mark.usefixtures("no_models")


def sent(app) -> dict[str, object]:
    """What the page tells the browser to put into the query, and (None) to take out."""
    found = []

    def walk(node: object) -> None:
        for child in getattr(node, "children", {}).values():
            proto = getattr(child, "proto", None)
            if getattr(proto, "component_name", "") == "kvviz_address":
                found.append(json.loads(proto.json)["place"])
            walk(child)

    walk(app.main)
    (own,) = found
    return own


def follow(app, monkeypatch) -> None:
    """The browser's next message comes with the address that the page has written."""
    query = {name: value for name, value in sent(app).items() if value is not None}
    monkeypatch.setattr(request, "query_values", lambda: query)


def test_what_nobody_changed_is_left_out(opened):
    assert sent(opened("memory")) == {} and sent(opened("problem")) == {}


def test_settings_of_memory_are_in_the_address_once_they_are_changed(opened):
    app = opened("memory", memory_model="llama-3-8b", memory_T="8192")
    assert sent(app) == {"memory_model": "llama-3-8b", "memory_T": "8192"}
    app.selectbox(key="memory_model").set_value("mistral-7b").run()
    app.number_input(key="memory_T").set_value(4_000).run()
    app.selectbox(key="memory_kv").set_value("int8").run()
    assert sent(app) == {"memory_model": "mistral-7b", "memory_T": "4000", "memory_kv": "int8"}
    app.button(key="try-memory-long").click().run()
    after = sent(app)
    assert after["memory_model"] == "llama-3-8b" and after["memory_kv"] == "half" and after["memory_T"] == "4000"
    assert (after["memory_total"], after["memory_peak"], after["memory_longest"]) == ("24.0", "18.36", "29000")
    again = text_of(opened("memory", **after))  # the reload
    assert "fewer than one request of 29,000 tokens**" in again and "4,000 tokens, batch 1" in again


def test_settings_of_the_problem_are_in_the_address_once_they_are_changed(opened):
    app = opened("problem", work_P="5", work_N="20")
    app.number_input(key="work_P").set_value(100).run()
    app.number_input(key="work_N").set_value(90).run()
    assert sent(app) == {"work_P": "100", "work_N": "90"}
    app.number_input(key="work_P").set_value(None).run()
    assert sent(app) == {"work_P": None, "work_N": "90"}


@pytest.mark.parametrize("name", ["small", "middle", "long"])
def test_an_example_of_the_problem_is_in_the_address(opened, monkeypatch, name):
    from kvviz.ui import experiment
    from kvviz.ui.job import Job

    monkeypatch.setattr(experiment, "why_not", lambda wish: None)
    monkeypatch.setattr(Job, "start", lambda self, wish, **_: None)
    app = opened("problem", work_P="6", work_N="20")
    app.button(key=f"try-problem-{name}").click().run()
    P, N = {"small": ("5", "20"), "middle": ("4", "30"), "long": ("100", "100")}[name]
    assert sent(app) == {"work_P": P, "work_N": N}


@pytest.mark.parametrize(
    ("name", "value", "used"),
    [("memory_T", "-5", None), ("memory_model", "<b>x</b>", "llama-3-8b"), ("memory_B", "1e9", "1")],
)
def test_nonsense_gives_way_to_what_is_used(opened, name, value, used):
    app = opened("memory", **{name: value})
    assert any(name in i.value and value in i.value for i in app.info)
    assert sent(app) == {name: used}


def test_a_click_is_not_undone_by_the_address_that_follows(opened, monkeypatch):
    late = {"memory_T": "8192", "memory_model": "gpt2", "memory_by": "dtype"}
    app = opened("memory", **late)
    steps = ((1_000, "llama-2-7b", "batch"), (2_000, "gpt3", "dtype"), (3_000, "gpt2-xl", "batch"))
    for T, model, by in steps:
        app.number_input(key="memory_T").set_value(T)
        app.selectbox(key="memory_model").set_value(model)
        app.segmented_control(key="memory_by").set_value(by).run()
        assert (app.session_state.memory_T, app.session_state.memory_model) == (T, model)
        assert app.session_state.memory_by == by
        follow(app, monkeypatch)
    monkeypatch.setattr(request, "query_values", lambda: late)  # sent before the browser had heard of the last ones
    app.number_input(key="memory_B").set_value(7).run()
    held = app.session_state
    assert (held.memory_T, held.memory_model, held.memory_B) == (3_000, "gpt2-xl", 7)


def test_back_to_an_earlier_address_is_news(opened, monkeypatch):
    app = opened("memory", memory_T="8192")
    app.number_input(key="memory_T").set_value(5).run()
    monkeypatch.setattr(request, "query_values", lambda: {"memory_T": "8192"})
    app.run()
    assert app.session_state.memory_T == 5
    monkeypatch.setattr(request, "query_values", lambda: {"memory_T": "5"})
    app.run()
    monkeypatch.setattr(request, "query_values", lambda: {"memory_T": "8192"})
    monkeypatch.setattr(request, "by_history", lambda: True)
    app.run()
    assert app.session_state.memory_T == 8_192


def test_the_address_is_read_as_it_was_written():
    values = {"memory_T": 4_000, "memory_total": 24.0, "memory_model": "gpt2", "memory_peak": None}
    assert links.written(values) == {"memory_T": "4000", "memory_total": "24.0", "memory_model": "gpt2"}
    assert links.own(SPEC.fields, links.written(values)) == {n: v for n, v in values.items() if v is not None}
