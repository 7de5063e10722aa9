"""Positions as Streamlit runs it, on both kinds of model, before and after its experiments."""

from __future__ import annotations

import dataclasses
import math

import paper_positions as paper
import pytest
from factories import make_run
from reading import components, outside_code, text_of

from kvviz.core import lessons
from kvviz.features.positions import parts as positions_page
from kvviz.features.positions.parts import study
from kvviz.features.positions.record import Lengths
from kvviz.features.positions.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import experiment, kit, links, state
from kvviz.ui.job import MOST_AGAIN, Job, State

pytestmark = pytest.mark.usefixtures("no_models")


def measured(run, *, far: Lengths | None = None, here: View | None = None) -> dict:
    here = here or View(6, 3, 2)
    rotary, learned = (study.model_of(run, kind)[0] for kind in ("rotary", "learned"))
    found = {
        "rotation": (study.rotate, study.rotation_wish(run, here), dataclasses.replace(paper.rotation(), model=rotary)),
        "table": (study.read_table, study.table_wish(run), dataclasses.replace(paper.table(), model=learned)),
        "wrong": (study.misplace, study.misplaced_wish(run), paper.misplaced()),
    }
    if far is not None:
        found["lengths"] = (study.go_far, study.length_wish(), far)
    held = {}
    for name, (work, wish, what) in found.items():
        held[name] = Job(work)
        held[name]._state = State("over", wish, what, wish, True)
    return {"kv_jobs": held}


@pytest.fixture(autouse=True)
def _float32(monkeypatch):
    monkeypatch.setattr(study.state, "dtype", lambda: "float32")


def check(app, language: str, charts: int = 7) -> None:
    assert not app.exception
    assert [e.value for e in app.error] == []
    assert [t.value for t in app.title] == [lessons.text(language, "positions", "title")]
    shown = text_of(app)
    assert "14" in shown and "1,024" in shown
    assert f"{math.cos(0.1):.3f}" in shown  # how alike rows 14 and 15 of the table are
    assert components(app).count("kvviz_chart") == charts
    assert "{" not in outside_code(shown), "a placeholder was left unfilled"


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_the_page_shows_its_numbers(opened, language):
    run = state.bundled_run()
    check(opened("positions", measured(run, far=paper.far()), lang=language, step="6"), language)


@pytest.mark.parametrize("part", ["hero", "second", "wrong_place", "lengths", "alibi"])
def test_without_its_body_that_test_fails(opened, monkeypatch, part):
    monkeypatch.setattr(positions_page, part, lambda *_: None)
    with pytest.raises(AssertionError):
        check(opened("positions", measured(state.bundled_run(), far=paper.far()), step="6"), "en")


def test_a_rotary_run_has_the_rotation_first(opened):
    run = make_run(6, 8, 2, head_dim=8, P=9, N=8, positions="rotary", name="story-llama")
    app = opened("positions", {"kv_opened": run} | measured(run), step="6")
    shown = text_of(app)
    assert "each pair of its Q and K is turned by 14 times its own angle" in shown
    assert "K is stored after the rotation" in shown
    assert "In the picture above: pair 0 turns by 1 radian" in shown
    assert not app.exception and [e.value for e in app.error] == []


def test_the_failing_proof_is_said_first_and_why(opened):
    shown = text_of(opened("positions", measured(state.bundled_run(), far=paper.far()), step="6"))
    assert "Not equal with dynamic NTK: cached and recomputed logits differ by 4.5 (limit 1e-3)" in shown
    assert shown.index("✗ fails") < shown.index("✓ holds")
    assert "K in the cache less turned K: 0." in shown
    assert "GPT-2 has learned" in shown or "has learned 1,024" in shown  # the refusal at position 1,025


def test_what_a_first_time_reader_asks_is_answered(opened):
    app = opened("positions", step="6")
    assert "Is K stored before or after RoPE?" in [e.label for e in app.expander]
    assert "After. transformers turns Q and K first" in text_of(app)


def test_before_any_model_is_there_the_page_stands(opened):
    app = opened("positions", step="6")
    assert not app.exception and [e.value for e in app.error] == []
    shown = text_of(app)
    assert "not measured yet" in shown
    assert components(app).count("kvviz_chart") == 1  # ALiBi needs none


def test_lengths_as_they_come(opened):
    some = dataclasses.replace(paper.far(0), table_end=None, done=3)
    app = opened("positions", measured(state.bundled_run(), far=some), step="6")
    assert not app.exception and [e.value for e in app.error] == []
    assert components(app).count("kvviz_chart") == 6  # no chart of cached runs yet
    one = dataclasses.replace(some, curves=some.curves[:1])
    assert not opened("positions", measured(state.bundled_run(), far=one), step="6").exception


