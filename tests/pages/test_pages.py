"""Home, Prefill and Decode: each shows its title, its numbers and its player, in both languages (C22)."""

from __future__ import annotations

import dataclasses
import re

import pytest
from factories import PLAYER_CASES, make_run
from reading import code_of, components, outside_code, text_of, text_so_far

from kvviz.core import lessons
from kvviz.ui import charts, stage, state

pytestmark = pytest.mark.usefixtures("no_models")

# The run that ships: 9 prompt tokens, 6 layers, 8 heads of 32, fp32. 2 · 6 · 8 · 32 · 4 = 12,288 bytes a token.
KNOWN = {
    "home": "12,288",
    "prefill": "110,592",  # 9 positions
    "decode": "(1, 8, 12, 32)",  # K and V after step 3
}
FIGURES = {"home": 1, "prefill": 2, "decode": 5}


def check(app, name: str, language: str) -> None:
    assert not app.exception
    assert [e.value for e in app.error] == []
    assert [t.value for t in app.title] == [lessons.text(language, name, "title")]
    shown = text_of(app)
    assert KNOWN[name] in shown
    found = components(app)
    assert found.count("kvviz_player") == 1
    assert found.count("kvviz_chart") == FIGURES[name]
    assert found.count("kvviz_address") == 1
    assert "story-gpt2" in app.caption[-1].value or "story-gpt2" in shown
    assert "{" not in outside_code(shown), "a placeholder was left unfilled"


@pytest.mark.parametrize("language", lessons.LANGUAGES)
@pytest.mark.parametrize("name", list(KNOWN))
def test_a_page_shows_its_numbers(opened, name, language):
    app = opened(name, lang=language, step="3")
    check(app, name, language)


@pytest.mark.parametrize("name", list(KNOWN))
def test_a_page_without_its_body_fails_that_test(opened, monkeypatch, name):
    monkeypatch.setattr(stage, "stage", lambda *_: None)
    with pytest.raises(AssertionError):
        check(opened(name, step="3"), name, "en")


def test_bytes_and_rows_of_the_step_are_on_decode(opened):
    shown = text_of(opened("decode", step="3"))
    assert "147,456" in shown  # 12 positions · 12,288 bytes
    assert "12 rows" in shown and "42" in shown  # rows without a cache: this pass, and 9 + 10 + 11 + 12 so far


def test_running_text_follows_the_step(opened):
    app = opened("decode", step="3")
    assert text_so_far(app) == "Dorothy and the Tin Woodman and the Tin"
    assert text_so_far(opened("prefill", step="0")) == "Dorothy and the Tin Woodman and"


def test_decode_begins_with_the_first_pass_of_one_token(opened):
    """Who comes from a page that stood at prefill sees decode's first pass, not prefill again."""
    assert text_so_far(opened("decode", step="0")) == "Dorothy and the Tin Woodman and the"


@pytest.mark.parametrize("name", list(KNOWN))
def test_markup_in_tokens_stays_text(opened, name):
    run = make_run(**PLAYER_CASES["markup"])
    app = opened(name, state={"kv_opened": run}, step="2")
    assert not app.exception and not app.error
    raw = b"".join(run.pieces[int(i)] for i in run.ids[: run.P + 3]).decode()
    assert text_so_far(app) == raw
    interpreted = outside_code(text_of(app))
    for markup in ("<b>", "<script>", "$x$", ":smile:", "[z](w)", "*y*", "<i>"):
        assert markup not in interpreted


@pytest.mark.parametrize("case", ["one", "shared", "alone"])
@pytest.mark.parametrize("name", list(KNOWN))
def test_runs_of_other_sizes_are_shown(opened, name, case):
    app = opened(name, state={"kv_opened": make_run(**PLAYER_CASES[case])})
    assert not app.exception
    assert [e.value for e in app.error] == []
    assert "kvviz_player" in components(app)


