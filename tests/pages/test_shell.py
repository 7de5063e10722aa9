"""Sidebar, links and files: what a learner sets stays, what a link says is obeyed or refused in a sentence."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from factories import make_run
from reading import outside_code, text_of, text_so_far
from safetensors.numpy import save_file

from kvviz.core import Sampling, lessons, storage
from kvviz.models import catalog
from kvviz.ui import links, shell, sidebar, state
from kvviz.ui.learner import Learner, Settings


@pytest.fixture
def starts(no_models, monkeypatch):
    """Runs are not made, only asked for: (settings, compare, wanted)."""
    asked = []

    def start(self, settings, *, compare, wanted=None):
        self._settings = settings
        asked.append((settings, compare, wanted))

    monkeypatch.setattr(Learner, "start", start)
    monkeypatch.setattr(Learner, "_lacks", lambda self: False)
    monkeypatch.setattr(Learner, "_wants_ahead", lambda self: False)
    return asked


def s(section: str, language: str = "en", **values: object) -> str:
    return lessons.text(language, "shell", section, **values)


def sidebar_text(app) -> str:
    return "\n".join(c.value for c in app.sidebar.caption)


def told(box: str) -> list[str]:
    """The notes of a box of several, which says so first."""
    first, _, rest = box.partition("\n\n- ")
    assert first == s("notes")
    return rest.split("\n- ")


def test_an_empty_prompt_turns_run_off_and_says_why(opened, starts):
    app = opened("decode")
    assert app.button("run_button").disabled
    assert s("reason_empty") in sidebar_text(app)


@pytest.mark.parametrize("prompt", [" ", "\n", "0", "Hello<|endoftext|>world"])
def test_any_character_is_a_prompt(opened, starts, prompt):
    app = opened("decode")
    app.text_area("prompt").set_value(prompt).run()
    assert not app.button("run_button").disabled
    app.button("run_button").click().run()
    assert starts[-1][0].prompt == prompt


def test_a_trailing_space_is_kept_and_explained(opened, starts):
    app = opened("home")
    app.text_area("prompt").set_value("hello ").run()
    assert s("trailing_space") in sidebar_text(app)
    app.button("run_button").click().run()
    assert starts[-1][0].prompt == "hello "
    app.text_area("prompt").set_value("hello").run()
    assert s("trailing_space") not in sidebar_text(app)


def test_a_text_longer_than_any_model_is_refused_unread(opened, starts):
    app = opened("home")
    app.text_area("prompt").set_value("x" * 20_001).run()
    assert app.button("run_button").disabled
    assert s("reason_text", limit="20,000") in sidebar_text(app)


def test_a_model_that_is_not_on_disk_says_so_and_does_not_run(opened, starts, no_models):
    app = opened("home")
    app.selectbox("model").set_value("gpt2-large").run()
    app.text_area("prompt").set_value("abc").run()
    assert app.button("run_button").disabled
    assert s("reason_model") in sidebar_text(app)
    assert s("facts_not_on_disk", parameters="774.0", positions="1,024") in sidebar_text(app)
    assert "gpt2-large" not in no_models


def test_a_folder_that_the_owner_named_has_its_parameters_counted(opened, starts, monkeypatch, tmp_path):
    """One matrix of 500,000 × 5, and a config of GPT-2's kind: 2,500,000 values."""
    folder = tmp_path / "own"
    folder.mkdir()
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 64}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    save_file({"wte.weight": np.zeros((500_000, 5), "float32")}, folder / "model.safetensors")
    monkeypatch.setattr(catalog, "_folders", {"own": folder})
    shell._entries.clear()
    app = opened("home", model="own")
    assert s("model_facts", parameters="2.5", positions="64") in sidebar_text(app)
    assert "of it 256 MiB as working room" in sidebar_text(app)
    header = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(header[:8] + b"?" + header[9:])
    shell._entries.clear()
    assert s("model_facts_damaged", positions="64") in sidebar_text(opened("home", model="own"))
    shell._entries.clear()


