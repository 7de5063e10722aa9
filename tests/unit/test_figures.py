"""Figures as JSON: what is drawn where, worked out by hand from runs whose numbers are known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from factories import make_run
from figure_json import WORDS, array, drawn, ends, trace

from kvviz.core import Sampling, lessons
from kvviz.figures import memory, predictions, text, time, work
from kvviz.figures.palette import DARK, LIGHT
from kvviz.figures.plots import PLOTS

SIX = [b"Hey", b",", b" are", b" you", b" conscious", b"?"]
MARKUP = [b"<b>bold</b>", b"<script>alert(1)</script>", b"$x$", b"&amp;", b"%{x}", b"*y*", b":smile:"]


# Predictions


def test_prefill_predicts_p_times_and_keeps_one():
    run = make_run(2, 2, P=6, N=2, prompt=SIX)
    figure = drawn("predictions", run)
    thrown, kept = figure["data"]
    assert (thrown["name"], kept["name"]) == (WORDS["thrown_away"], WORDS["kept"])
    assert array(thrown["x"]).tolist() == [0, 1, 2, 3, 4]
    assert array(kept["x"]).tolist() == [5]
    assert np.allclose(array(kept["y"]), run.steps[0].prediction_probs[5:])
    assert thrown["marker"]["pattern"]["shape"] == "x"
    table = predictions.predictions_table(run, 0, 0, 0, words=WORDS)
    assert table[WORDS["use"]] == [WORDS["thrown_away"]] * 5 + [WORDS["kept"]]
    assert table[WORDS["prompt_goes_on"]] == [",", "·are", "·you", "·conscious", "?", ""]
    values = predictions.predictions_values(run, 0, 0, 0)
    assert (values["P"], values["thrown"], values["case"]) == ("6", "5", "many")


def test_a_prompt_of_one_token_throws_nothing_away():
    """B13: ' ' and '\\n' are prompts of one token."""
    run = make_run(2, 2, N=1, prompt=[b"\n"])
    assert predictions.predictions_values(run, 0, 0, 0)["case"] == "one"
    for name in PLOTS:
        assert drawn(name, run)["data"] or name == "time"


def test_a_run_without_predictions_says_so():
    run = make_run(2, 2, P=3, N=1)
    bare = dataclasses.replace(run, steps=(dataclasses.replace(run.steps[0], predictions=None),))
    with pytest.raises(ValueError, match="no predictions"):
        PLOTS["predictions"].figure(bare, 0, 0, 0, words=WORDS, dark=False)


def test_candidates_outline_the_chosen_one_even_far_down():
    run = make_run(2, 2, P=3, N=2)
    step = run.steps[1]
    greedy = drawn("candidates", run, 1)["data"][0]
    assert greedy["marker"]["line"]["width"][0] == 2
    other = next(i for i in range(20) if i not in step.top_ids)
    drawn_far = dataclasses.replace(step, chosen=other, chosen_prob=0.001)
    sampled = dataclasses.replace(run, steps=(run.steps[0], drawn_far), sampling=Sampling(temperature=1.0))
    figure = drawn("candidates", sampled, 1)["data"][0]
    assert len(array(figure["x"])) == len(step.top_ids) + 1
    assert figure["marker"]["line"]["width"] == [0] * len(step.top_ids) + [2]
    assert predictions.candidates_values(sampled, 1, 0, 0)["case"] == "sampled"


# Work, memory, time


def test_rows_of_5_and_20():
    """290 rows against 24."""
    run = make_run(2, 2, P=5, N=20)
    figure = drawn("rows", run, 19)
    kept = array(trace(figure, WORDS["with_cache"])["y"])
    new, again = (array(trace(figure, WORDS[w])["y"]) for w in ("without_new", "recomputed"))
    assert kept.tolist() == [5, *[1] * 19]
    assert again.tolist() == [0, *range(5, 24)]
    assert (kept.sum(), (new + again).sum()) == (24, 290)
    bar = trace(figure, WORDS["recomputed"])
    assert bar["marker"]["pattern"]["shape"] == "/"
    assert array(bar["base"]).tolist() == kept.tolist()  # stacked on the new rows
    values = work.rows_values(run, 19, 0, 0)
    assert (values["total"], values["total_without"], values["times"]) == ("24", "290", "12.1")
    assert (values["rows"], values["rows_without"], values["recomputed"]) == ("1", "24", "23")


@pytest.mark.parametrize(
    ("P", "N", "with_cache", "without"), [(5, 12, 16, 126), (4, 30, 33, 555), (100, 100, 199, 14950)]
)
@pytest.mark.parametrize("compared", [True, False])
def test_totals(P, N, with_cache, without, compared):
    run = make_run(1, 1, head_dim=1, P=P, N=N, compared=compared)
    lines = drawn("rows_total", run, N - 1)
    assert array(trace(lines, WORDS["with_cache"])["y"])[-1] == with_cache
    assert array(trace(lines, WORDS["without_cache"])["y"])[-1] == without
    table = work.rows_table(run, N - 1, 0, 0, words=WORDS)
    assert table[WORDS["total_without_cache"]][-1] == without
    assert sum(table[WORDS["with_cache"]]) == with_cache


def test_stepping_back_moves_no_axis():
    run = make_run(2, 2, P=5, N=20)
    for name in ("rows", "rows_total", "bytes", "time"):
        early, late = (drawn(name, run, s)["layout"] for s in (2, 19))
        assert early["xaxis"] == late["xaxis"]
        assert ends(early["yaxis"]) == ends(late["yaxis"])


def test_bytes_are_counted_and_the_formula_stands_beside_them():
    """A08: 5 + 20 tokens at GPT-2 small's size: 24 × 73,728 = 1,769,472 bytes, not 25 times."""
    run = make_run(12, 12, head_dim=64, P=5, N=20)
    figure = drawn("bytes", run, 19)
    bars = [trace(figure, WORDS[w]) for w in ("k_reused", "k_new", "v_reused", "v_new")]
    last = [int(array(b["customdata"])[-1]) for b in bars]
    assert sum(last) == 1_769_472
    assert last == [23 * 36_864, 36_864, 23 * 36_864, 36_864]
    line = array(trace(figure, WORDS["formula"])["y"])
    assert line[-1] == pytest.approx(1.6875)  # MiB
    assert "MiB" in figure["layout"]["yaxis"]["title"]["text"]
    assert [b["marker"]["line"]["width"] for b in bars] == [0, 2, 0, 2]
    values = memory.bytes_values(run, 19, 0, 0)
    assert (values["bytes"], values["added"], values["product"]) == ("1,769,472", "73,728", "1,769,472")


