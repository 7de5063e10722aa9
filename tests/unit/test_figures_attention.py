"""Attention figures as JSON: the square, the row, their tables. Cases A07, A28, B01, B16, C07, D10."""

from __future__ import annotations

import json

import numpy as np
import pytest
from factories import make_run
from figure_json import WORDS, array, drawn, ends, trace

from kvviz.figures import attention
from kvviz.figures.palette import LIGHT
from kvviz.figures.plots import PLOTS

SIX = [b"Hey", b",", b" are", b" you", b" conscious", b"?"]


def test_prefill_is_a_square_and_later_steps_are_rows():
    """A07: 6 + 4 tokens; per layer 6 × 6, then 1 × 7, 1 × 8, 1 × 9."""
    run = make_run(2, 12, P=6, N=4, prompt=SIX)
    assert [s.attention.shape[1:] for s in run.steps] == [(12, 6, 6), (12, 1, 7), (12, 1, 8), (12, 1, 9)]
    assert array(drawn("square", run, 0)["data"][1]["z"]).shape == (6, 6)
    for step, T in ((1, 7), (2, 8), (3, 9)):
        assert len(array(drawn("row", run, step)["data"][0]["y"])) == T
        assert array(drawn("square", run, step)["data"][1]["z"]).shape == (T, T)


def test_a_later_square_says_that_it_is_stitched():
    """A07: rows 0..5 came from prefill."""
    run = make_run(2, 2, P=6, N=4, prompt=SIX)
    first, third = (drawn("square", run, s)["layout"]["annotations"][0]["text"] for s in (0, 3))
    assert first == "Rows 0 to 5: prefill, 6 × 6 in one pass."
    assert third == first + "<br>Rows 6 to 8: stitched from 3 later passes, one row each."
    one = drawn("square", run, 1)["layout"]["annotations"][0]["text"]
    assert one == first + "<br>Row 6: one query of one later pass, stitched below."


def test_square_holds_the_records_rows_and_nothing_above_the_diagonal():
    """A28: the strict upper triangle is empty, each row adds up to 1, row 0 is [1, 0, …]."""
    run = make_run(2, 3, P=5, N=4)
    z = array(drawn("square", run, 3, layer=1, head=2)["data"][1]["z"])
    upper = np.triu(np.ones((8, 8), dtype=bool), 1)
    assert np.isnan(z[upper]).all() and not np.isnan(z[~upper]).any()
    assert np.allclose(np.nansum(z, axis=1), 1, atol=2e-3)  # kept as float16
    assert z[0, 0] == 1
    assert np.array_equal(z[:5, :5][~upper[:5, :5]], run.steps[0].attention[1, 2][~upper[:5, :5]])
    assert np.array_equal(z[7], run.steps[3].attention[1, 2, 0])


def test_only_prefills_upper_triangle_is_hatched():
    """Cells right of a later row are blank: those keys did not exist, so no mask removed them."""
    run = make_run(2, 2, P=4, N=3)
    mask = drawn("square", run, 2)["data"][0]
    assert mask["fillpattern"]["shape"] == "/"
    corners = set(zip(mask["x"], mask["y"], strict=True))
    assert corners == {(0.5, -0.5), (0.5, 0.5), (1.5, 0.5), (1.5, 1.5), (2.5, 1.5), (2.5, 2.5), (3.5, 2.5), (3.5, -0.5)}


def test_the_newest_row_is_outlined():
    run = make_run(2, 2, P=4, N=3)
    shapes = drawn("square", run, 2)["layout"]["shapes"]
    assert {k: shapes[1][k] for k in ("x0", "x1", "y0", "y1")} == {"x0": -0.5, "x1": 5.5, "y0": 4.5, "y1": 5.5}
    assert len(drawn("square", run, 0)["layout"]["shapes"]) == 1


def test_repeated_tokens_keep_their_positions():
    """B01: 'the the the the' has 4 × 4 cells and 4 tick labels an axis, none equal to another."""
    run = make_run(2, 2, N=1, prompt=[b"the", b" the", b" the", b" the"])
    figure = drawn("square", run)
    for axis in (figure["layout"]["xaxis"], figure["layout"]["yaxis"]):
        assert axis["tickvals"] == [0, 1, 2, 3]
        assert axis["ticktext"] == ["0 the", "1 ·the", "2 ·the", "3 ·the"]
    assert ends(figure["layout"]["xaxis"]) == [-0.5, 3.5]
    assert ends(figure["layout"]["yaxis"]) == [3.5, -0.5]