def test_everything_survives_other_pages(opened, starts):
    """C01"""
    app = opened("decode")
    app.text_area("prompt").set_value("abc").run()
    app.selectbox("model").set_value("story-llama").run()
    app.number_input("temperature").set_value(0.7).run()
    app.number_input("top_k").set_value(20).run()
    app.number_input("seed").set_value(7).run()
    app.number_input("new").set_value(5).run()
    app.toggle("compare").set_value(False).run()
    app.session_state.kv_view = state.View(12, 5, 3)
    for other in ("prefill", "race", "home", "decode"):
        app.switch_page(f"pages/{other}.py").run()
        assert not app.exception and not app.error
    assert app.text_area("prompt").value == "abc"
    assert app.selectbox("model").value == "story-llama"
    assert app.number_input("temperature").value == 0.7
    assert app.number_input("top_k").value == 20
    assert app.number_input("seed").value == 7
    assert app.number_input("new").value == 5
    assert app.toggle("compare").value is False
    assert app.session_state.kv_view == state.View(12, 5, 3)
    app.button("run_button").click().run()
    assert starts[-1] == (Settings("story-llama", "abc", Sampling(0.7, 20, 1.0, 7), 5), False, None)


def test_greedy_ignores_the_rest_of_sampling(opened, starts):
    app = opened("home", prompt="abc", top_k="5", seed="9")
    assert starts == [(Settings("story-gpt2", "abc", Sampling(), 24), True, 24)]
    assert not app.exception


def test_a_link_runs_by_itself_as_far_as_its_step(opened, starts):
    opened(prompt="a\nb c", model="story-llama", temperature="0.5", seed="3", step="30", new="8", compare="false")
    assert starts == [(Settings("story-llama", "a\nb c", Sampling(0.5, 0, 1.0, 3), 8), False, 31)]


def test_a_link_starts_its_run_once(opened, starts):
    app = opened(prompt="abc")
    app.run()
    app.switch_page("pages/decode.py").run()
    assert len(starts) == 1


@pytest.mark.parametrize("model", ["/etc/passwd", "../../models", "gpt5", "<b>x</b>"])
def test_a_link_with_a_model_of_its_own_is_refused_and_runs_nothing(opened, starts, model):
    app = opened("decode", model=model, prompt="abc")
    assert [i.value for i in app.info] == [s("note_model", value=lessons.literal(model))]
    assert "<b>" not in outside_code(text_of(app))
    assert starts == []
    assert app.text_area("prompt").value == "abc"
    assert app.session_state["model"] is None


def test_a_link_past_the_end_is_clamped_with_notes(opened, starts):
    app = opened(step="999", layer="17", head="x")
    (box,) = app.info
    assert sorted(told(box.value)) == sorted(
        [
            s("note_step", asked="999", last="71"),
            s("note_layer", asked="17", last="5"),
            s("note_unreadable", name="head", value=lessons.literal("x")),
        ]
    )
    assert (app.session_state.kv_view.step, app.session_state.kv_view.layer) == (71, 5)


def test_a_nonsense_link_gets_one_box(opened, starts):
    """Every name that a link knows, each with a value that means nothing."""
    numbers = ("temperature", "top_k", "top_p", "seed", "new", "step", "layer", "head")
    names = (*numbers, "model", "dtype", "compare", "presenter", "lang")
    app = opened(**{name: f"x{i}" for i, name in enumerate(names)})
    (box,) = app.info
    notes = told(box.value)
    assert len(notes) == len(names)
    assert all(sum(f"` x{i} `" in note for note in notes) == 1 for i in range(len(names)))


@pytest.mark.parametrize(
    ("name", "value", "choices", "used"),
    [
        ("compare", "maybe", "true, false", "true"),  # as it is by default
        ("presenter", "7", "true, false", "false"),
        ("lang", "xx", "English, 中文", "English"),
    ],
)
def test_a_choice_that_a_link_can_not_make_gets_a_note(opened, starts, name, value, choices, used):
    app = opened(**{name: value})
    said = s("note_choice", name=name, value=lessons.literal(value), choices=choices, used=used)
    assert [i.value for i in app.info] == [said]


@pytest.mark.parametrize("name", ["compare", "presenter"])
@pytest.mark.parametrize("value", ["true", "false", "False"])
def test_a_choice_that_a_link_can_make_gets_none(opened, starts, name, value):
    assert len(opened(**{name: value}).info) == 0


