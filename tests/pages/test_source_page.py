"""Source walk: the installed lines on the page, links and buttons that stand at one, and the ten lines, run."""

from __future__ import annotations

import inspect
import json

import pytest
from factories import PLAYER_CASES, make_run
from reading import components, outside_code, text_of
from streamlit.testing.v1 import AppTest

from kvviz.core import lessons, storage
from kvviz.features.source import parts as walk
from kvviz.ui import kit

pytestmark = pytest.mark.usefixtures("no_models")

PROMPT = storage.bundled().prompt


def data_of(app: AppTest) -> dict:
    """What the walk's component was given."""
    (found,) = [e.proto for e in app.main if getattr(e.proto, "component_name", "") == "kvviz_walk"]
    return json.loads(found.json)


def way_of(data: dict) -> dict:
    return data["walks"]["decode" if data["place"]["step"] else "prefill"]


def said_at(data: dict) -> list[dict]:
    """What is said at each station of the place."""
    return data["places"]["{step},{layer},{head}".format(**data["place"])]


def lit(data: dict) -> str:
    station = way_of(data)["stations"][data["place"]["station"]]
    listing = way_of(data)["listings"][station["listing"]]
    return listing["lines"][station["lit"][0] - listing["first"]].strip()


def proofs_of(app: AppTest, language: str) -> list[str]:
    sign = f"**✓ {lessons.text(language, 'shell', 'verdict_holds')}**"
    return [m.value for m in app.main.markdown if m.value.startswith(sign)]


def check(app: AppTest, language: str = "en") -> None:
    """The recorded run at pass 3: 9 prompt tokens, so 11 positions stored and the twelfth on its way."""
    from transformers.cache_utils import DynamicLayer

    assert not app.exception
    assert [e.value for e in app.error] == []
    assert [t.value for t in app.title] == [lessons.text(language, "source", "title")]
    data = data_of(app)
    assert lit(data) == "self.keys = torch.cat([self.keys, key_states], dim=-2)"
    assert lit(data) in inspect.getsource(DynamicLayer.update)
    rows = said_at(data)[data["place"]["station"]]["rows"]
    assert ["self.keys", "(1, 8, 11, 32)", "k"] in rows and ["self.keys =", "(1, 8, 12, 32)", "k"] in rows
    assert ["self.keys.nbytes =", "12,288 bytes", ""] in rows  # 8 heads · 12 positions · 32 · 4 bytes
    assert len(proofs_of(app, language)) == 4
    shown = text_of(app)
    assert "147,456" in shown  # 2 · 6 layers of those
    assert "{" not in outside_code(shown), "a placeholder was left unfilled"
    assert set(data["places"]) == {"3,3,2", "2,3,2", "4,3,2", "3,2,2", "3,4,2", "3,3,1", "3,3,3"}
    for station in (s for place in data["places"].values() for s in place):
        assert "{" not in "".join(text for text, _ in station["says"])


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_the_page_shows_the_installed_line_and_its_values(opened, language):
    check(opened("source", lang=language, step="3", layer="3", head="2", station="append_k"), language)


@pytest.mark.parametrize("part", ["stage", "follow"])
def test_a_page_without_its_body_fails_that_test(opened, monkeypatch, part):
    monkeypatch.setattr(walk, part, lambda *_, **__: None)
    app = opened("source", step="3", station="append_k")
    with pytest.raises((AssertionError, ValueError)):
        check(app)


def test_the_walk_begins_with_the_loop(opened):
    data = data_of(opened("source", step="0"))
    assert lit(data) == "outputs = self._prefill("
    assert data["place"]["station"] == 0 and data["last"] == 71


def test_a_link_names_the_line_and_copy_link_holds_it(opened):
    app = opened("source", step="5", station="attend")
    assert lit(data_of(app)).startswith("attn_output, attn_weights = attention_interface(")
    (link,) = [c.value for c in app.code if "?" in c.value and "lang=" in c.value]
    assert "step=5" in link and "station=attend" in link


def test_a_link_to_no_such_line_says_so(opened):
    app = opened("source", station="nowhere")
    assert any("nowhere" in i.value for i in app.info)
    assert data_of(app)["place"]["station"] == 0


