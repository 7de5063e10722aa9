"""The figures of memory show the bytes that were counted or worked out, and nothing that does not fit as if it did."""

from __future__ import annotations

import dataclasses
import json

import plotly.io
import pytest
from factories import make_run

from kvviz.core import lessons
from kvviz.features.memory.figure import architectures, capacity, sizes
from kvviz.features.memory.record.architectures import FORMATS, Architecture
from kvviz.features.memory.record.gpus import GPUS
from kvviz.features.memory.record.presets import PRESETS
from kvviz.features.memory.record.sizes import Budget, Wanted, fit, of_run

HALF, GIB = FORMATS["half"], 2**30
WORDS = {k.removeprefix("axis_"): v for k, v in lessons.sections("en", "memory").items() if k.startswith("axis_")}
DRAWN = {"words": WORDS, "dark": False}
LLAMA = Wanted("key", PRESETS["llama-3-8b"], 8_192, 1, HALF, HALF)


def noted(figure) -> list[str]:
    return [a.text for a in figure.layout.annotations]


def test_a_run_s_parts_are_its_own_bytes():
    """6 layers, 2 of 8 heads, D = 8, P = 9 and 8 tokens: 16 positions · 2 · 6 · 2 · 8 · 4 bytes = 12,288."""
    run = make_run(6, 8, 2, head_dim=8, P=9, N=8, name="story-llama")
    held = of_run(run)
    assert (held.counted, held.formula, held.positions) == (12_288, 12_288, 16)
    table = sizes.parts_table(held, words=WORDS)
    assert table["bytes"][1:3] == [6_144, 6_144]
    assert table["bytes"][0] == run.model.weight_bytes
    assert table["how known"] == ["counted", "counted", "counted", "formula"]
    values = sizes.parts_values(held)
    assert (values["formula"], values["token"], values["tensors"]) == ("12,288", "768", "12")
    full, now = sizes.parts(held, **DRAWN).data
    assert full.marker.pattern.shape == "/" and now.marker.color[1:3] == ("#e69f00", "#009e73")
    assert [c.split(" · ")[-1] for c in now.customdata[1:3]] == ["6,144 bytes", "6,144 bytes"]


def test_a_count_that_differs_from_the_formula_fails():
    held = dataclasses.replace(of_run(make_run(P=4, N=3)), counted=1)
    assert held.checks[0].verdict == "fails"
    assert of_run(make_run(P=4, N=3)).checks[0].verdict == "holds"


def test_curves_pass_through_the_worked_example():
    drawn = sizes.growth(LLAMA, by="dtype", **DRAWN)
    lines = {t.name: t for t in drawn.data}
    at = list(lines["bf16 / fp16"].x).index(8_192)
    assert lines["bf16 / fp16"].y[at] == 1.0 and lines["fp8"].y[at] == 0.5  # GiB
    assert lines["int8, g64"].y[at] == pytest.approx(8.5 / 16)
    assert drawn.layout.yaxis.title.text == "K and V, GiB"
    assert (drawn.data[-1].x[0], drawn.data[-1].y[0]) == (8_192, 1.0)
    batches = sizes.growth(dataclasses.replace(LLAMA, batch=8), by="batch", **DRAWN)
    assert next(t for t in batches.data if t.name == "batch 8").y[at] == 8.0


def test_lengths_past_the_model_s_own_are_marked():
    drawn = sizes.growth(LLAMA, by="dtype", **DRAWN)
    assert drawn.layout.shapes[0].x0 == 8_192 and "past its own length, 8,192" in noted(drawn)
    table = sizes.growth_table(LLAMA, words=WORDS, by="dtype")
    past = dict(zip(table["tokens (T)"], table["longer than the model was made for"], strict=True))
    assert past[8_192] == "" and past[16_384] == "yes"
    unknown = dataclasses.replace(LLAMA, model=Architecture("x", 2, 2, 2, 4))
    assert not sizes.growth(unknown, by="batch", **DRAWN).layout.shapes


def test_a_window_makes_the_curve_flat():
    mistral = dataclasses.replace(LLAMA, model=PRESETS["mistral-7b"], positions=32_768)
    table = sizes.growth_table(mistral, words=WORDS, by="dtype")
    found = dict(zip(table["tokens (T)"], table["bf16 / fp16, bytes"], strict=True))
    assert found[4_096] == found[32_768] == 512 * 2**20
    assert dict(zip(table["tokens (T)"], table["no window, bytes"], strict=True))[32_768] == 4 * GIB


