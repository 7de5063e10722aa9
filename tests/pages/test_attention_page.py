"""Attention and masks as Streamlit runs it: its numbers, its answers, its links, with and without a model."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest
from factories import PLAYER_CASES, make_run
from paper_masks import a_gallery
from reading import components, held, outside_code, text_of

from kvviz.core import Check, lessons
from kvviz.features.attention import parts as attention_page
from kvviz.features.attention.parts import study
from kvviz.features.attention.parts.heads import view
from kvviz.features.attention.record.heads import Induction
from kvviz.features.attention.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import links, state
from kvviz.ui.job import Job, State
from kvviz.ui.steps import Followed

pytestmark = pytest.mark.usefixtures("no_models")


def measured(run, *, future: float = 0.0) -> dict:
    """The session's experiments as they stand once both are over."""
    m = run.model
    score = np.full((m.layers, m.heads), 0.01)
    score[-1, -1] = 0.138
    checks = (
        Check("rows", "holds", 1e-7, 1e-4),
        Check("future", "holds" if future == 0 else "fails", future, 0.0),
        Check("kernel", "holds", 1e-6, 1e-4),
    )
    found = {
        "heads": (study.measure_heads, study.wishes(run)[0], (Induction(m.name, score, 0.03, 24, 8, 0), checks)),
        "masks": (study.make_masks, study.wishes(run)[1], a_gallery()),
    }
    held = {}
    for name, (work, wish, what) in found.items():
        held[name] = Job(work)
        held[name]._state = State("over", wish, what, wish, True)
    return {"kv_jobs": held}


def check(app, language: str) -> None:
    """What must be there of the run that ships, at step 6: layer 3, head 2 looks back at the first `·and`."""
    assert not app.exception
    assert [e.value for e in app.error] == []
    assert [t.value for t in app.title] == [lessons.text(language, "attention", "title")]
    shown = text_of(app)
    assert "65.2 %" in shown and "(1, 8, 1, 15)" in shown
    assert components(app).count("kvviz_heads") == 1
    assert components(app).count("kvviz_chart") == 5  # the stage, three groups of masks, lines
    assert "{" not in outside_code(shown), "a placeholder was left unfilled"


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_the_page_shows_its_numbers(opened, language):
    check(opened("attention", measured(state.bundled_run()), lang=language, step="6"), language)


@pytest.mark.parametrize("part", ["hero", "gallery"])
def test_without_its_body_that_test_fails(opened, monkeypatch, part):
    monkeypatch.setattr(attention_page, part, lambda *_: None)
    with pytest.raises(AssertionError):
        check(opened("attention", measured(state.bundled_run()), step="6"), "en")


def test_the_strongest_heads_are_named_or_denied(opened):
    shown = text_of(opened("attention", measured(state.bundled_run()), step="6"))
    # Of 15 tokens, layer 2 head 2 gives the previous one most; nobody gives itself more than 40 %.
    assert "**Previous token**: layer 2, head 2 gives it 53.2 %" in shown
    assert "**Itself**: none above 40 %" in shown
    assert "**Induction**: none above 40 %" in shown and "layer 5, head 7: 13.8 %" in shown


def test_what_a_first_time_reader_asks_is_answered(opened):
    app = opened("attention", step="6")
    asked = [e.label for e in app.expander]
    assert "What does the mask look like with a cache?" in asked
    assert "Does prefill use the cache?" in asked
    shown = text_of(app)
    assert "(1, 8, 1, 15) with batch and heads in front" in shown


def test_the_proofs_are_those_of_both_experiments(opened):
    shown = text_of(opened("attention", measured(state.bundled_run()), step="6"))
    assert shown.count("holds") >= 7
    assert "max |Δlogit| 2e-5" in shown
    assert "fails" not in shown


def test_a_mask_that_is_missing_is_said_first(opened):
    app = opened("attention", measured(state.bundled_run(), future=0.25), step="6")
    shown = text_of(app)
    assert "got a weight of 0.25: the mask is missing" in shown
    assert shown.index("✗ fails") < shown.index("✓ holds")