def test_generated_tokens_look_different_and_the_last_has_no_row():
    """D10: P = 6, N = 5; generated token 3 is a query with 9 columns; the last chosen one is not there."""
    run = make_run(2, 2, N=5, prompt=SIX, chosen=[b" a", b" b", b" c", b" d", b" e"])
    assert len(run.attention_row(0, 0, 6 + 3 - 1)) == 9
    texts = drawn("square", run, 4)["layout"]["yaxis"]["ticktext"]
    assert texts == [
        "0 Hey", "1 ,", "2 ·are", "3 ·you", "4 ·conscious", "5 ?",
        "<b>6 ·a</b>", "<b>7 ·b</b>", "<b>8 ·c</b>", "<b>9 ·d</b>",
    ]  # fmt: skip
    assert PLOTS["square"].values(run, 4, 0, 0)["next_token"] == "·e"
    row = drawn("row", run, 4)
    assert row["layout"]["shapes"][0]["x0"] == 5.5  # the line before the first generated token
    assert row["layout"]["annotations"][0]["text"] == WORDS["generated_from_here"]
    assert "shapes" not in drawn("row", run, 0)["layout"]


def test_numbers_stand_in_cells_of_small_maps_only():
    small, large = make_run(2, 2, P=8, N=5), make_run(2, 2, P=13, N=1)
    numbers = drawn("square", small, 4)["data"][2]
    assert len(numbers["text"]) == 12 * 13 // 2
    assert len(drawn("square", large)["data"]) == 2
    weights = attention.stitched(small, 4, 0, 0)
    assert numbers["text"][0] == "1.00"
    assert numbers["textfont"]["color"][0] == LIGHT.on_high
    low = [c for t, c in zip(numbers["text"], numbers["textfont"]["color"], strict=True) if t.startswith(".0")]
    assert low and set(low) == {LIGHT.on_low}
    assert numbers["text"][-1] == f"{weights[11, 11]:.2f}".removeprefix("0")


def test_many_positions_become_blocks():
    """C07, C24: 1,030 positions are drawn as 344 × 344 maxima of 3 × 3 blocks."""
    run = make_run(1, 1, head_dim=2, P=1030, N=1)
    figure = drawn("square", run)
    cells = figure["data"][1]
    z = array(cells["z"])
    assert z.shape == (344, 344)
    assert (cells["x0"], cells["dx"]) == (1, 3)
    rows = run.steps[0].attention[0, 0].astype(np.float32)
    assert z[100, 40] == rows[300:303, 120:123].max()
    assert np.isnan(z[10, 11])
    assert "3 × 3" in cells["hovertemplate"]
    assert len(json.dumps(figure)) < 2_000_000


def test_square_table_has_unique_headers_and_the_same_numbers():
    """B16"""
    run = make_run(2, 2, N=3, prompt=[b"the", b" the", b" cat"])
    table = attention.square_table(run, 0, 0, 0, words=WORDS)
    assert list(table) == ["query", "0 the", "1 ·the", "2 ·cat"]
    assert table["query"] == ["0 the", "1 ·the", "2 ·cat"]
    assert table["0 the"][0] == "1.000"
    assert table["2 ·cat"][:2] == ["masked", "masked"]
    assert [f"{w:.3f}" for w in run.attention_row(0, 0, 2).astype(float)] == [column[2] for column in table.values()][
        1:
    ]
    later = attention.square_table(run, 2, 0, 0, words=WORDS)  # two passes later: their keys were not there to mask
    columns = list(later.values())
    assert [row[:3] for row in columns[4:]] == [["", "", ""]] * 2
    assert [row[:3] for row in columns[2:4]] == [
        ["masked", columns[2][1], columns[2][2]],
        ["masked"] * 2 + [columns[3][2]],
    ]
    long = attention.square_table(make_run(1, 1, P=200, N=1), 0, 0, 0, words=WORDS)
    assert (len(long), len(long["query"])) == (129, 64)