def test_one_length_on_all_models():
    models = list(PRESETS.values())
    table = architectures.carried_table(dataclasses.replace(LLAMA, positions=2_048), words=WORDS, models=models)
    found = dict(zip(table["model"], table["bytes"], strict=True))
    assert found["Llama-2-7B"] == GIB and found["DeepSeek-V2"] == 69_120 * 2_048
    assert table["bytes"] == sorted(table["bytes"])
    assert all(s.startswith(("https://", "kvviz/")) and "(" in s for s in table["source"])
    past = dict(zip(table["model"], table["longer than the model was made for"], strict=True))
    assert past["GPT-2 XL"] == "yes" and past["GPT-3 175B"] == ""
    drawn = architectures.carried(dataclasses.replace(LLAMA, positions=2_048), models=models, **DRAWN)
    k, k_past, v, v_past, latent, sample = drawn.data
    assert [t.name for t in drawn.data] == ["K", "K", "V", "V", "MLA vector", "longer than the model was made for"]
    assert [t.showlegend for t in drawn.data[:5]] == [True, False, True, False, True]
    assert len(k.y) == len(v.y) == 12 and len(k_past.y) == len(v_past.y) == 6 and len(latent.y) == 2  # DeepSeek-V2, V3
    at = list(k.y).index(table["model"].index("Llama-2-7B"))
    assert k.x[at] == v.x[at] and k.customdata[at] == "1.00 GiB · 1,073,741,824 bytes"
    assert k_past.marker.pattern.shape == v_past.marker.pattern.shape == sample.marker.pattern.shape == "/"
    assert {table["model"][y] for y in k_past.y} == {
        "GPT-2 small",
        "GPT-2 medium",
        "GPT-2 large",
        "GPT-2 XL",
        "story-gpt2",
        "story-llama",
    }