def test_a_wrong_count_is_drawn_as_counted():
    """The bars never follow the formula: a cache that holds too much stands above the line."""
    run = make_run(2, 2, head_dim=4, P=3, N=2)
    fat = dataclasses.replace(run.steps[1], kv_bytes=10_000)
    wrong = dataclasses.replace(run, steps=(run.steps[0], fat))
    table = memory.bytes_table(wrong, 1, 0, 0, words=WORDS)
    assert table[WORDS["bytes_counted"]] == [2 * 2 * 2 * 4 * 4 * 3, 10_000]
    assert table[WORDS["bytes_formula"]] == [384, 512]
    assert memory.bytes_values(wrong, 1, 0, 0)["product"] == "512"


def test_grouped_heads_hold_less():
    """story-llama's 6 layers, 2 KV heads of 32, fp32: 3,072 bytes a token."""
    run = make_run(6, 8, kv_heads=2, head_dim=32, P=4, N=2)
    assert memory.bytes_values(run, 1, 0, 0)["added"] == "3,072"


def test_no_milliseconds_before_16_decode_steps():
    run = make_run(2, 2, P=5, N=20)
    for step in (0, 1, 15):
        figure = drawn("time", run, step)
        assert [t["marker"]["opacity"] for t in figure["data"]] == [0]
        assert figure["layout"]["annotations"][0]["text"] == f"measuring: {step} of 16 decode steps"
        assert time.time_table(run, step, 0, 0, words=WORDS) == {}
        assert time.time_values(run, step, 0, 0)["case"] == "measuring"
    assert [t["name"] for t in drawn("time", run, 16)["data"] if t.get("name")] == [
        WORDS["with_cache"],
        WORDS["without_cache"],
    ]


def timed(cached: list[float], twin: list[float] | None):
    """A run whose decode steps took these milliseconds."""
    run = make_run(1, 1, head_dim=1, P=2, N=len(cached) + 1, compared=twin is not None)
    steps = [run.steps[0]]
    for i, s in enumerate(run.steps[1:]):
        t = dataclasses.replace(s.twin, ms=twin[i]) if twin else None
        steps.append(dataclasses.replace(s, ms=cached[i], twin=t))
    return dataclasses.replace(run, steps=tuple(steps))


