"""Figures of the positions page: what is drawn where, by numbers that follow from the record."""

from __future__ import annotations

import json
import math

import numpy as np
import paper_positions as paper
import pytest
from factories import make_run
from figure_json import array, trace

from kvviz.core import lessons
from kvviz.features.positions.figure import lengths, positions
from kvviz.theory.positions import alibi_slopes

WORDS = {
    name.removeprefix("axis_"): body
    for name, body in lessons.sections("en", "positions").items()
    if name.startswith("axis_")
}
RUN = make_run(2, 8, head_dim=4, P=5, N=3)


def figure(made) -> dict:
    return json.loads(made.to_json())


def test_the_table_and_how_alike_its_rows_are():
    found = paper.table()
    values, alike = figure(positions.table(RUN, found, 7, words=WORDS, dark=False))["data"]
    np.testing.assert_array_equal(array(values["z"]), found.values)
    rows = np.arange(64)
    np.testing.assert_allclose(array(alike["z"]), np.cos((rows[:, None] - rows[None]) / 10), atol=1e-6)
    said = positions.table_values(found, 7)
    assert said["next_alike"] == f"{math.cos(0.1):.3f}"
    assert (said["far"], said["far_alike"]) == ("39", f"{math.cos(3.2):.3f}")
    assert (said["n"], said["last"]) == ("64", "63")
    table = positions.table_table(RUN, found, 7, words=WORDS)
    assert table[WORDS["position"]] == [0, 3, 5, 6, 7, 8, 9, 11, 23, 63]
    assert table[WORDS["cosine"]][4] == 1.0


def test_a_long_table_is_thinned_and_says_where_its_rows_are():
    found = paper.table(n=1024)
    values, alike = figure(positions.table(RUN, found, 7, words=WORDS, dark=False))["data"]
    assert array(values["z"]).shape == (128, 8) and values["dy"] == 8
    assert array(alike["z"])[2, 0] == pytest.approx(math.cos(1.6), abs=1e-5)
    assert len(json.dumps(figure(positions.table(RUN, found, 7, words=WORDS, dark=False)))) < 500_000


def test_a_pair_before_and_after_its_turn():
    found = paper.rotation()
    drawn = figure(positions.rotation(RUN, found, 5, 1, 3, words=WORDS, dark=False))
    before = trace(drawn, f"K {WORDS['before']}")
    after = trace(drawn, f"K {WORDS['after']}")
    a, b = found.k[1, 3, 1], found.k[1, 3, 5]  # head 5 of 8 reads KV head 1 of 2; pair 1 is dimensions 1 and 5
    assert (before["x"][1], before["y"][1]) == (pytest.approx(a), pytest.approx(b))
    angle = 3 * 10_000 ** (-2 / 8)
    assert after["x"][1] == pytest.approx(a * math.cos(angle) - b * math.sin(angle), rel=1e-5)
    assert after["y"][1] == pytest.approx(b * math.cos(angle) + a * math.sin(angle), rel=1e-5)
    elsewhere = trace(drawn, WORDS["k_elsewhere"])
    assert len(elsewhere["x"]) == 6
    assert (elsewhere["x"][3], elsewhere["y"][3]) == (pytest.approx(after["x"][1]), pytest.approx(after["y"][1]))
    assert all(
        math.hypot(x, y) == pytest.approx(math.hypot(a, b)) for x, y in zip(elsewhere["x"], elsewhere["y"], strict=True)
    )
    waves = next(t for t in drawn["data"] if t.get("xaxis") == "x2")
    assert waves["y"] == pytest.approx([2 * math.pi * 10_000 ** (i / 4) for i in range(4)])
    said = positions.rotation_values(found, 5, 1, 3)
    assert said["degrees"] == f"{math.degrees(angle):.1f}"
    assert (said["other"], said["slow_pairs"], said["key_token"]) == (5, 2, "⏎")