def test_kinds_of_attention_side_by_side():
    table = architectures.kinds_table(LLAMA, words=WORDS)
    assert table["values a layer and token"] == [8_192, 2_048, 256, 576]
    assert table["bytes"] == [4 * GIB, GIB, GIB // 8, 32 * 576 * 2 * 8_192]
    assert table["its own"] == ["", "yes", "", ""]
    names = [kind for kind, *_ in architectures.kinds_of(PRESETS["gpt2"])]
    assert names == ["mha", "gqa", "mqa", "mla"]
    assert [own for *_, own in architectures.kinds_of(PRESETS["deepseek-v3"])] == [False, False, False, True]
    assert [kind for kind, *_ in architectures.kinds_of(Architecture("one", 1, 1, 1, 8))] == ["mha", "mla"]
    k, _, v, _, latent = architectures.kinds(LLAMA, **DRAWN).data
    assert (k.x[0] + v.x[0], list(k.y), latent.name, list(latent.y)) == (1.0, [1], "MLA vector", [3])


def test_what_fits_by_hand():
    """24 GiB less 16,060,522,496 bytes are 9,709,281,280: 9 times 1 GiB, 74,075 times 131,072 bytes."""
    found = fit(LLAMA, GPUS["rtx-4090"])
    assert found.left == 24 * GIB - 16_060_522_496 == 9_709_281_280
    assert (found.batch, found.positions, found.fits) == (9, 74_075, True)
    assert found.read_ms == pytest.approx((16_060_522_496 + GIB) / 1.008e12 * 1_000)
    big = dataclasses.replace(LLAMA, model=PRESETS["llama-3-70b"])
    none = fit(big, GPUS["h100"])  # 141 GB of weights
    assert (none.batch, none.positions, none.fits) == (0, 0, False) and none.left < 0
    assert fit(dataclasses.replace(big, gpus=2), GPUS["h100"]).left > 0
    assert fit(dataclasses.replace(LLAMA, model=PRESETS["mixtral-8x7b"]), GPUS["h200"]).read_ms is None
    assert fit(dataclasses.replace(LLAMA, model=Architecture("x", 1, 1, 1, 1)), GPUS["h100"]) is None


def test_what_does_not_fit_is_hatched_and_said():
    big = dataclasses.replace(LLAMA, batch=16)
    drawn = capacity.fits(big, gpus=list(GPUS.values()), chosen=GPUS["l4"], **DRAWN)
    beyond = drawn.data[-1]
    assert [t.name for t in drawn.data[:3]] == ["weights", "K", "V"]
    assert beyond.name == "does not fit" and beyond.marker.pattern.shape == "/"
    at = list(beyond.y).index(list(GPUS).index("l4"))
    assert beyond.x[at] == pytest.approx(16_060_522_496 / GIB + 16 - 24)
    assert "6.958 GiB lacking" in noted(drawn)  # 14.9575 + 16 − 24
    assert list(GPUS).index("h100") not in beyond.y
    assert capacity.fits_values(big, GPUS["l4"])["case"] == "cache"
    assert capacity.fits_values(LLAMA, GPUS["l4"])["case"] == "fits"
    assert capacity.fits_values(LLAMA, GPUS["t4"])["case"] == "fits"  # 16 GiB hold 14.96 and 1.00, nothing else
    table = capacity.fits_table(big, words=WORDS, gpus=list(GPUS.values()), chosen=GPUS["l4"])
    assert table["largest batch"][list(GPUS).index("l4")] == 9


def test_a_largest_length_past_the_model_s_own_is_marked():
    """80 GiB less 16,060,522,496 bytes hold 532,827 times 131,072; it was made for 8,192. At batch 70: 7,611."""
    assert (80 * GIB - 16_060_522_496) // 131_072 == 532_827
    values = capacity.fits_values(LLAMA, GPUS["h100"])
    assert (values["length"], values["length_past"]) == ("532,827", True)
    many = dataclasses.replace(LLAMA, batch=70)
    assert (80 * GIB - 16_060_522_496) // (70 * 131_072) == 7_611
    assert not capacity.fits_values(many, GPUS["h100"])["length_past"]
    table = capacity.fits_table(many, words=WORDS, gpus=[GPUS["h100"], GPUS["h200"]], chosen=GPUS["h100"])
    assert table["longer than the model was made for"] == ["", "yes"]  # an H200 has room for 14,750


def test_a_window_lets_any_length_fit():
    mistral = dataclasses.replace(LLAMA, model=PRESETS["mistral-7b"])
    assert capacity.fits_values(mistral, GPUS["h100"])["length"] == "≥ 10,000,000"


def test_replicated_heads_are_said():
    split = dataclasses.replace(LLAMA, model=PRESETS["llama-3-70b"], gpus=16)
    values = capacity.fits_values(split, GPUS["h100"])
    assert (values["a_gpu"], values["replicas"]) == ("1", "2")


def budget(**given: float) -> Budget:
    usual = {"memory": 24.0, "utilisation": 0.9, "weights": 14.0, "activations": 1.5, "other": 0.3, "block": 16}
    return Budget(**({"key": "k", "token_bytes": 131_072, "longest": 8_192, "request": 800} | usual | given))


@pytest.mark.parametrize(
    ("given", "case", "room"),
    [
        ({}, "starts", "5.80"),  # E11
        ({"utilisation": 0.7}, "starts", "1.00"),
        ({"utilisation": 0.6}, "negative", "−1.40"),
        ({"utilisation": 0.659, "longest": 16}, "starts", "0.02"),
        ({"utilisation": 0.6584}, "none", "0.00"),
        ({"weights": 0.0, "activations": 18.36, "other": 0.35, "longest": 29_000}, "refused", "2.89"),  # E08
    ],
)
def test_a_budget_starts_or_says_why_not(given, case, room):
    values = capacity.budget_values(budget(**given))
    assert (values["case"], values["room"]) == (case, room)


def test_a_budget_from_a_real_log():
    """E08: about 1,951 blocks (its log, from unrounded figures: 1,952 = 31,232 tokens), 1.56 requests of 20,000."""
    found = budget(memory=23.58, weights=0.0, activations=17.06, other=0.35, longest=20_000)
    assert found.blocks == pytest.approx(1_951, abs=1)
    assert capacity.budget_values(found)["whole"] == "1.56"
    long = budget(weights=0.0, activations=18.36, other=0.35, longest=29_000)
    assert long.tokens == pytest.approx(23_648, abs=16) and capacity.budget_values(long)["whole"] == "0.82"


def test_a_peak_that_includes_the_weights_is_called_so():
    """A log gives 17.06 GiB for both: neither the bar nor the table calls them activations, or the weights 0."""
    log, apart = budget(weights=0.0, activations=17.06), budget()
    table = capacity.budget_table(log, words=WORDS)
    found = dict(zip(table["part"], table["GiB"], strict=True))
    assert found["peak, weights included"] == 17.06
    assert not {"weights", "peak activations"} & found.keys()
    assert [t.name for t in capacity.budget(log, **DRAWN).data][:2] == ["peak, weights included", "other"]
    assert [t.name for t in capacity.budget(apart, **DRAWN).data][:3] == ["weights", "peak activations", "other"]


def test_a_budget_s_bar_shows_what_is_reserved_and_no_negative_part():
    fine, short = (capacity.budget(budget(utilisation=u), **DRAWN) for u in (0.9, 0.6))
    assert [t.name for t in fine.data][3:] == ["K", "V", "not the engine's"]
    assert sum(t.x[0] for t in fine.data) == pytest.approx(24)
    assert len(short.data) == 3 and all(t.x[0] >= 0 for t in short.data)
    assert "allowed: 14.40 GiB" in noted(short)


def test_names_are_literal_and_figures_can_be_sent():
    odd = dataclasses.replace(PRESETS["gpt2"], name="<b>$x$</b>")
    wanted = dataclasses.replace(LLAMA, model=odd)
    drawn = architectures.carried(wanted, models=[odd, PRESETS["gpt3"]], **DRAWN)
    assert drawn.layout.yaxis.ticktext[0] == "&lt;b&gt;&#36;x&#36;&lt;/b&gt;"
    for figure in (drawn, sizes.growth(wanted, by="dtype", **DRAWN), architectures.kinds(wanted, **DRAWN)):
        assert "NaN" not in json.dumps(json.loads(plotly.io.to_json(figure, validate=True)))