@pytest.mark.parametrize("name", list(KNOWN))
def test_a_prompt_of_one_token_is_told_in_the_singular(opened, name):
    run = make_run(prompt=[b" the"], P=1, N=4)
    for step in ("0", "1"):
        shown = text_of(opened(name, state={"kv_opened": run}, step=step))
        many = r"(?<!− )\b[01] (token|key|position|row|quer|prediction|pass|cell|step|thread|repeat)(ie|e)?s\b"
        assert not re.search(many, shown), re.search(many, shown)
        assert not re.search(r"\b0 of (the )?0\b", shown)
    assert name != "prefill" or "The prompt is a single token" in shown


def test_tables_of_repeated_tokens_have_columns_of_their_own(opened):
    run = make_run(prompt=[b" the", b" the", b" the", b" cat"], P=4, N=3)
    for name in KNOWN:
        app = opened(name, state={"kv_opened": run}, step="2")
        assert not app.exception and not app.error
        for table in app.dataframe:
            assert table.value.columns.is_unique


def test_shapes_with_grouped_heads_name_the_kv_heads(opened):
    run = make_run(**PLAYER_CASES["shared"])  # 8 query heads on 2 KV heads of 32, P = 9
    shown = text_of(opened("decode", state={"kv_opened": run}, step="3"))
    assert "(1, 8, 1, 32)" in shown and "(1, 2, 12, 32)" in shown


def test_end_of_text_is_marked_and_the_run_goes_on(opened):
    run = make_run(P=3, N=6)
    steps = tuple(dataclasses.replace(s, is_end=s.index in (2, 4)) for s in run.steps)
    run = dataclasses.replace(run, steps=steps)
    seen = text_of(opened("decode", state={"kv_opened": run}, step="5"))
    assert lessons.text("en", "shell", "text_end", times="2", step="2") in seen
    assert "end-of-text" not in text_of(opened("decode", state={"kv_opened": run}, step="1")).split("Questions")[0]


def test_a_part_that_breaks_says_so_and_the_rest_stays(opened, monkeypatch, caplog):
    monkeypatch.setattr(charts, "draw", lambda *_, **__: 1 / 0)
    app = opened("decode", step="3")
    assert not app.exception
    assert [e.value for e in app.error] == [lessons.text("en", "shell", "broken")]
    assert "ZeroDivisionError" in caplog.text
    assert "ZeroDivisionError" not in text_of(app)
    assert "kvviz_player" in components(app)


def test_a_recorded_file_is_labelled_with_model_machine_versions_and_date(opened):
    run = dataclasses.replace(make_run(), source="<b>my</b> run.npz", created="2026-01-02T03:04:05", repeats=5)
    label = opened("home", state={"kv_opened": run}).main.caption[0].value
    for part in (
        "random",
        "Test CPU",
        "threads: 2",
        "2.13.0",
        "5.24.0",
        "2026-01-02",
        "5 repeats",
        "` <b>my</b> run.npz `",
    ):
        assert part in label


def test_try_this_moves_the_player_and_shows_the_recorded_run(opened):
    own = make_run(**PLAYER_CASES["alone"])
    app = opened("decode", state={"kv_opened": own})
    app.button("try-decode-open_head").click().run()
    assert not app.exception and not app.error
    assert state.View(6, 3, 2, "head") == app.session_state.kv_view
    assert app.session_state.kv_opened.source == "bundled"


