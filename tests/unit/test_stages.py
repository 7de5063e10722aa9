"""The stages of one head, its lines, the masks' figure and the overview's bytes, against numbers worked out apart."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from factories import PLAYER_CASES, make_run
from figure_json import array, ends, trace
from paper_masks import a_gallery

from kvviz.core import lessons
from kvviz.features.attention.figure import lines, masks, stages
from kvviz.features.attention.parts.heads import view
from kvviz.figures.cells import cell_numbers
from kvviz.figures.palette import palette

WORDS = {
    name.removeprefix("axis_"): body
    for name, body in lessons.sections("en", "attention").items()
    if name.startswith("axis_")
}


def figure(made) -> dict:
    return json.loads(made.to_json())


@pytest.mark.parametrize("case", ["shared", "window"])
def test_stages_one_score_at_a_time(case):
    """Every number again with a loop: q·k, times the scale, hidden or not, softmax, and the weighted sum of V."""
    run = make_run(**PLAYER_CASES[case])
    m, step, layer, head = run.model, 5, 1, 3
    T, kv = run.P + step, 3 * run.model.kv_heads // run.model.heads
    found = stages.head(run, step, layer, head)
    q = np.concatenate([s.q[layer, head] for s in run.steps[: step + 1]]).astype(np.float64)
    k = np.concatenate([s.k[layer, kv] for s in run.steps[: step + 1]]).astype(np.float64)
    v = np.concatenate([s.v[layer, kv] for s in run.steps[: step + 1]]).astype(np.float64)
    for i in range(T):
        existed = range(run.P) if i < run.P else range(i + 1)
        seen = [j for j in existed if j <= i and j > i - m.visible(layer, i)]
        scaled = {j: float(q[i] @ k[j]) / np.sqrt(m.head_dim) for j in existed}
        e = {j: np.exp(scaled[j]) for j in seen}
        for j in range(T):
            if j in existed:
                assert found.scores[i, j] == pytest.approx(float(q[i] @ k[j]), abs=1e-3)
                assert found.scaled[i, j] == pytest.approx(scaled[j], abs=1e-3)
            else:
                assert np.isnan(found.scores[i, j]) and np.isnan(found.scaled[i, j])
            if j in seen:
                assert found.masked[i, j] == found.scaled[i, j]
                assert found.softmax[i, j] == pytest.approx(e[j] / sum(e.values()), abs=1e-3)
            else:
                assert np.isnan(found.masked[i, j]) and np.isnan(found.softmax[i, j])
        mixed = sum(e[j] / sum(e.values()) * v[j] for j in seen)
        np.testing.assert_allclose(found.values[i], mixed, atol=5e-3)
    assert found.largest_gap < 1e-3


def test_stages_of_a_real_model_agree_with_its_weights(story):
    from kvviz.engine import Session

    run = Session(story, "Dorothy and the Tin Woodman").advance(6)
    gaps = [stages.head(run, 5, layer, head).largest_gap for layer in range(6) for head in range(8)]
    assert max(gaps) < 0.01  # q and K are kept as float16, scores reach 250


@pytest.mark.parametrize("name", stages.STAGES)
def test_a_stage_draws_its_own_numbers(name):
    run = make_run(2, 4, 2, head_dim=8, P=5, N=4)
    drawn = figure(stages.stage(run, 3, 1, 2, name, words=WORDS, dark=False))
    cells = trace(drawn, WORDS[name])
    expected = getattr(stages.head(run, 3, 1, 2), name)
    np.testing.assert_array_equal(array(cells["z"]), expected)
    hatched = trace(drawn, WORDS["hidden"])
    assert hatched["fillpattern"]["shape"] == "/"
    assert (hatched["x"] != [None]) == (name in ("masked", "softmax"))
    assert ends(drawn["layout"]["yaxis"]) == [7.5, -0.5]
    assert len(drawn["layout"]["yaxis2"]["ticktext"]) == 8  # a hover names every query
    table = stages.stage_table(run, 3, 1, 2, name, words=WORDS)
    assert len({len(column) for column in table.values()}) == 1
    assert len(table) == 9  # the query, and 8 keys or 8 dimensions


def boxes_of(hatched: dict) -> set[tuple[float, float, float]]:
    """(left, right, top) of each outline."""
    x, y = array(hatched["x"]), array(hatched["y"])
    return {(x[i], x[i + 1], y[i]) for i in range(0, len(x), 6)}


def test_only_what_the_mask_hides_is_hatched():
    """Row 1 of a prefill of 3 hides key 2; a later row hides nothing; with a window of 8, row 9 hides keys 0 and 1."""
    run = make_run(1, 1, head_dim=4, P=3, N=2)
    hatched = trace(figure(stages.stage(run, 1, 0, 0, "masked", words=WORDS, dark=False)), WORDS["hidden"])
    boxes = boxes_of(hatched)
    assert boxes == {(0.5, 2.5, -0.5), (1.5, 2.5, 0.5)}
    run = make_run(**PLAYER_CASES["window"])
    hatched = trace(figure(stages.stage(run, 0, 0, 0, "masked", words=WORDS, dark=False)), WORDS["hidden"])
    boxes = boxes_of(hatched)
    assert (-0.5, 1.5, 8.5) in boxes and (9.5, 11.5, 8.5) in boxes


def test_one_query_shows_its_stages_and_the_sum_of_its_values():
    run = make_run(2, 4, 2, head_dim=8, P=5, N=4)
    drawn = figure(stages.row_stages(run, 3, 1, 2, 6, words=WORDS, dark=False))
    head = stages.head(run, 3, 1, 2)
    for name in ("scores", "scaled", "masked", "softmax"):
        np.testing.assert_array_equal(array(trace(drawn, WORDS[name])["z"]), getattr(head, name)[6][None])
    parts = array(trace(drawn, WORDS["weight_times_v"])["z"])  # (D, T + 2): keys, a gap, the sum
    assert parts.shape == (8, 10) and np.isnan(parts[:, 8]).all()
    np.testing.assert_allclose(parts[:, :8].sum(axis=1), parts[:, 9], atol=1e-5)
    np.testing.assert_allclose(parts[:, 2], head.softmax[6, 2] * head.v[2], rtol=1e-5)
    assert WORDS["hidden"] not in {t.get("name") for t in drawn["data"]}  # key 7 came later: blank, not masked
    drawn = figure(stages.row_stages(run, 3, 1, 2, 2, words=WORDS, dark=False))
    hatched = trace(drawn, WORDS["hidden"])
    assert {(x + 0.5, y + 0.5) for x, y in zip(hatched["x"][::6], hatched["y"][::6], strict=True)} == {
        (3, 2), (4, 2), (3, 3), (4, 3)
    }  # fmt: skip


def test_numbers_stay_within_their_cells():
    """A character takes 6.6 pixels: four in 27.5, three in 21.4, two in 19. From 100 on there are no decimals."""
    z = np.array([[-164.7, -23.4, np.nan], [-23.14, 7.06, -0.04], [0.071, 0.929, 1.0]], dtype=np.float32)

    def said(cell: float, weights: bool | None = None, of: np.ndarray = z) -> dict[int, list[str]]:
        drawn = cell_numbers(of, weights, palette(False), cell)
        assert len(drawn.x) == len(drawn.y) == len(drawn.text) == len(drawn.textfont.color)
        return {y: [t for at, t in zip(drawn.y, drawn.text, strict=True) if at == y] for y in dict.fromkeys(drawn.y)}

    assert said(40) == {0: ["-165", "-23"], 1: ["-23.1", "7.1", "0.0"], 2: [".07", ".93", "1.00"]}
    assert said(27.5) == {0: ["-165", "-23"], 1: ["-23", "7", "0"], 2: [".07", ".93", "1.00"]}
    assert said(21.4) == {1: ["-23", "7", "0"], 2: [".07", ".93", "1.0"]}
    assert said(19) == {}
    square = np.array([[0.4, np.nan], [-7.4, -12.3]])
    assert said(40, False, square) == {0: ["0.4"], 1: ["-7.4", "-12.3"]}
    assert said(30, False, square) == {0: ["0"], 1: ["-7", "-12"]}  # one stage: all rows alike
    assert said(20, False, square) == {}
    assert said(21.4, True, np.array([[1.0, np.nan], [0.25, 0.75]])) == {0: ["1.0"], 1: [".25", ".75"]}


@pytest.mark.parametrize("case", ["one", "thousand", "markup", "long"])
def test_every_size_and_text_can_be_drawn(case):
    run = make_run(**PLAYER_CASES[case])
    step = len(run.steps) - 1
    for name in stages.STAGES:
        made = figure(stages.stage(run, step, 0, 0, name, words=WORDS, dark=True))
        assert "<script>" not in json.dumps(made)
    assert figure(stages.row_stages(run, step, 0, 0, 0, words=WORDS, dark=False))["data"]
    assert figure(lines.lines(run, step, 0, 0, None, words=WORDS, dark=False))["data"]
    values = stages.stage_values(run, step, 0, 0)
    assert values["T"] == f"{run.P + step:,}"


def test_a_large_square_is_small_enough_to_send():
    """128 tokens: the page's chart has no text a cell."""
    run = make_run(**PLAYER_CASES["twelve"])
    made = stages.stage(run, 64, 3, 2, "softmax", words=WORDS, dark=False)
    assert len(made.to_json()) < 200_000