@pytest.mark.parametrize(
    ("button", "line", "stored"),
    [
        ("cut", 'next_sequence_length = 1 if model_kwargs["use_cache"] else None', "11"),
        ("append", "self.keys = torch.cat([self.keys, key_states], dim=-2)", "11"),
        ("prefill", "self.keys = torch.cat([self.keys, key_states], dim=-2)", "0"),
    ],
)
def test_try_this_stands_at_the_line(opened, button, line, stored):
    app = opened("source", step="7")
    before = data_of(app)["move"]
    app.button(key=f"try-source-{button}").click().run()
    data = data_of(app)
    assert lit(data) == line
    assert data["move"] != before  # the browser goes there
    titles = [s["title"] for s in way_of(data)["stations"]]
    model = said_at(data)[titles.index(lessons.text("en", "source", "title_model"))]
    assert [text for name, text, _ in model["rows"] if "get_seq_length" in name] == [stored]


def test_a_learners_text_stays_literal(opened):
    run = make_run(**PLAYER_CASES["markup"])
    app = opened("source", state={"kv_opened": run}, step="3")
    said = [piece for s in said_at(data_of(app)) for piece in s["says"]]
    assert ["{token}", "code"] in said or ["<i>", "code"] in said or ["[q](w)", "code"] in said
    assert "<i>" not in outside_code(text_of(app))


def test_another_kind_of_model_shows_what_is_shared_and_says_so(opened):
    run = make_run(architecture="MistralForCausalLM", positions="rotary")
    app = opened("source", state={"kv_opened": run}, step="2")
    assert [s["depth"] for s in way_of(data_of(app))["stations"]] == [0, 0, 5, 6, 6, 6, 0, 0]
    captions = [c.value for c in app.main.caption]
    assert lessons.text("en", "source", "note_unknown") in captions
    assert not app.exception and "MistralForCausalLM" in text_of(app)


def test_a_run_made_with_another_version_is_named(opened):
    import dataclasses

    run = make_run()
    run = dataclasses.replace(run, machine=dataclasses.replace(run.machine, transformers="4.99.9"))
    app = opened("source", state={"kv_opened": run})
    assert any("4.99.9" in c.value for c in app.main.caption)


def test_without_transformers_the_page_says_so(opened, monkeypatch):
    from kvviz.features.source.record import installed as source

    monkeypatch.setattr(source, "package", lambda: None)
    app = opened("source")
    assert lessons.text("en", "source", "note_none") in [c.value for c in app.main.caption]
    assert "kvviz_walk" not in components(app) and not app.exception


def ten_lines(app: AppTest) -> str:
    (found,) = [c.value for c in app.main.code if "one_pass" in c.value]
    return found


@pytest.mark.parametrize("language", lessons.LANGUAGES)
@pytest.mark.parametrize("step", [0, 4])
@pytest.mark.parametrize("model", ["story-gpt2", "story-llama"])
def test_the_ten_lines_give_the_engines_logits(opened, model, step, language):
    """What is on the page, run as it stands, against the engine's own pass at this step."""
    import torch

    from kvviz.engine import Session, cache_api, load
    from kvviz.engine import feed as passes

    loaded = load(model, device="cpu", dtype="float32")
    run = Session(loaded, PROMPT, compare=False).advance(5)
    app = opened("source", state={"kv_opened": run}, step=str(step), lang=language)
    scope: dict = {}
    exec(ten_lines(app), scope)
    cache = cache_api.new_cache()
    done = passes.run_pass(loaded, [int(i) for i in run.prompt_ids], 0, cache, listen=False)
    for record in run.steps[1 : step + 1]:
        done = passes.run_pass(loaded, [int(i) for i in record.ids], record.length_before, cache, listen=False)
    assert scope["logits"].shape == done.logits.shape
    assert (scope["logits"] - done.logits).abs().max() < 1e-3
    assert int(scope["logits"].argmax()) == run.steps[step].chosen
    assert scope["K"][0].shape[1] == run.steps[step].length_after
    assert torch.allclose(scope["K"][-1], cache_api.layer(cache, run.model.layers - 1)[0][0], atol=1e-3)


def test_the_ten_lines_are_ten(opened):
    text = ten_lines(opened("source", step="3"))
    body = text.split("def one_pass(ids, start):\n")[1].split("\n\n")[0]
    assert len(body.splitlines()) == 10


def test_the_proof_of_a_missing_line_fails_on_screen(opened, monkeypatch, tmp_path):
    import shutil

    from kvviz.features.source.record import installed as source

    root = tmp_path / "transformers"
    for file in (source.UTILS, source.CACHE, source.GPT2):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.package() / file, root / file)
    (root / source.CACHE).write_text("class DynamicCache: pass\n", encoding="utf-8")
    monkeypatch.setattr(source, "package", lambda: root)
    app = opened("source", step="3")
    assert any("16 of 20" in m.value and "✗" in m.value for m in app.main.markdown)
    assert any("DynamicLayer.update: append_k" in c.value for c in app.main.caption)
    assert kit.SIGNS["fails"] == "✗"
