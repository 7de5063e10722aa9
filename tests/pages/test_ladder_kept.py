"""Results of the ladder kept, saved, opened and laid beside each other, without a browser."""

from __future__ import annotations

import dataclasses
import json

import pytest
from reading import components, outside_code, text_of
from streamlit.testing.v1 import AppTest

from kvviz.core import lessons
from kvviz.features.ladder.record import file as ladder_file
from kvviz.features.ladder.record.ladder import Ladder
from tests.pages.test_ladder_page import HOSTILE, RUN, clean, climbed, with_found

pytestmark = pytest.mark.usefixtures("no_models")


def kept_titles(app: AppTest) -> list[str]:
    return [found.title for found in app.session_state["kv_ladders"]]


def test_results_are_kept_under_names_of_their_own_and_dropped(opened):
    app, still = with_found(opened)

    def next_climb(number: int) -> None:
        there = still["ladder"]._state
        still["ladder"]._state = dataclasses.replace(
            there, found=dataclasses.replace(there.found, key=f"climb {number}")
        )

    app.text_input(key="ladder_name").set_value("mine").run()
    for number in range(2):
        next_climb(number)
        app.run()
        app.button(key="ladder_keep").click().run()
    assert kept_titles(app) == ["mine", "mine (2)"]
    shown = clean(app)
    assert "The quickest of 2 results: ` mine `, preallocated, SDPA, fp32, 2.00 ms a later token." in shown
    assert components(app).count("kvviz_chart") == 3
    next_climb(2)
    app.run()
    app.text_input(key="ladder_name").set_value("  ").run()  # no name: the device's
    app.button(key="ladder_keep").click().run()
    assert kept_titles(app)[2] == RUN.machine.device_name[:40]
    app.button(key="ladder_drop_0").click().run()
    assert kept_titles(app) == ["mine (2)", RUN.machine.device_name[:40]]
    for number in range(3, 7):
        next_climb(number)
        app.run()  # the button keeps what is shown
        app.button(key="ladder_keep").click().run()
    assert len(kept_titles(app)) == 6
    assert app.button(key="ladder_keep").disabled
    assert lessons.text("en", "ladder", "kept_full", most=6) in clean(app)
    assert "The quickest of 6 results" in text_of(app)
    app.button(key="ladder_drop_5").click().run()
    assert not app.button(key="ladder_keep").disabled


def opened_file(app: AppTest, name: str, data: bytes) -> AppTest:
    return app.file_uploader("ladder_open").upload(name, data, "application/json").run()


def saved(found: Ladder, *, bench: bool = False) -> bytes:
    data = ladder_file.to_json(found)
    return json.dumps({"machine": {}, "rounds": 5, "ladder": data} if bench else data).encode()


@pytest.mark.parametrize("bench", [False, True], ids=["saved", "bench"])
def test_a_file_opened_stands_beside_this_result_with_its_own_numbers(opened, bench):
    app, _ = with_found(opened)
    machine = dataclasses.replace(RUN.machine, device_name="Test GPU")
    other = climbed({"none": 7.0, "preallocated": 1.25}, key="other", machine=machine, title="" if bench else "theirs")
    opened_file(app, "from afar.json", saved(other, bench=bench))
    (kept,) = app.session_state["kv_ladders"]
    assert kept.title == ("from afar" if bench else "theirs")
    assert ladder_file.to_json(dataclasses.replace(kept, title=other.title)) == ladder_file.to_json(other)
    shown = clean(app)
    assert f"The quickest of 2 results: ` {kept.title} `, preallocated, SDPA, fp32, 1.25 ms a later token." in shown
    assert "Test GPU" in shown and components(app).count("kvviz_chart") == 3


def test_what_was_kept_is_not_kept_or_shown_twice(opened):
    app, _ = with_found(opened)
    app.text_input(key="ladder_name").set_value("mine").run()
    app.button(key="ladder_keep").click().run()
    assert "The quickest of" not in clean(app)  # one result, though it is here and kept
    told = lessons.text("en", "refusals", "ladder_kept", title="` mine `")
    app.button(key="ladder_keep").click().run()
    assert [w.value for w in app.warning] == [told]
    opened_file(app, "the same.json", saved(climbed()))
    assert [w.value for w in app.warning] == [told]
    assert kept_titles(app) == ["mine"]


def test_a_long_name_is_cut_not_lost(opened):
    app, _ = with_found(opened)
    app.text_input(key="ladder_name").set_value("n" * 77).run()
    app.button(key="ladder_keep").click().run()
    assert kept_titles(app) == ["n" * 39 + "…"]


def test_results_that_differ_in_what_they_ran_are_compared_with_care(opened):
    app, _ = with_found(opened)
    opened_file(app, "x.json", saved(climbed(key="other", batch=2, title="two")))
    assert "They differ in model, length or batch" in clean(app)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"no", "not_a_ladder"),
        (b'{"format": "kvviz ladder", "version": 99}', "ladder_version"),
        (b"\xff", "not_a_ladder"),
    ],
)
def test_a_broken_file_gets_a_sentence_and_nothing_is_lost(opened, data, code):
    app, _ = with_found(opened)
    app.button(key="ladder_keep").click().run()
    before = app.session_state["kv_ladders"][0]
    opened_file(app, "x.json", data)
    clean(app)
    (warning,) = app.warning
    assert warning.value == lessons.text("en", "refusals", code, version="` 99 `", known=1)
    assert app.session_state["kv_ladders"] == [before]
    opened_file(app, "y.json", saved(climbed(key="other", title="good")))
    assert not app.warning and kept_titles(app)[1] == "good"


def test_a_damaged_file_names_what_is_wrong(opened):
    data = json.loads(saved(climbed(title="t")))
    data["rungs"][0]["ms"][0][3] = -1
    app = opened_file(opened("ladder"), "x.json", json.dumps(data).encode())
    clean(app)
    (warning,) = app.warning
    assert "rungs.ms" in warning.value
    assert kept_titles(app) == []


def test_a_hostile_title_is_literal_everywhere(opened):
    machine = dataclasses.replace(RUN.machine, device_name=HOSTILE)
    model = dataclasses.replace(RUN.model, name=HOSTILE)
    app, _ = with_found(opened, climbed(machine=machine, model=model))
    app.text_input(key="ladder_name").set_value(HOSTILE).run()
    app.button(key="ladder_keep").click().run()
    opened_file(
        app, f"{HOSTILE}.json", saved(climbed({"preallocated": 1.0}, key="other", machine=machine, model=model))
    )
    shown = clean(app)
    assert kept_titles(app) == [HOSTILE, f"{HOSTILE} (2)"]
    assert shown.count(HOSTILE) >= 7  # twice title, model and device, and the title of the quickest
    assert all(markup not in outside_code(shown) for markup in ("<b>", "$x$", "![](x)"))
