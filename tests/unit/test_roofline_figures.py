"""The roofline as drawn: marks where the formulas and clocks say, a roof that bends at the ridge."""

from __future__ import annotations

import dataclasses
import math

import pytest

from kvviz.core import lessons
from kvviz.features.ladder.record.ladder import Rates
from kvviz.features.race.record import Spread
from kvviz.features.roofline.figure import batches as several
from kvviz.features.roofline.figure import roofline as figures
from kvviz.features.roofline.record import Point, Roofline, Skipped, step_of, steps_of
from tests.factories import MACHINE, model_facts

WORDS = {k.removeprefix("axis_"): v for k, v in lessons.sections("en", "roofline").items() if k.startswith("axis_")}
SMALL = model_facts(12, 12, 12, 64, name="gpt2", vocab_size=50_257)
MATRICES = 84_934_656
KNOWN = Rates(Spread(10e9, 8e9, 12.5e9, 7), Spread(100e9, 80e9, 125e9, 7))
P = 1023


def roof(counts: dict[int, tuple[float, int]], rates: Rates | None = KNOWN, **more) -> Roofline:
    """GPT-2 small with decode steps of those batches timed: milliseconds, passes."""
    steps = steps_of(SMALL, MATRICES, P)
    points = tuple(
        Point(step, Spread(ms, ms * 0.9, ms * 1.2, n), KNOWN)
        for step in steps
        for batch, (ms, n) in counts.items()
        if (step.kind, step.batch) == ("decode", batch)
    )
    return Roofline("key", SMALL, MACHINE, P, MATRICES, steps, rates, points, **more)


def named(figure, name: str):
    return next(t for t in figure.data if t.name == name)


def test_marks_lie_where_operations_bytes_and_clock_put_them():
    found = roof({1: (113.92512, 16), 64: (2000, 15)})
    drawn = figures.drawing(found, words=WORDS, dark=False, batch=64)
    marks = named(drawn, "decode step")
    assert 10 ** marks.x[0] == pytest.approx(284_812_800 / 569_625_600)
    assert 10 ** marks.y[0] == pytest.approx(2.5)  # GFLOP/s
    assert 10 ** marks.y[1] == pytest.approx(64 * 284_812_800 / 2 / 1e9)
    ground = drawn.layout.paper_bgcolor
    full = [colour != ground for colour in marks.marker.color]
    assert full == [True, False]  # fifteen passes are too few
    assert marks.text[1] == "<b>64</b>" and marks.marker.size[1] > marks.marker.size[0]
    assert marks.marker.symbol == "circle" and len(marks.x) == 2
    assert "2 × floor" in marks.customdata[0].replace("2.00", "2") and "MBU 50.0 %" in marks.customdata[0]


@pytest.mark.parametrize("counts", [{}, {1: (113.92512, 16), 64: (2000, 15)}])
def test_a_pass_without_a_time_has_no_height(counts):
    """Stopped before the first round: ticks on the axis at FLOP a byte, and nothing that could be read as the roof."""
    found = roof(counts)
    drawn = figures.drawing(found, words=WORDS, dark=False, batch=2)
    ticks = named(drawn, "by formula, not measured yet")
    untimed = [s for s in found.steps[1:] if s.batch not in counts] + [found.steps[0]]
    assert [10**x for x in ticks.x] == pytest.approx([s.flops / s.moved for s in untimed])
    wanted = drawn.layout.yaxis.autorangeoptions
    low, high = wanted.minallowed, wanted.maxallowed
    assert len(set(ticks.y)) == 1 and low < ticks.y[0] < low + 0.05 * (high - low)
    assert ticks.marker.symbol == "line-ns-open" and ticks.text[-1] == "" and "<b>2</b>" in ticks.text
    heights = [t.name for t in drawn.data if t.mode and "markers" in t.mode]
    assert heights == (["decode step"] if counts else []) + ["by formula, not measured yet"]
    assert "measured" not in ticks.customdata[1] and "floor" in ticks.customdata[1]


def test_all_timed_needs_no_ticks():
    found = roof(dict.fromkeys((1, 2, 4, 8, 16, 32, 64), (100.0, 16)))
    prefill = Point(found.steps[0], Spread(900, 900, 900, 16), KNOWN)
    drawn = figures.drawing(dataclasses.replace(found, points=(*found.points, prefill)), words=WORDS, dark=False)
    assert named(drawn, "prefill").marker.symbol == "square"
    assert "by formula, not measured yet" not in [t.name for t in drawn.data]


def test_the_roof_bends_at_the_ridge():
    drawn = figures.drawing(roof({}), words=WORDS, dark=False)
    xs, ys = (named(drawn, "best this device can do")[axis] for axis in "xy")
    assert xs[1] == pytest.approx(1)  # 100 GFLOP/s over 10 GB/s
    assert ys[1] == ys[2] == pytest.approx(2)  # 100 GFLOP/s
    assert ys[0] - xs[0] == pytest.approx(1)  # 10 FLOP/s for each FLOP a byte, in units of 1e9
    band = named(drawn, "quartiles")
    assert max(band.y) == pytest.approx(math.log10(125)) and math.log10(80) in [pytest.approx(y) for y in band.y]
    said = " ".join(a.text for a in drawn.layout.annotations)
    assert "ridge 10.0" in said and "100 GFLOP/s" in said and "10.0 GB/s" in said