def test_lines_are_the_weights_that_are_large_enough():
    run = make_run(1, 2, head_dim=8, P=6, N=3)
    weights = np.zeros((8, 8))
    for i in range(8):
        weights[i, : i + 1] = run.attention_row(0, 1, i)
    all_of_them = lines.drawn(run, 2, 0, 1, None)
    assert {(i, j) for i, j, _ in all_of_them} == {(i, j) for i in range(8) for j in range(8) if weights[i, j] >= 0.1}
    one = lines.drawn(run, 2, 0, 1, 5)
    assert {(i, j) for i, j, _ in one} == {(5, j) for j in range(6) if weights[5, j] >= 0.02}
    assert all(j <= i for i, j, _ in all_of_them)
    drawn = figure(lines.lines(run, 2, 0, 1, 5, words=WORDS, dark=False))
    classes = drawn["data"][: len(lines.WIDTHS)]
    assert sum(sum(x is None for x in t["x"]) for t in classes if t["x"] != [None]) == len(one)
    values = lines.lines_values(run, 2, 0, 1, 5)
    assert values["covered"] == f"{100 * sum(w for _, _, w in one):.1f} %"


# The overview


def opened(blob: bytes) -> tuple[dict, np.ndarray]:
    (length,) = struct.unpack("<I", blob[:4])
    header = json.loads(blob[4 : 4 + length])
    n = header["n"]
    return header, np.frombuffer(blob[4 + length :], np.uint8).reshape(header["L"], header["H"], n, n)