@pytest.mark.parametrize("prompt", [{}, {"prompt": "abc"}])
@pytest.mark.parametrize(
    ("model", "note"), [("gpt2-large", "note_not_on_disk"), ("gpt5", "note_model"), ("broken", "note_folder")]
)
def test_a_place_in_a_run_that_is_not_there_is_not_measured_by_another(
    opened, starts, monkeypatch, tmp_path, model, note, prompt
):
    """GPT-2 large has 36 layers of 20 heads, and the recorded run 6 of 8."""
    monkeypatch.setattr(catalog, "_folders", {"broken": tmp_path})
    shell._entries.clear()
    app = opened("decode", model=model, step="90", layer="30", head="15", **prompt)
    assert [i.value for i in app.info] == [s(note, value=lessons.literal(model))]
    assert "Recorded run: story-gpt2" in app.main.caption[0].value
    assert starts == []
    assert app.session_state.kv_view != state.View(71, 5, 7), "clamped all the same"
    shell._entries.clear()


def test_a_place_in_a_run_that_never_comes_is_not_measured_by_another(opened, starts):
    """The run was started and is not there: refused by its worker, say."""
    app = opened("decode", prompt="abc", step="90", layer="30", head="15")
    assert len(starts) == 1
    assert not app.exception
    assert len(app.info) == 0
    assert app.session_state.kv_view != state.View(71, 5, 7)


@pytest.mark.parametrize(
    ("name", "value", "used"),
    [
        ("temperature", "nan", 0.0),
        ("temperature", "hot", 0.0),
        ("top_k", "2.5", 2),
        ("new", "x", 24),
        ("seed", "-3", 0),
    ],
)
def test_settings_that_can_not_be_used_as_they_stand_get_a_note(opened, starts, name, value, used):
    app = opened(**{name: value})
    assert not app.exception and not app.error
    assert [lessons.literal(value) in i.value for i in app.info] == [True]
    assert f"; {used} is used instead" in app.info[0].value
    assert app.number_input(name).value == used


def test_notes_go_with_the_next_run(opened, starts):
    app = opened(step="999")
    assert len(app.info) == 1
    app.text_area("prompt").set_value("abc").run()
    app.button("run_button").click().run()
    assert len(app.info) == 0


@pytest.mark.parametrize(("query", "language"), [("zh", "zh"), ("中文", "zh"), ("English", "en"), ("fr", "en")])
def test_the_language_of_a_link_stays_on_all_pages(opened, starts, query, language):
    app = opened("prefill", lang=query)
    assert app.title[0].value == lessons.text(language, "prefill", "title")
    app.switch_page("pages/home.py").run()
    assert app.title[0].value == lessons.text(language, "home", "title")


def test_choosing_a_language_changes_the_page_and_keeps_the_prompt(opened, starts):
    app = opened("home")
    app.text_area("prompt").set_value("abc").run()
    app.button_group("lang").select("中文").run()
    assert app.title[0].value == lessons.text("zh", "home", "title")
    assert app.text_area("prompt").value == "abc"
    assert app.text_area("prompt").label == s("prompt", "zh")


def test_the_link_of_a_recorded_run_holds_place_and_language(opened, starts):
    app = opened("decode", step="3", layer="2", head="1")
    query = links.query(app.sidebar.code[0].value.partition("?")[2])
    assert query == {"lang": "English", "presenter": "false", "step": "3", "layer": "2", "head": "1"}


def test_a_run_from_a_file_is_shown_everywhere_and_can_be_closed(opened, starts):
    run = make_run(P=4, N=3)
    app = opened("decode")
    app.file_uploader("open_run").upload("mine.npz", storage.dumps(run), "application/octet-stream").run()
    assert not app.exception and not app.error
    assert "mine.npz" in app.main.caption[0].value
    app.switch_page("pages/prefill.py").run()
    assert "mine.npz" in app.main.caption[0].value
    assert s("link_file") in "\n".join(m.value for m in app.sidebar.markdown)
    app.button("close_run").click().run()
    assert "mine.npz" not in app.main.caption[0].value


def test_a_file_that_is_no_recording_is_refused_and_nothing_is_lost(opened, starts):
    app = opened("decode", step="3")
    app.file_uploader("open_run").upload("x.npz", b"not a zip", "application/octet-stream").run()
    assert not app.exception
    assert [w.value for w in app.sidebar.warning] == [lessons.text("en", "refusals", "file_foreign")]
    assert "2026" in app.main.caption[0].value and "story-gpt2" in app.main.caption[0].value