def test_row_table_and_values_name_the_largest_share():
    run = make_run(2, 2, P=5, N=4)
    weights = run.attention_row(1, 1, 7).astype(float)
    table = attention.row_table(run, 3, 1, 1, words=WORDS)
    assert table[WORDS["weight"]] == [f"{w:.3f}" for w in weights]
    assert table[WORDS["origin"]] == ["prompt"] * 5 + ["generated"] * 3
    values = attention.row_values(run, 3, 1, 1)
    assert (values["T"], values["reused"], values["top_position"]) == (8, 7, int(np.argmax(weights)))


def test_a_window_hides_more_than_the_triangle():
    """Five tokens see 15 of 25 cells; through a window of two 1 + 2 + 2 + 2 + 2, in the layer that has one."""
    run = make_run(2, 2, P=5, N=1, windows=(0, 2))
    full, narrow = (attention.square_values(run, 0, layer, 0) for layer in (0, 1))
    assert (full["visible"], full["masked"], full["cells"]) == ("15", "10", "25")
    assert (narrow["visible"], narrow["masked"], narrow["cells"]) == ("9", "16", "25")
    assert (full["case"], narrow["case"]) == ("prefill", "prefill_window")
    assert (narrow["later"], narrow["outside"], narrow["seen"]) == ("10", "6", "2")
    assert narrow["masked"] == "16"  # 10 + 6


def test_what_the_window_hides_is_hatched_in_every_row():
    """Window 2, four tokens and two more: rows 2 to 5 hide 1, 2, 3 and 4 keys, which have no weight to show."""
    run = make_run(2, 2, P=4, N=3, windows=(0, 2))
    figure = drawn("square", run, 2, layer=1)
    hatched = trace(figure, WORDS["masked_window"])
    assert hatched["fillpattern"]["shape"] == "/"
    assert hatched["fillcolor"] == trace(figure, WORDS["masked"])["fillcolor"] == LIGHT.masked
    corners = [(-0.5, 1.5), (0.5, 1.5), (0.5, 2.5), (1.5, 2.5), (1.5, 3.5), (2.5, 3.5), (2.5, 4.5), (3.5, 4.5)]
    assert set(zip(hatched["x"], hatched["y"], strict=True)) == {(-0.5, 5.5), *corners, (3.5, 5.5)}
    z = array(figure["data"][1]["z"])
    rows, columns = np.where(~np.isnan(z))
    assert list(zip(rows, columns, strict=True)) == [(0, 0)] + [(i, i - 1 + j) for i in range(1, 6) for j in (0, 1)]
    assert len(trace(drawn("square", run, 2, layer=1), None)["text"]) == 11  # numbers where there are weights
    table = attention.square_table(run, 2, 1, 0, words=WORDS)
    assert [v == "masked" for v in list(table.values())[1]] == [False, False, True, True, True, True]
    assert [v == "" for v in list(table.values())[5]] == [True] * 4 + [False] * 2  # the fifth key came after four rows
    assert WORDS["masked_window"] not in [t.get("name") for t in drawn("square", run, 2, layer=0)["data"]]


def test_a_row_through_a_window_has_bars_where_it_looks():
    run = make_run(2, 2, P=4, N=3, windows=(0, 2))
    bars, hatched = drawn("row", run, 2, layer=1)["data"]
    assert bars["text"][:4] == [""] * 4 and all(t.startswith(".") for t in bars["text"][4:])
    assert (min(hatched["x"]), max(hatched["x"])) == (-0.5, 3.5)
    assert hatched["fillpattern"]["shape"] == "/"
    assert len(drawn("row", run, 2, layer=0)["data"]) == 1
    values = attention.row_values(run, 2, 1, 0)
    assert (values["case"], values["T"], values["seen"], values["unseen"]) == ("window", 6, 2, 4)
    assert attention.row_values(run, 2, 0, 0)["case"] == "answer"
    weights = attention.row_table(run, 2, 1, 0, words=WORDS)[WORDS["weight"]]
    assert weights[:4] == ["masked"] * 4 and sum(map(float, weights[4:])) == pytest.approx(1, abs=2e-3)