def test_without_a_model_the_run_is_still_there(opened):
    app = opened("attention", step="6")
    shown = text_of(app)
    assert "65.2 %" in shown
    assert "not measured yet" in shown
    assert components(app).count("kvviz_chart") == 2


@pytest.mark.parametrize("case", ["one", "shared", "window", "thousand", "markup"])
def test_other_runs_can_be_looked_at(opened, case):
    run = make_run(**PLAYER_CASES[case])
    app = opened("attention", {"kv_opened": run} | measured(run))
    assert not app.exception and [e.value for e in app.error] == []
    assert "{" not in outside_code(text_of(app)).replace("`{token}`", "")


def test_one_query_can_be_chosen(opened):
    chosen = {"attention_rows": "one", "attention_query": 4, "attention_order": "previous"}
    app = opened("attention", chosen, step="6")
    shown = text_of(app)
    assert "the query at position 4: ` ·the `" in shown
    assert app.selectbox(key="attention_order").value == "previous"


def test_a_link_opens_one_query_and_then_the_widgets_speak(opened):
    app = opened("attention", step="6", attention_rows="one", attention_query="4")
    assert "the query at position 4:" in text_of(app)
    app.number_input(key="attention_query").set_value(2).run()
    assert "the query at position 2:" in text_of(app)


def test_a_link_s_own_settings_are_read():
    query = links.query("attention_rows=one&attention_query=4&attention_stage=scaled&attention_order=entropy")
    assert links.own(SPEC.fields, query) == {
        "attention_rows": "one", "attention_query": 4, "attention_stage": "scaled", "attention_order": "entropy"
    }  # fmt: skip


def test_a_setting_that_can_not_be_is_left_out_with_a_note(opened):
    app = opened("attention", attention_stage="<b>", attention_query="-3")
    said = " ".join(i.value for i in app.info)
    assert "attention_stage" in said and "attention_query" in said
    assert not app.exception


def test_the_step_and_a_try_move_the_shared_place(opened):
    app = opened("attention", step="6")
    (slider,) = app.main.slider
    slider.set_value(9).run()
    assert app.session_state.kv_view.step == 9
    (again,) = app.main.slider
    assert (again.key, again.value) == (slider.key, 9)  # the same one: its handle stays in the learner's hand
    app.button(key="try-attention-previous").click().run()
    here: View = app.session_state.kv_view
    assert (here.step, here.layer, here.head) == (9, 2, 2)


def test_a_pick_in_the_browser_moves_the_shared_place_once(opened, monkeypatch):
    """The place that the browser chose is not sent back to it: the picture need not travel again. Only what shows the
    head is drawn anew, its own picture first; another step moves the rest as well."""
    from kvviz.features.attention.parts import top

    app = opened("attention", step="6")
    before = app.session_state.kv_heads_asked
    assert (before.layer, before.head) == (3, 2)
    monkeypatch.setattr(top.st, "session_state", app.session_state)
    monkeypatch.setattr(top.request, "whole_page", lambda: False)
    reruns = []
    monkeypatch.setattr(top.st, "rerun", reruns.append)
    top._clicked(6, 5, 7, 1)
    assert reruns == [["picked", "said", "head", "below", "share"]]
    assert app.session_state.kv_view.layer == 5
    top._clicked(7, 5, 7, 1)
    assert reruns[1:] == [["hero", "tries", "below", "share"]]  # the hero draws picture, answer and head itself
    held = top._asked(app.session_state.kv_view)
    assert (held.times, held.layer, held.head, held.own) == (before.times, 3, 2, (5, 7))
    # Drawn anew, the page may have a new overview: it is told the place; one that is there already stays where it is.
    monkeypatch.setattr(top.request, "whole_page", lambda: True)
    again = top._asked(app.session_state.kv_view)
    assert (again.times, again.heard, again.layer, again.head) == (before.times, 1, 5, 7)