def test_the_running_median_is_over_the_last_16():
    run = timed([float(i) for i in range(1, 19)], [10.0 * i for i in range(1, 19)])
    figure = drawn("time", run, 18)
    line = trace(figure, WORDS["with_cache"])
    assert array(line["x"]).tolist() == [16, 17, 18]
    assert array(line["y"]).tolist() == [8.5, 9.5, 10.5]
    assert array(trace(figure, WORDS["without_cache"])["y"]).tolist() == [85, 95, 105]
    assert time.time_table(run, 18, 0, 0, words=WORDS)[WORDS["ms_without_cache"]] == [85, 95, 105]


@pytest.mark.parametrize(
    ("without", "case", "ratio"), [(8.0, "faster", "2.0"), (4.1, "same", "1.02"), (3.6, "slower", "0.90")]
)
def test_a_measured_ratio_is_shown_as_it_is(without, case, ratio):
    """D06: also when the cache does not pay."""
    values = time.time_values(timed([4.0] * 16, [without] * 16), 16, 0, 0)
    assert (values["case"], values["ratio"]) == (case, ratio)


def test_without_a_twin_one_lane_is_drawn():
    run = timed([4.0] * 17, None)
    assert [t["name"] for t in drawn("time", run, 17)["data"] if t.get("name")] == [WORDS["with_cache"]]
    assert time.time_values(run, 17, 0, 0)["case"] == "alone"


# All of them


def test_a_learners_text_is_literal_in_every_figure():
    """B09, B10: no markup survives in a tick, a hover or a label."""
    run = make_run(2, 2, prompt=MARKUP, chosen=MARKUP, N=len(MARKUP))
    for name in PLOTS:
        figure = drawn(name, run, 3)
        for value in strings(figure):
            bare = value.replace("<br>", "").replace("<extra></extra>", "")
            bare = bare[3:-4] if bare.startswith("<b>") and bare.endswith("</b>") else bare  # a generated token
            assert "<" not in bare and "$" not in bare, (name, value)
            assert "&amp;" not in bare.replace("&amp;amp;", ""), (name, value)
    # `%{x}` would be filled in if it stood in a template; these four name tokens, and none refers to x.
    for name in ("square", "row", "predictions", "candidates"):
        templates = [t.get("hovertemplate") or "" for t in drawn(name, run, 3)["data"]]
        assert any(templates)
        assert all("%{x}" not in t for t in templates)


def strings(value) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [s for v in inner for s in strings(v)]


def test_literal_text():
    assert text.literal("<b>$x$ &amp;") == "&lt;b&gt;&#36;x&#36; &amp;amp;"


@pytest.mark.parametrize("name", PLOTS)
def test_every_figure_keeps_zoom_and_colours(name):
    run = make_run(2, 2, P=5, N=18)
    for dark, p in ((False, LIGHT), (True, DARK)):
        layout = drawn(name, run, 17, dark=dark)["layout"]
        assert layout["uirevision"] == run.key
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == p.background
        assert layout["font"]["color"] == p.text
        assert "range" not in layout["xaxis"] and "range" not in layout["yaxis"]


@pytest.mark.parametrize("name", PLOTS)
def test_every_figure_is_small_at_128_tokens(name):
    """C24: below 2 MB; a square as base64 of float32, its hovers included."""
    run = make_run(2, 2, head_dim=2, P=64, N=65)
    figure = PLOTS[name].figure(run, 64, 0, 0, words=WORDS, dark=False)
    assert len(figure.to_json()) < (600_000 if name == "square" else 60_000)


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_every_sentence_can_be_filled(name, language):
    """A section for each case, with no placeholder that the values lack."""
    runs = [make_run(2, 2, P=5, N=20), make_run(2, 2, P=1, N=20, compared=False), timed([4.0] * 16, [3.0] * 16)]
    for run in runs:
        for step in (0, 1, 16):
            values = PLOTS[name].values(run, step, 1 % run.model.layers, 0)
            for section in (values.get("case", "answer"), "how", "alt"):
                assert lessons.text(language, "figures", f"{name}.{section}", **values)


@pytest.mark.parametrize("name", PLOTS)
def test_tables_have_columns_of_one_length(name):
    run = make_run(2, 2, P=5, N=20)
    for step in (0, 3, 19):
        table = PLOTS[name].table(run, step, 0, 0, words=WORDS)
        assert len({len(column) for column in table.values()}) <= 1
        assert table or name == "time"


def test_ticks_are_thinned_but_keep_the_last():
    run = make_run(1, 1, head_dim=1, P=100, N=1)
    at, texts = text.ticks(run, 100)
    assert at == [*range(0, 96, 4), 99]
    assert len(set(texts)) == len(at) == 25