def test_ticks_are_powers_of_ten_in_plain_numbers():
    drawn = figures.drawing(roof({1: (113.9, 16)}), words=WORDS, dark=False)
    for axis in (drawn.layout.xaxis, drawn.layout.yaxis):
        assert [f"{10**v:,.6g}" for v in axis.tickvals] == list(axis.ticktext)
    assert "10" in drawn.layout.yaxis.ticktext and "100" in drawn.layout.yaxis.ticktext
    assert drawn.layout.yaxis.title.text == "GFLOP/s" and drawn.layout.xaxis.title.text == "FLOP a byte"


def test_a_quick_device_is_counted_in_larger_units():
    quick = Rates(Spread(4e12, 4e12, 4e12, 7), Spread(50e12, 50e12, 50e12, 7))
    assert figures.drawing(roof({}, quick), words=WORDS, dark=True).layout.yaxis.title.text == "TFLOP/s"


def test_before_the_rates_only_the_axis_of_intensity_is_drawn():
    drawn = figures.drawing(roof({}, None), words=WORDS, dark=False)
    assert [t.name for t in drawn.data] == ["decode step", "prefill"]
    assert len(drawn.layout.yaxis.tickvals) == 0
    assert 10 ** drawn.data[0].x[6] == pytest.approx(3.4225, abs=1e-4)


def test_labels_that_would_overlap_are_left_out_but_never_the_chosen_or_last():
    crowd = [step_of(SMALL, MATRICES, "decode", b, P, 1) for b in (1, 60, 62, 64)]
    assert figures._labels(crowd, 1) == ["<b>1</b>", "", "", "64"]
    assert figures._labels(crowd, 62) == ["1", "", "<b>62</b>", "64"]


def test_the_table_holds_every_pass_and_what_is_not_known_is_empty():
    table = figures.drawing_table(roof({1: (113.92512, 16)}), words=WORDS)
    assert table["batch"] == [1, 1, 2, 4, 8, 16, 32, 64]
    assert table["bytes at the least"][1] == 569_625_600 and table["FLOP"][1] == 284_812_800
    assert table["floor (ms)"][1] == 56.963 and table["× floor"][1:3] == [2.0, None]
    assert table["MBU"][1] == "50.0 %" and table["keys a row meets"] == [1023] + [1024] * 7
    assert len({len(column) for column in table.values()}) == 1
    none = figures.drawing_table(roof({}, None), words=WORDS)
    assert none["floor (ms)"] == [None] * 8 == none["n"]
    less = figures.drawing_table(roof({}, skipped=(Skipped("decode", 64, 2, 1),)), words=WORDS)
    assert less["batch"][-1] == 32


def test_lanes_of_a_race_are_drawn_and_listed():
    lane = Point(step_of(SMALL, MATRICES, "race_cached", 1, 99, 1), Spread(70, 70, 70, 16), KNOWN)
    drawn = figures.drawing(roof({}), words=WORDS, dark=False, lanes=(lane,))
    assert named(drawn, "race, with cache").marker.symbol == "diamond-open"
    table = figures.drawing_table(roof({}), words=WORDS, lanes=(lane,))
    assert table["pass"][-1] == "race, with cache" and table["keys a row meets"][-1] == 100


def test_batches_have_milliseconds_floors_and_tokens():
    found = roof({1: (100.0, 16), 2: (125.0, 16), 64: (800.0, 16)})
    drawn = several.batches(found, words=WORDS, dark=False)
    ms, floor, tokens, allowed = drawn.data
    assert list(ms.y) == [100, 125, 800] and list(tokens.y) == [10, 16, 80]
    # 494,128,128 bytes and 75,497,472 a text at 10 GB/s; at batch 64 the operations take 182 ms, the bytes 533
    assert list(floor.y) == pytest.approx([56.96256, 64.5123072, 532.5966336])
    assert allowed.y[2] == pytest.approx(64 / 0.5325966336)
    assert list(ms.error_y.array) == pytest.approx([20, 25, 160])
    assert list(drawn.layout.xaxis.ticktext) == ["1", "2", "64"]
    table = several.batches_table(found, words=WORDS)
    assert table["tokens a second, all texts"] == [10, 16, 80] and table["× floor"] == [1.76, 1.94, 1.5]
    with pytest.raises(ValueError):
        several.batches(roof({}), words=WORDS, dark=False)


def test_sentences_name_their_numbers():
    found = roof({1: (113.92512, 16), 64: (1139.2512, 16)})
    values = several.roofline_values(found, 1)
    assert (values["bytes_short"], values["flops_short"], values["intensity"]) == ("570 MB", "285 MFLOP", "0.500")
    assert (values["case"], values["ridge"], values["turning"]) == ("bytes", "10.0", None)
    assert (values["ms"], values["floor"], values["distance"], values["mbu"]) == ("114", "57.0", "2.00", "50.0 %")
    assert values["bandwidth"] == "10.0 GB/s (8.00 – 12.5)" and values["flop_rate"] == "100 GFLOP/s (80.0 – 125)"
    assert (values["longer"], values["gain"], values["most_tokens"]) == ("10.0", "6.40", "56.2")
    assert values["limit"] == "3.77"
    low = Rates(Spread(1e12, 1e12, 1e12, 7), Spread(100e9, 1e11, 1e11, 7))
    assert several.roofline_values(dataclasses.replace(found, rates=low), 1)["case"] == "arithmetic"
    planned = several.roofline_values(roof({}, None), 64)
    assert planned["case"] == "planned" and "ridge" not in planned and planned["kv_short"] == "4.83 GB"


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.5, "0.500"), (8.134, "8.13"), (24.6, "24.6"), (99.96, "100"), (123.4, "123"), (9.996, "10.0"),
     (1234.5, "1,234"), (0, "0"), (float("nan"), "n/a")],
)  # fmt: skip
def test_three_digits(value, said):
    assert figures.digits(value) == said