def test_a_place_that_the_growing_run_has_come_to_is_followed_below(opened, monkeypatch):
    """A link asks for a step of a run that still grows: the picture looks for it, and takes the rest with it. Where a
    move of the learner's led the picture, the rest comes in the same run."""
    from kvviz.features.attention.parts import top

    app = opened("attention", step="6")
    assert held(app, Followed).view.step == 6
    reruns = []
    monkeypatch.setattr(top.st, "columns", lambda *_: [nullcontext()] * 2)
    monkeypatch.setattr(top.st, "rerun", lambda *scope: reruns.append(scope))  # keys only in callbacks
    monkeypatch.setattr(top.st, "session_state", app.session_state)
    monkeypatch.setattr(top.request, "whole_page", lambda: False)
    for name in ("_controls", "_overview"):
        monkeypatch.setattr(top, name, lambda *_: None)
    monkeypatch.setattr(top, "fragment", lambda *_, **__: lambda: None)
    app.session_state.kv_hero_drawn = (state.current_run().key, False)
    top._hero()
    assert reruns == []
    state.told(View(7, 3, 2))
    top._hero()
    assert reruns == [()]
    top.go(8, 3, 2)
    assert reruns[1:] == [(["hero", "tries", "below", "share"],)]
    top._hero()
    assert len(reruns) == 2


def test_what_a_slider_of_another_step_says_moves_nothing(opened, monkeypatch):
    """A key moved the step; the browser still tells the value of the slider it showed before."""
    from kvviz.features.attention.parts import top

    app = opened("attention", step="6")
    (old,) = app.main.slider
    monkeypatch.setattr(top.st, "session_state", app.session_state)
    monkeypatch.setattr(top.request, "whole_page", lambda: True)
    top._clicked(7, 3, 2, 1)
    top._slider(7)
    top._stepped(old.key)
    assert app.session_state.kv_view.step == 7
    new = top._slider(7)
    assert new != old.key
    app.session_state[new] = 8
    top._stepped(new)
    assert app.session_state.kv_view.step == 8


def test_tiles_travel_once(opened, monkeypatch):
    """A pick sends no tile again; a browser that says it lacks them gets them."""
    from kvviz.features.attention.parts import top

    app = opened("attention", step="6")
    run, here = state.bundled_run(), app.session_state.kv_view
    n, _ = view.side(run, 6)
    sent: list[int] = []
    monkeypatch.setattr(top.st, "session_state", app.session_state)
    monkeypatch.setattr(top.request, "whole_page", lambda: False)
    monkeypatch.setattr(top, "heads", lambda data, **_: sent.append(len(data)))
    monkeypatch.setattr(top, "study", lambda run: (None, ()))
    monkeypatch.setattr(top, "_view", lambda *a, **k: b"" if not a[-1] else top._tiles(run, 6))
    top._overview(run, here)
    top._overview(run, dataclasses.replace(here, head=5))
    top._send_whole()
    top._overview(run, here)
    assert sent == [0, 0, 48 * n * n]


@pytest.mark.parametrize("page", ["decode", "prefill"])
def test_a_head_picked_here_is_in_view_on_the_pages_with_a_player(opened, page):
    """There and back: the player that was left takes the place that was chosen meanwhile, not the one it had."""
    app = opened(page, step="6", layer="3", head="2")
    assert (app.session_state.kv_view.layer, app.session_state.kv_view.head) == (3, 2)
    app.switch_page("pages/attention.py").run()
    here: View = app.session_state.kv_view
    app.session_state.kv_view = dataclasses.replace(here, layer=1, head=5)  # as a pick of the browser's does
    app.switch_page(f"pages/{page}.py").run()
    app.run()
    here = app.session_state.kv_view
    assert (here.step, here.layer, here.head) == (6, 1, 5)
    assert not app.exception