def test_the_curve_goes_through_the_models_own_score():
    found = paper.rotation()
    drawn = figure(positions.distance(RUN, found, 2, 1, words=WORDS, dark=False))
    own, curve = trace(drawn, WORDS["by_model"]), trace(drawn, WORDS["by_formula"])
    product = float(found.q_rotated[2, 5] @ found.k_rotated[0, 1]) / math.sqrt(8)
    assert own["x"] == [4] and own["y"][0] == pytest.approx(product, rel=1e-5)
    assert curve["y"][4] == pytest.approx(product, abs=1e-5)
    assert len(curve["y"]) == positions.FAR + 1
    assert curve["y"][0] == pytest.approx(float(found.q[2, 5] @ found.k[0, 1]) / math.sqrt(8), abs=1e-5)


def test_alibi_is_its_formula():
    drawn = figure(positions.alibi(RUN, 2, 4, words=WORDS, dark=False))
    z = array(next(t for t in drawn["data"] if t["type"] == "heatmap")["z"])
    expected = [[0, None, None, None], [-1, 0, None, None], [-2, -1, 0, None], [-3, -2, -1, 0]]
    for row, wanted in zip(z, expected, strict=True):
        for value, steps in zip(row, wanted, strict=True):
            assert np.isnan(value) if steps is None else value == pytest.approx(steps / 8)  # head 2 of 8: 1/8
    hatched = trace(drawn, WORDS["ahead"])
    assert hatched["fillpattern"]["shape"] == "/" and sum(x is None for x in hatched["x"]) == 6
    assert positions.alibi_table(RUN, 2, 4, words=WORDS)[WORDS["slope"]] == pytest.approx(alibi_slopes(8), rel=1e-3)


def test_misplaced_bars_and_what_is_said():
    found = paper.misplaced()
    bars = figure(lengths.misplaced(RUN, found, 2, words=WORDS, dark=False))["data"][0]
    assert list(array(bars["y"])) == [0.25, 0.0, 1.5]
    assert bars["marker"]["pattern"]["shape"] == ["/", "/", ""]  # the chosen one, not by colour alone
    assert lengths.misplaced_values(found, 0)["case"] == "zero"
    assert lengths.misplaced_values(found, -1)["case"] == "same"
    off = lengths.misplaced_values(found, 2)
    assert (off["case"], off["fed"], off["d"], off["first"]) == ("differs", 11, "1.5", 1)
    assert (off["right_text"], off["wrong_text"]) == (" whox", " who\n")


def test_losses_in_blocks():
    found = paper.far()
    drawn = figure(lengths.loss(RUN, found, words=WORDS, dark=False))
    lines = {t["name"]: list(array(t["y"])) for t in drawn["data"]}
    assert lines == {
        "story-llama, plain": [3, 4], "story-llama, linear × 4": [5, 5],
        "story-llama, YaRN × 4": [3.5, 3.5], "story-gpt2, learned table": [2.5, 2.5],
    }  # fmt: skip
    assert list(drawn["data"][0]["x"]) == [32, 96]
    assert {s["x0"] for s in drawn["layout"]["shapes"]} == {64, 1024}
    values = lengths.loss_values(found)
    assert (values["plain_in"], values["plain_past"], values["yarn_past"]) == ("3.00", "4.00", "3.50")
    assert values["learned_in"] == "2.50"
    assert lengths.loss_table(RUN, found, words=WORDS)[WORDS["position"]] == ["0 – 63", "64 – 127"]


def test_what_a_cache_can_and_can_not_follow():
    drawn = figure(lengths.kept(RUN, paper.far(), words=WORDS, dark=False))
    assert drawn["layout"]["yaxis"]["type"] == "log"
    assert list(array(trace(drawn, WORDS["scaling_dynamic"])["y"])) == [1e-6, 0.25, 4.5]
    assert drawn["layout"]["shapes"][0]["y0"] == 1e-3
    verdicts = {k.scaling: k.check.verdict for k in paper.far().kept}
    assert verdicts == {"none": "holds", "linear": "holds", "yarn": "holds", "dynamic": "fails"}