def test_try_this_on_a_short_run_takes_what_there_is(opened):
    app = opened("decode", state={"kv_opened": make_run(**PLAYER_CASES["one"])})
    app.button("try-decode-one_query").click().run()
    assert not app.exception and not app.error
    assert (app.session_state.kv_view.step, app.session_state.kv_view.substep) == (0, 3)
    assert [i.value for i in app.info] == []


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_a_run_of_its_prefill_alone_is_not_told_of_steps_it_lacks(opened, language):
    """Nine prompt tokens, one pass: nothing to play, no row of one query, no earlier queries."""
    words = {"en": ("Each step adds", "single row", "The last step", "earlier quer", "Press →", "Step 0."), "zh": ()}
    words |= {"zh": ("按空格", "只有一行，K", "最后一步", "前面的查询", "按 → 看", "第 0 步。")}
    once, long = make_run(layers=4, heads=4, P=9, N=1), make_run(layers=4, heads=4, P=9, N=6)

    def said(run) -> str:
        pages = [opened(name, state={"kv_opened": run}, lang=language, step="0") for name in ("home", "decode")]
        return "".join(text_of(app) for app in pages)

    found, there = said(once), said(long)
    assert [w for w in words[language] if w in found] == []
    assert len([w for w in words[language] if w in there]) >= 3  # what a longer run is told
    assert "(1, 4, 9, 32)" in found


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_code_says_how_scores_are_scaled_and_what_is_hidden(opened, language):
    run, wide = make_run(**PLAYER_CASES["window"]), make_run(**PLAYER_CASES["six"])
    masks = {n: lessons.text(language, "decode", f"mask_{n}", window="8") for n in ("none", "window", "later_window")}
    cases = (
        ("decode", run, "0", "/ sqrt(32)", "scores[..., :-8] = -inf ", masks["window"]),
        ("decode", run, "2", "/ sqrt(32)", masks["none"]),  # layer 2 sees all
        ("decode", wide, "0", "/ sqrt(32)", masks["none"]),
        ("prefill", run, "0", "masked_fill(later | too_old, -inf)", masks["later_window"]),
        ("prefill", wide, "0", "masked_fill(later, -inf)", lessons.text(language, "decode", "mask_later")),
    )
    for name, shown, layer, *wanted in cases:
        app = opened(name, state={"kv_opened": shown}, lang=language, step="6", layer=layer)
        assert not app.exception and not app.error
        code = code_of(app)
        assert [w for w in wanted if w not in code] == []
    code = code_of(opened("decode", state={"kv_opened": run}, lang=language, step="6", layer="2"))
    assert "-inf" not in code
    lines = code_of(opened("decode", state={"kv_opened": run}, lang=language, step="6", layer="0")).splitlines()
    assert len({line.index("#") for line in lines}) == 1, "comments do not stand below each other"
    own = dataclasses.replace(wide, model=dataclasses.replace(wide.model, attention_scale=1 / 12), key="own")
    code = code_of(opened("decode", state={"kv_opened": own}, lang=language, step="6"))
    assert ".mT * 0.0833 " in code and "sqrt" not in code


def test_code_at_prefill_is_prefill_s(opened):
    """Decode's page at a run that has its prefill alone: all rows go in, and there is a mask."""
    code = code_of(opened("decode", state={"kv_opened": make_run(**PLAYER_CASES["one"])}))
    assert "masked_fill" in code and "one row" not in code


def test_a_window_is_told_apart_from_what_is_stored(opened):
    run = make_run(**PLAYER_CASES["window"])  # 12 + 6 stored at step 6; layers 2 and 5 see all
    narrow, full = (text_of(opened("decode", state={"kv_opened": run}, step="6", layer=n)) for n in ("0", "2"))
    assert "All 18 are stored, but layer 0 has a window" in narrow and "No mask is needed" not in narrow
    assert "the query sees the newest 8. Hatched: 10, stored" in narrow
    assert "layer 0 looks at the newest 8 keys, however long" in narrow
    assert "No mask is needed" in full and "window" not in full
    narrow, full = (text_of(opened("prefill", state={"kv_opened": run}, layer=n)) for n in ("0", "2"))
    assert "66 would look ahead, and 10 lie outside the window of layer 0" in narrow
    assert "all but the newest 8" in narrow
    assert "the causal mask leaves 78; the other 66" in full and "window" not in full