def test_buttons_choose_pair_and_offset(opened):
    app = opened("positions", measured(state.bundled_run(), far=paper.far()), step="6")
    app.button(key="try-positions-fast").click().run()
    assert app.session_state.positions_pair == 0
    assert app.slider(key="positions_pair").value == 0
    app.select_slider(key="positions_offset").set_value(2).run()
    shown = text_of(app)
    assert "from new token 1 on the text is another one" in shown
    assert "would take 4, a position that is in use already: the logits are off by 4.25" in shown
    assert "Further down, at the rotation: pair 0 turns" in shown


def test_choices_that_the_browser_kept_are_read(opened):
    """After a reload the browser tells the text of the line that was chosen, before there is a list to find it in."""
    kept = {"positions_key": "2 ·old man", "positions_offset": "+2"}
    results = measured(state.bundled_run(), far=paper.far())
    app = opened("positions", results | kept, step="6")
    assert not app.exception and [e.value for e in app.error] == []
    assert (app.session_state.positions_key, app.session_state.positions_offset) == (2, 2)
    app = opened("positions", results | {"positions_key": "? what"}, step="6")
    assert not app.exception and app.session_state.positions_key == 3


def test_what_is_read_aloud_has_no_fences():
    assert kit.spoken("K of ` ·and ` and ``` a``b ``` at 3") == "K of ·and and a``b at 3"


def test_a_link_s_own_settings_are_read():
    query = links.query("positions_pair=3&positions_key=2&positions_offset=-4")
    assert links.own(SPEC.fields, query) == {"positions_pair": 3, "positions_key": 2, "positions_offset": "-4"}
    assert links.own(SPEC.fields, links.query("positions_offset=5")) == {}


def jobs(state: dict, **changed: State) -> dict:
    for name, now in changed.items():
        state["kv_jobs"][name]._state = now
    return state


def shown_charts(app) -> set[str]:
    return {e.proto.id for e in app.main if getattr(e.proto, "component_name", "") == "kvviz_chart"}


@pytest.mark.parametrize("part", ["rotation", "table"])
def test_what_was_found_of_another_text_goes_when_this_one_failed(opened, part):
    run = state.bundled_run()
    held = measured(run, far=paper.far())
    now = held["kv_jobs"][part]._state
    old = dataclasses.replace(now.wish, text="another prompt")
    coming = dataclasses.replace(now, stage="running", answers=old, complete=False)
    assert any(
        f"positions-{part}" in key for key in shown_charts(opened("positions", jobs(held, **{part: coming}), step="6"))
    )
    failed = dataclasses.replace(coming, stage="over", failed=True)
    app = opened("positions", jobs(held, **{part: failed}), step="6")
    assert not any(f"positions-{part}" in key for key in shown_charts(app))


def test_lengths_measured_in_another_precision_do_not_stand_under_this_one(opened, monkeypatch):
    held = measured(state.bundled_run(), far=paper.far())
    there = shown_charts(opened("positions", held, step="6"))
    monkeypatch.setattr(study.state, "dtype", lambda: "bfloat16")
    gone = there - shown_charts(opened("positions", held, step="6"))
    assert {name for name in ("loss", "kept") if any(f"positions-{name}" in key for key in gone)} == {"loss", "kept"}


class Known:
    """Stands for a model that is there: asking for it costs nothing."""


@pytest.mark.parametrize("part", ["rotation", "table", "wrong"])
def test_what_failed_can_be_tried_again(opened, monkeypatch, part):
    held = measured(state.bundled_run())
    now = held["kv_jobs"][part]._state
    failed = State("over", now.wish, failed=True, by_itself=True)
    asked: list[tuple] = []
    app = opened("positions", jobs(held, **{part: failed}), step="6")
    assert not app.exception
    monkeypatch.setattr(Job, "start", lambda self, wish, *, by_itself=False: asked.append((wish, by_itself)))
    app.button(key=f"{part}_again").click().run()
    assert asked == [(now.wish, True)]


@pytest.mark.parametrize("part", ["rotation", "table", "wrong"])
def test_what_nobody_saw_begins_again_once_somebody_looks(opened, monkeypatch, part):
    held = measured(state.bundled_run())
    now = held["kv_jobs"][part]._state
    asked: list = []
    monkeypatch.setattr(experiment.warm, "loaded", lambda *_: Known())
    monkeypatch.setattr(Job, "start", lambda self, wish, *, by_itself=False: asked.append(wish))
    left = State("over", now.wish, stopped=True, unseen=True, by_itself=True)
    opened("positions", jobs(held, **{part: left}), step="6")
    assert now.wish in asked
    asked.clear()
    opened("positions", jobs(held, **{part: dataclasses.replace(left, again=MOST_AGAIN)}), step="6")
    assert now.wish not in asked  # nor for ever