def test_a_file_without_pictures_is_refused(opened, starts):
    from kvviz.engine import Session, load

    bare = Session(load("story-gpt2"), "Once", capture=False, compare=False).advance(2)
    app = opened("decode")
    app.file_uploader("open_run").upload("x.npz", storage.dumps(bare), "application/octet-stream").run()
    assert not app.exception
    assert [w.value for w in app.sidebar.warning] == [lessons.text("en", "refusals", "file_no_capture")]


def test_examples_fill_the_sidebar_and_run(opened, starts):
    app = opened("home")
    app.number_input("temperature").set_value(1.5).run()
    app.button("example-home-0").click().run()
    assert app.text_area("prompt").value == "Dorothy and the Tin Woodman"
    assert app.number_input("temperature").value == 0.0
    assert starts[-1][0] == Settings("story-gpt2", "Dorothy and the Tin Woodman", Sampling(), 16)
    assert app.session_state.kv_view == state.View(6, 3, 2)


def test_a_run_from_prompt_to_page(opened):
    """With the real model: type, press Run, see the run, its link, and one more token."""
    app = opened("decode")
    app.text_area("prompt").set_value("Dorothy and the Tin Woodman").run()
    app.number_input("new").set_value(4).run()
    app.button("run_button").click().run()
    learner: Learner = app.session_state.kv_learner
    end = time.monotonic() + 120
    while learner.progress().busy:
        assert time.monotonic() < end
        time.sleep(0.02)
    app.run()
    assert not app.exception and not app.error
    assert "Your run: story-gpt2 (float32)" in app.main.caption[0].value
    assert text_so_far(app) == "Dorothy and the Tin Woodman and the"  # Decode begins at step 1
    assert s("count", P="9", limit="1,024", n="1,016") in sidebar_text(app)
    query = links.query(app.sidebar.code[0].value.partition("?")[2])
    assert query["prompt"] == "Dorothy and the Tin Woodman"
    assert (query["model"], query["new"], query["step"]) == ("story-gpt2", "4", "1")
    learner.extend(5, wait=60)
    app.run()
    assert len(app.session_state.kv_learner.run.steps) == 5


@pytest.mark.parametrize("page", ["home", "prefill", "decode"])
def test_a_stopped_run_says_how_far_it_came_and_how_to_go_on(opened, starts, page):
    """Three of eight tokens; nothing is said once there are eight, or once Run would start another run."""

    def shown(N: int):
        learner, run = Learner(), make_run(P=4, N=N)
        learner._settings = Settings("story-gpt2", run.prompt, Sampling(), 8)
        learner._run, learner._session, learner._wanted = run, SimpleNamespace(room=99, keep_bytes=10**9, run=run), N
        return opened(page, state={"kv_learner": learner, "prompt": run.prompt})

    sentence = s("stopped_prefill" if page == "prefill" else "stopped", done="3", wanted="8")
    assert "3 of 8 tokens" in sentence and "N goes on" in sentence
    app = shown(3)
    assert sentence in sidebar_text(app)
    app.text_area("prompt").set_value("another text").run()
    assert "Stopped" not in sidebar_text(app) and s("changed") in sidebar_text(app)
    assert "Stopped" not in sidebar_text(shown(8))


def test_what_is_below_the_prompt_stays_where_it_is(opened, starts, monkeypatch):
    """Typing ends with a click elsewhere: a line that came or went above the button would lose that click."""
    monkeypatch.setattr(sidebar, "token_count", lambda entry, prompt: 3)
    app = opened("home")
    empty = [c.value for c in app.sidebar.caption]
    app.text_area("prompt").set_value("abc").run()
    typed = [c.value for c in app.sidebar.caption]
    assert len(empty) == len(typed)
    assert all(empty) and all(typed), "an empty line takes no height"
    assert s("count", P="3", limit="1,024", n="1,022") in typed


def test_a_prompt_that_is_too_long_is_said_once(opened, starts, monkeypatch):
    monkeypatch.setattr(sidebar, "token_count", lambda entry, prompt: 1100)
    app = opened("home", prompt="abc")
    assert sidebar_text(app).count("1,100") == 1
    assert s("reason_long", P="1,100", limit="1,024") in sidebar_text(app)


def test_a_link_of_two_hundred_fields_is_opened_as_none(opened, starts):
    app = opened("decode", **{f"a{i}": "1" for i in range(200)})
    assert not app.exception
    assert starts == []