def sent(run, step: int, **more) -> bytes:
    m = run.model
    notes = [["note"] * m.heads] * m.layers
    return view.view(
        run, step, 0, 0, view.tiles(run, step).tobytes(), "run|2",
        **({"order": None, "notes": notes, "marks": None, "words": {}, "key": "1"} | more),
    )  # fmt: skip


def test_a_tile_is_the_weights_what_is_hidden_and_what_was_not_there():
    run = make_run(2, 3, head_dim=8, P=4, N=3)
    header, tiles = opened(sent(run, 2))
    assert (header["n"], header["block"], header["T"], header["last"]) == (6, 1, 6, 2)
    for i in range(6):
        for j in range(6):
            byte = tiles[1, 2, i, j]
            if j <= i:
                assert byte == pytest.approx(250 * float(run.attention_row(1, 2, i)[j]), abs=0.51)
            else:
                assert byte == (view.MASKED if i < 4 and j < 4 else view.NOTHING)


def test_a_window_is_hidden_in_its_layers_only():
    run = make_run(**PLAYER_CASES["window"])  # 8 newest of 12; layers 2 and 5 see all
    tiles = view.tiles(run, 0)
    assert (tiles[0, 0, 11, :4] == view.MASKED).all() and tiles[0, 0, 11, 4] <= view.ONE
    assert (tiles[2, 0, 11, :] <= view.ONE).all()


def test_twelve_by_twelve_at_128_tokens_is_under_2_mb():
    run = make_run(**PLAYER_CASES["twelve"])
    blob = sent(run, 64)
    header, tiles = opened(blob)
    assert len(blob) < 2_000_000
    assert (header["T"], header["n"], header["block"]) == (128, 64, 2)
    weights = np.zeros((128, 128))
    for i in range(128):
        weights[i, : i + 1] = run.attention_row(7, 5, i)
    block = weights[100:102, 40:42].max()
    assert tiles[7, 5, 50, 20] == pytest.approx(250 * block, abs=0.51)


def test_many_heads_and_long_texts_stay_within_the_budget():
    run = make_run(36, 20, head_dim=2, P=100, N=1)
    blob = sent(run, 0)
    assert len(blob) < 2_000_000
    assert opened(blob)[0]["n"] * opened(blob)[0]["block"] >= 100


# The gallery's figure


def test_the_gallery_draws_each_cell_once_with_its_reason():
    gallery, run = a_gallery(), make_run(1, 1, head_dim=4, P=3, N=1)
    drawn = figure(masks.masks(run, gallery, 2, words=WORDS, dark=False))
    boxes = [
        (t["name"], t["xaxis"], sum(x is None for x in t["x"]))
        for t in drawn["data"]
        if t["type"] == "scatter" and t["x"] != [None]
    ]
    assert boxes == [
        (WORDS["visible"], "x", 6), (WORDS["ahead"], "x", 3),
        (WORDS["visible"], "x2", 3), (WORDS["ahead"], "x2", 3), (WORDS["padding"], "x2", 3),
    ]  # fmt: skip
    assert drawn["layout"]["xaxis2"]["ticktext"] == ["·", "0", "1"]
    shapes = {t.get("fillpattern", {}).get("shape") for t in drawn["data"] if t.get("name") == WORDS["padding"]}
    assert shapes == {"x"}  # not by colour alone
    said = json.dumps(drawn)
    assert "&lt;b&gt;" in said and "<b>bold" not in said


def test_the_gallery_s_table_counts():
    table = masks.masks_table(a_gallery(), words=WORDS)
    assert table[WORDS["visible"]] == [6, 3, 5, 1, 2, 3, 6, 3]
    assert table["Tq × T"] == ["3 × 3", "1 × 3", "3 × 3", "1 × 1", "1 × 2", "1 × 3", "3 × 3", "3 × 3"]
    assert table[WORDS["by_row"]][2] == "1, 2, 2"
