"""Roofline as Streamlit runs it: with no model, with passes by formula, while it measures, and with what was found."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from factories import make_run
from reading import components, outside_code, text_of
from still import Still

from kvviz.core import lessons
from kvviz.core.refusal import Refusal
from kvviz.features.ladder.record.ladder import Rates
from kvviz.features.race.record import Lane, Spread
from kvviz.features.roofline import parts as roofline_page
from kvviz.features.roofline.parts.wishes import RooflineWish
from kvviz.features.roofline.record import Point, Roofline, Skipped
from kvviz.ui import experiment, kit
from kvviz.ui.job import State

pytestmark = pytest.mark.usefixtures("no_models")

PLAN = RooflineWish("story-gpt2", "float32", 256)
TIMED = dataclasses.replace(PLAN, timed=True)
KNOWN = Rates(Spread(10e9, 9.5e9, 10.5e9, 7), Spread(100e9, 95e9, 105e9, 7))


@pytest.fixture(scope="module")
def planned() -> Roofline:
    """By formula, on the model itself."""
    from kvviz.engine import load
    from kvviz.features.roofline import measure as roofline

    (found,) = roofline.plan(load("story-gpt2", device="cpu"), 256)
    return dataclasses.replace(found, rates=None)


def timed(planned: Roofline, passes: int = 16, ms: float = 5.0) -> Roofline:
    """Every pass took `ms`: a clock that a test can count on."""
    points = tuple(Point(s, Spread(ms, ms * 0.9, ms * 1.1, passes), KNOWN) for s in planned.steps)
    return dataclasses.replace(
        planned, rates=KNOWN, points=points, state="done", rounds=passes, planned=16, key="timed"
    )


def over(record: Roofline, wish: RooflineWish = TIMED, **more) -> State:
    return State(**{"stage": "over", "wish": wish, "found": record, "answers": wish, "complete": True} | more)


def page(opened, state: State, *, race: Still | None = None, **query: str):
    still = Still(state)
    jobs = {"roofline": still} | ({"race": race} if race else {})
    return opened("roofline", state={"kv_jobs": jobs}, **query), still


def check(app, language: str, *known: str, charts: int) -> str:
    assert not app.exception
    assert [e.value for e in app.error] == []
    assert [e.value for e in app.title] == [lessons.text(language, "roofline", "title")]
    shown = text_of(app)
    assert [k for k in known if k not in shown] == []
    assert components(app).count("kvviz_chart") == charts
    assert "{" not in outside_code(shown), "a placeholder was left unfilled"
    return shown


# 4 · 5,767,168 bytes of matrices and 257 · 12,288 of K and V; 2 · 5,767,168 operations and 6,144 a key.
STEP = ("26.2 MB", "13.1 MFLOP", "0.500", "23,068,672 + 1 · 257 · 12,288 = 26,226,688", "= 13,113,344")
# 100 over 10; 26.2 MB at 10 GB/s; 5 ms in parts of 2.62; 26.2 MB in 5 ms of 10 GB/s; 13.1 MFLOP of 500 in 5 ms
MEASURED = ("10.0 GB/s (9.50 – 10.5)", "100 GFLOP/s (95.0 – 105)", "10.0 FLOP", "2.62 ms", "1.91", "52.5 %", "2.6 %")


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_without_a_model_the_page_says_what_to_do(opened, language):
    app = opened("roofline", lang=language)
    check(app, language, lessons.text(language, "roofline", "waiting"), charts=0)


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_before_measuring_the_formula_places_the_passes(opened, planned, language):
    app, still = page(opened, over(planned, PLAN), lang=language)
    shown = check(app, language, *STEP, charts=1)
    assert "10.0 GB/s" not in shown and still.asked == []


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_what_was_measured_is_read_off(opened, planned, language):
    app, _ = page(opened, over(timed(planned)), lang=language)
    check(app, language, *STEP, *MEASURED, charts=2)


@pytest.mark.parametrize(("home", "part"), [(experiment, "live"), (roofline_page, "below"), (kit, "proofs")])
def test_without_its_body_that_test_fails(opened, planned, monkeypatch, home, part):
    monkeypatch.setattr(home, part, lambda *_, **__: None)
    app, _ = page(opened, over(timed(planned)))
    with pytest.raises(AssertionError):
        shown = check(app, "en", *STEP, *MEASURED, charts=2)
        assert "**✓ holds** prefill: 2.82 GFLOP by formula" in shown


def test_bytes_decide_for_a_decode_step_and_the_sentence_follows_the_batch(opened, planned):
    app, _ = page(opened, over(timed(planned)))
    assert "ridge is at **10.0**. The bytes decide." in text_of(app)
    app.button_group(key="roofline_B").select("64").run()
    # 64 · 13,113,344 operations for 23,068,672 + 64 · 3,158,016 bytes
    assert "at batch 64 moves 225 MB for 839 MFLOP: **3.73 FLOP a byte**" in text_of(app)
    slow = Rates(Spread(100e9, 99e9, 101e9, 7), Spread(30e9, 30e9, 30e9, 7))
    app, _ = page(opened, over(dataclasses.replace(planned, rates=slow, planned=16), TIMED))
    assert "ridge is at **0.300**. The arithmetic decides." in text_of(app)


def test_marks_above_the_roof_are_said_to_be(opened, planned):
    app, _ = page(opened, over(timed(planned, ms=20.0)))
    (said,) = [m.value for m in app.main.markdown if "above the roof" in m.value and "✗" in m.value]
    # Prefill: 2,820,669,440 operations in 20 ms are 141 GFLOP/s, of a roof of 105 GFLOP/s at its upper quartile.
    assert "prefill (batch 1) reaches 134 % of it" in said


def test_few_passes_are_not_compared(opened, planned):
    app, _ = page(opened, over(timed(planned, passes=3), stage="over", complete=False, stopped=True))
    shown = text_of(app)
    assert lessons.text("en", "roofline", "batches_measuring") in shown and "3 of 16 rounds" in shown
    assert "times the time for" not in shown and "MBU 52.5" not in shown


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_a_stopped_measurement_leaves_the_earlier_complete_one(opened, planned, language):
    """16 rounds of 5 ms, then one that is stopped after 3 rounds of 50 ms: MBU stays 52.5 %, as in MEASURED."""
    few = dataclasses.replace(timed(planned, passes=3, ms=50.0), state="running")  # Stop takes it as it is
    stopped = over(few, complete=False, stopped=True)
    said = lessons.text(language, "shell", "experiment_stopped")
    alone, _ = page(opened, stopped, lang=language)
    assert said in text_of(alone) and "52.5 %" not in text_of(alone)
    app, still = page(opened, over(timed(planned)), lang=language)
    assert said not in text_of(app)
    still._state = stopped
    app.run()
    shown = check(app, language, *STEP, *MEASURED, said, charts=2)
    assert lessons.text(language, "roofline", "kept", done=3, planned=16) in shown
    still._state = over(few, dataclasses.replace(TIMED, dtype="bfloat16"), complete=False, stopped=True)
    app.button_group(key="roofline_dtype").select("bfloat16").run()
    assert lessons.text(language, "roofline", "rounds", rounds=3, planned=16, dtype="float32") in text_of(app)
    assert "52.5 %" not in text_of(app)  # that was in another precision


def test_measure_stop_and_the_link(opened, planned):
    app, still = page(opened, over(planned, PLAN), roofline_P="256", roofline_B="8")
    app.button(key="roofline_start").click().run()
    assert still.asked == [TIMED]
    (link,) = [c.value for c in app.code if "?" in c.value and "lang=" in c.value]
    assert "roofline_P=256&roofline_dtype=float32&roofline_B=8" in link
    running = over(timed(planned, passes=2), stage="running", complete=False)
    app, still = page(opened, running)
    assert app.button(key="roofline_start").disabled
    app.button(key="roofline_stop").click().run()
    assert still.stopped == 1


def test_tries_put_the_page_in_their_state(opened, planned):
    app, still = page(opened, over(timed(planned)))
    app.button(key="try-roofline-batch").click().run()
    assert still.asked == []  # that has been measured
    assert app.session_state.roofline_B == "64"
    app.button(key="try-roofline-short").click().run()
    app.button(key="try-roofline-half").click().run()
    assert still.asked == [
        dataclasses.replace(TIMED, length=1),
        dataclasses.replace(TIMED, dtype="bfloat16"),
    ]
    assert app.number_input(key="roofline_P").value == 256


def test_what_is_about_other_positions_is_not_shown(opened, planned):
    app, _ = page(opened, over(timed(planned)), roofline_P="17")
    assert not app.exception
    assert lessons.text("en", "roofline", "waiting") in text_of(app) and "26.2 MB" not in text_of(app)


def test_links_and_refusals_are_sentences(opened, planned):
    app = opened("roofline", roofline_P="5000", roofline_dtype="int4")
    assert any("roofline_P" in i.value and "1,023" in i.value for i in app.info)
    assert any("int4" in i.value and "bfloat16" in i.value for i in app.info)
    refusal = Refusal("no_memory_for_rates", needed="0.75 GiB", there="0.10 GiB", device="cpu")
    app, _ = page(opened, over(planned, refusal=refusal))
    assert any("0.75 GiB" in w.value for w in app.warning) and "26.2 MB" in text_of(app)
    app, _ = page(opened, over(dataclasses.replace(timed(planned), skipped=(Skipped("decode", 64, 2, 1),))))
    assert "Left out, since memory has no room for them: batch 64." in text_of(app)


def test_a_run_whose_model_is_not_here_says_so(opened):
    app = opened("roofline", state={"kv_opened": make_run(name="no-such-model", N=3)})
    assert not app.exception and not app.error
    assert "no-such-model" in text_of(app)


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_the_last_race_shows_how_far_its_lanes_are(opened, planned, language):
    """9 + 21 tokens, the middle at position 19: 23,068,672 + 19 · 12,288 bytes at 10 GB/s are 2.33 ms."""
    lane = Lane(np.full((1, 21), 7.0), *(np.zeros(21, np.int64),) * 3)
    race = SimpleNamespace(model=planned.model, P=9, n=21, passes=20, cached=lane, uncached=lane, state="done")
    racer = Still(State("over", found=race))
    app, _ = page(opened, over(timed(planned)), race=racer, lang=language)
    check(app, language, "7.00 ms", "2.33 ms", "3.00", charts=2)
