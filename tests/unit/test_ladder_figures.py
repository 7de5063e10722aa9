"""The ladder's charts, tables and sentences, on ladders written down by hand."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from figure_json import array, trace
from paper_ladder import ladder, lane

from kvviz.core import lessons
from kvviz.features.ladder.figure import ladder as figures
from kvviz.features.ladder.figure import ladders as said
from kvviz.features.ladder.figure.ladder import APART
from kvviz.features.ladder.record.ladder import Ladder

WORDS = {k.removeprefix("axis_"): v for k, v in lessons.sections("en", "ladder").items() if k.startswith("axis_")}
TOKEN = 73_728  # bytes of K and V a position: 2 · 12 layers · 12 heads · 64 · 4
MIB = 1_048_576
HOSTILE = "<b>$x$ `a|b` ![](x) %{x}"


def drawn(draw, record, dark: bool = False) -> dict:
    return json.loads(draw(record, words=WORDS, dark=dark).to_json())


def flat(cache: str, kernel: str, tpot: list[float], N: int = 20, **other):
    """N passes: 9 ms the first, then the same time each; a repeat for each of `tpot`."""
    return lane(cache, kernel, [[9.0, *[ms] * (N - 1)] for ms in tpot], **other)


def three_passes() -> Ladder:
    """5 + 3 tokens, two repeats. No cache: 10, 4, 6 and 12, 6, 10 ms. Preallocated: 8, 2, 2 and 10, 2, 4."""
    none = lane("none", "eager", [[10, 4, 6], [12, 6, 10]])
    kept = lane("preallocated", "sdpa", [[8, 2, 2], [10, 2, 4]], allocate_ms=0.5, held=np.full(3, 7 * TOKEN))
    return ladder([none, kept], N=3, generate=np.array([3.0, 5.0]))


def test_time_by_length_draws_medians_and_quartiles():
    figure = drawn(figures.time, three_passes())
    none, kept = (trace(figure, n) for n in ("no cache, eager", "preallocated, SDPA"))
    assert array(none["x"]).tolist() == array(kept["x"]).tolist() == [6, 7]  # positions that passes 1 and 2 meet
    assert array(none["y"]).tolist() == [5, 8] and array(kept["y"]).tolist() == [2, 3]
    band = next(t for t in figure["data"] if t.get("fill"))  # of the first lane: up along the third quartile, and back
    assert array(band["x"]).tolist() == [6, 7, 7, 6]
    assert array(band["y"]).tolist() == [5.5, 9, 7, 4.5]
    (line,) = figure["layout"]["shapes"]
    assert (line["y0"], line["y1"]) == (4, 4)  # generate took 3 and 5
    texts = [a["text"] for a in figure["layout"]["annotations"]]
    assert texts == ["transformers' generate: 4.00 ms"]  # two passes have no running median, so no line has a number
    assert figure["layout"]["yaxis"]["title"]["text"] == "ms a pass"
    table = figures.time_table(three_passes(), words=WORDS)
    assert table["positions met by the query"] == [6, 7]
    assert table["no cache, eager, median (ms)"] == [5, 8]
    assert table["no cache, eager, lower quartile (ms)"] == [4.5, 7]
    assert table["preallocated, SDPA, upper quartile (ms)"] == [2, 3.5]


def test_long_lines_are_told_by_the_median_of_nine_neighbours():
    """Pass i takes i ms, but one of them 90. The first median is of passes 1 to 9, at 5 + 5 positions: 5 ms."""
    ms = [float(i) for i in range(1, 20)]
    ms[7] = 90.0  # pass 8: of passes 1 to 9 the median stays 5, of passes 4 to 12 it is 9 and no longer 8
    figure = drawn(figures.time, ladder([lane("none", "sdpa", [[9.0, *ms]])]))
    thin, thick = (t for t in figure["data"] if t.get("name"))
    assert array(thin["x"]).tolist() == list(range(6, 25)) and array(thin["y"]).tolist() == ms
    assert array(thick["x"]).tolist() == list(range(10, 21))
    assert array(thick["y"])[:5].tolist() == [5, 6, 7, 9, 10]
    assert thin["showlegend"] is False and thin["line"]["width"] < thick["line"]["width"]


def test_the_number_at_the_end_of_a_line_is_its_value_there():
    """5 + 20: passes at 6 to 24 positions. The thick line ends at the middle of the last nine, 20 positions; these
    nine take 2 ms but for the last four of 60, and their median is 2. A lane that is four passes behind ends at 16."""
    slow = lane("none", "sdpa", [[9.0, *[2.0] * 15, *[60.0] * 4]])
    behind = lane("concatenated", "sdpa", [[9.0, *[3.0] * 15]], N=20)
    figure = drawn(figures.time, ladder([slow, behind]))
    thick = {t["name"]: (array(t["x"])[-1], array(t["y"])[-1]) for t in figure["data"] if t.get("showlegend") is None}
    assert thick == {"no cache, SDPA": (20, 2), "concatenated, SDPA": (16, 3)}
    assert [(a["x"], a["text"]) for a in figure["layout"]["annotations"]] == [(20, "2.00 ms"), (16, "3.00 ms")]
    assert figure["layout"]["yaxis"]["title"]["text"] == "ms a pass; thick: median of 9"


def test_a_lane_has_one_name_in_each_language():
    """The chips' names are the lessons' own; the figures join theirs from parts."""
    for language in ("en", "zh"):
        found = lessons.sections(language, "ladder")
        words = {k.removeprefix("axis_"): v for k, v in found.items() if k.startswith("axis_")}
        for cache in ("none", "concatenated", "preallocated"):
            for kernel in ("eager", "sdpa"):
                rung = flat(cache, kernel, [2.0])
                name = found[f"ladder_lanes_{cache}_{kernel}"]
                assert figures.lane_name(rung, ladder([rung]), words) == name


def test_first_tokens_of_one_kernel_and_precision_are_the_same_work():
    lanes = [lane(c, "sdpa", [[ms, 2.0]]) for c, ms in (("none", 15.2), ("concatenated", 32.2), ("preallocated", 12.3))]
    other = [lane("none", "eager", [[99.0, 2.0]]), lane("none", "sdpa", [[1.0, 2.0]], dtype="bfloat16")]
    assert figures.prefills(ladder([*lanes, *other], N=2)) == (3, 12.3, 32.2)
    assert figures.prefills(ladder([lanes[0], *other], N=2)) is None  # none has a second
    even = lane("concatenated", "sdpa", [[15.9, 2.0]])  # 15.9 / 15.2 = 1.046: nothing to explain
    assert figures.prefills(ladder([lanes[0], even], N=2)) is None


def test_the_clock_sums_the_medians():
    figure = drawn(figures.clock, three_passes())
    assert array(trace(figure, "no cache, eager")["x"]).tolist() == [1, 2, 3]
    assert array(trace(figure, "no cache, eager")["y"]).tolist() == [11, 16, 24]
    assert array(trace(figure, "preallocated, SDPA")["y"]).tolist() == [9, 11, 14]
    assert [a["text"] for a in figure["layout"]["annotations"]] == ["14.0 ms", "24.0 ms"]
    table = figures.clock_table(three_passes(), words=WORDS)
    assert table["preallocated, SDPA (ms)"] == [9, 11, 14]


def test_first_and_later_tokens_stand_beside_their_floor():
    """Later passes: 4, 6, 6 and 10 ms with no cache, 2, 2, 2 and 4 preallocated; a round's mean 5 and 8, 2 and 3."""
    figure = drawn(figures.tokens, three_passes())
    first, later = (t for t in figure["data"] if t["type"] == "bar")
    *said_, floor = (t for t in figure["data"] if t["type"] == "scatter")
    # numbers stand behind the upper quartiles
    assert [array(t["x"]).tolist() for t in said_] == [[11.5, 9.5], [7, 2.5]]
    assert said_[1]["text"] == ["\u20026.00 ms", "\u20022.00 ms"]
    assert array(first["x"]).tolist() == [11, 9] and array(later["x"]).tolist() == [6, 2]
    assert array(later["error_x"]["array"]).tolist() == [1, 0.5]
    assert array(later["error_x"]["arrayminus"]).tolist() == [0.5, 0]
    # room for the numbers within their own half: 1.42 times the longest bar with its quartiles
    assert [figure["layout"][a]["range"] for a in ("xaxis", "xaxis2")] == [
        pytest.approx([0, 16.33]), pytest.approx([0, 9.94])
    ]  # fmt: skip
    # 123,532,032 weights of four bytes, and 6 positions of K and V, at 10 GB/s
    assert array(floor["x"]) == pytest.approx([49.4128128, 49.4570496])
    assert first["xaxis"] == "x" and later["xaxis"] == floor["xaxis"] == "x2"
    table = figures.tokens_table(three_passes(), words=WORDS)
    assert table["later token, TPOT (ms)"] == ["6.00 (5.50 – 7.00)", "2.00 (2.00 – 2.50)"]
    assert table["mean of a round (ms)"] == [6.5, 2.5]
    assert table["token rows"] == [18, 7]  # 5 + 6 + 7, and 5 + 1 + 1
    assert table["bytes held"] == [0, 516_096]
    assert table["rounds"] == [2, 2]
    assert table["× floor"] == [0.12, 0.04]


def test_bytes_are_those_counted_and_those_of_the_formula():
    grown = lane("concatenated", "sdpa", [[1, 1, 1]], held=np.array([5, 6, 7]) * TOKEN)
    found = ladder([lane("none", "sdpa", [[1, 1, 1]]), grown], N=3, batch=2)
    figure = drawn(figures.bytes_, found)
    names = [t["name"] for t in figure["data"]]
    assert names == ["concatenated, SDPA", "copied by concatenation", "written anew"]  # no cache holds nothing
    assert array(trace(figure, "concatenated, SDPA")["x"]).tolist() == [5, 6, 7]
    assert array(trace(figure, "concatenated, SDPA")["y"]) == pytest.approx([0.3515625, 0.421875, 0.4921875])
    # two rows of the batch: before the first append 5 old positions are copied, before the second 6
    assert array(trace(figure, "copied by concatenation")["y"]) == pytest.approx([0, 0.703125, 1.546875])
    assert array(trace(figure, "written anew")["y"]) == pytest.approx([0, 0.140625, 0.28125])
    table = figures.bytes_table(found, words=WORDS)
    assert table["concatenated, SDPA, bytes held"] == [368_640, 442_368, 516_096]
    assert table["copied by concatenation (bytes)"] == [0, 737_280, 1_622_016]
    assert table["written anew (bytes)"] == [0, 147_456, 294_912]


def test_before_a_run_the_plan_is_the_formula():
    plan = ladder([lane("none", "sdpa", [[1, 1]])])  # 5 + 20 at GPT-2 small
    figure = drawn(said.plan, plan)
    copied, written = figure["data"]
    assert array(copied["x"]).tolist() == list(range(5, 25))
    assert array(copied["y"])[-1] * MIB == pytest.approx(19_611_648)
    assert array(written["y"])[-1] * MIB == pytest.approx(1_400_832)
    assert [a["text"] for a in figure["layout"]["annotations"]] == ["18.7 MiB", "1.3 MiB"]
    table = said.plan_table(plan, words=WORDS)
    assert table["copied by concatenation (bytes)"][:4] == [0, 368_640, 811_008, 1_327_104]  # 5, 11, 18 rows
    assert table["written anew (bytes)"][-1] == 1_400_832


def ends(figure: dict) -> list[float]:
    return [a["y"] for a in figure["layout"]["annotations"] if a.get("yref") == "paper"]


@pytest.mark.parametrize("view", ["time", "clock"])
@pytest.mark.parametrize(
    "tpot",
    [[30.0] * 6, [30, 30.1, 30.2, 30.3, 30.4, 30.5], [30, 31, 32, 33, 34, 35], [900, 1, 1, 1.1, 1.2, 1.2]],
    ids=["the same", "close", "apart", "one far above"],
)
def test_numbers_at_the_ends_never_overlap_and_stay_beside_the_picture(view, tpot):
    pairs = [(c, k) for c in ("none", "concatenated", "preallocated") for k in ("eager", "sdpa")]
    found = ladder([flat(*pair, [ms]) for pair, ms in zip(pairs, tpot, strict=True)])
    at = ends(drawn(figures.DRAW[view][0], found))
    assert len(at) == 6
    assert min(np.diff(at)) >= APART - 1e-9
    assert 0 <= min(at) and max(at) <= 1


def test_a_lane_looks_the_same_in_every_view_and_no_two_alike():
    pairs = [(c, k) for c in ("none", "concatenated", "preallocated") for k in ("eager", "sdpa")]
    rungs = [flat(*pair, [30.0]) for pair in pairs]
    rungs += [dataclasses.replace(r, dtype="bfloat16") for r in rungs if r.kernel == "sdpa"]
    rungs.append(dataclasses.replace(rungs[5], compiled=True))
    found = ladder(rungs)

    def lines(view: str) -> dict[str, tuple[str, str]]:
        figure = drawn(figures.DRAW[view][0], found)
        return {t["name"]: (t["line"]["color"], t["line"]["dash"]) for t in figure["data"] if t.get("name")}

    assert len(set(lines("time").values())) == len(rungs) == 10
    assert lines("time") == lines("clock")
    assert lines("bytes").items() >= {n: v for n, v in lines("time").items() if not n.startswith("no cache")}.items()
    bars = next(t for t in drawn(figures.tokens, found)["data"] if t["type"] == "bar")
    styles = zip(bars["marker"]["color"], bars["marker"]["pattern"]["shape"], strict=True)
    assert len(set(styles)) == 10
    assert bars["y"] == list(lines("time"))
    assert bars["y"][-2:] == ["preallocated, SDPA, bf16", "preallocated, SDPA, graph"]


@pytest.mark.parametrize("view", figures.VIEWS)
@pytest.mark.parametrize("ms", [[[]], [[9.0]], [[9.0, 3.0]]], ids=["nothing", "prefill", "one more"])
def test_a_ladder_that_has_hardly_begun_is_drawn(view, ms):
    found = ladder([lane("none", "sdpa", ms, N=20), lane("concatenated", "sdpa", ms, N=20)], state="running")
    draw, table = figures.DRAW[view]
    drawn(draw, found, dark=True)
    assert len({len(column) for column in table(found, words=WORDS).values()}) == 1


@pytest.mark.parametrize(
    ("lanes", "case", "pays"),
    [
        ([("none", [6.0] * 3), ("concatenated", [4.0] * 3), ("preallocated", [2.0] * 3)], "clear", "always"),
        ([("none", [6.0] * 3), ("concatenated", [4.1] * 3), ("preallocated", [4.0] * 3)], "even", "always"),  # 2.5 %
        # 5 to 7 and 6.9 to 8.9: medians 32 % apart, but their quartiles overlap
        ([("concatenated", [4.0, 6, 8]), ("preallocated", [5.9, 7.9, 9.9])], "even", "no_pair"),
        ([("concatenated", [4.0, 6, 8]), ("preallocated", [6.1, 8.1, 10.1])], "clear", "no_pair"),
        ([("none", [2.0] * 3), ("concatenated", [4.0] * 3)], "clear", "never"),
        ([("none", [4.1] * 3), ("concatenated", [4.0] * 3)], "even", "never"),  # 2.5 % is no gain
        ([("preallocated", [2.0] * 2)], "single", "no_pair"),
    ],
)
def test_what_may_be_said_of_the_lanes(lanes, case, pays):
    values = said.ladder_values(ladder([flat(cache, "sdpa", tpot) for cache, tpot in lanes]), WORDS)
    assert (values["case"], values["pays"]) == (case, pays)


def test_the_sentence_of_a_clear_result():
    lanes = [flat("none", "sdpa", [6.0] * 2), flat("concatenated", "eager", [4.0] * 2),
             flat("preallocated", "sdpa", [2.0] * 2)]  # fmt: skip
    values = said.ladder_values(ladder(lanes), WORDS)
    assert (values["fastest"], values["second"], values["slowest"]) == (
        "preallocated, SDPA", "concatenated, eager", "no cache, SDPA",
    )  # fmt: skip
    assert [values[n] for n in ("tpot", "next", "slow", "times")] == ["2.00", "4.00", "6.00", "3.00"]
    assert values["from"] == values["first"] == "10"  # the middle of nine passes: 6 to 14 positions
    assert (values["slow_rows"], values["fast_rows"], values["saved"]) == ("290", "24", "12")
    assert values["generate"] == values["ratio"] == "–"
    for section in ("answer_clear", "pays_always"):
        told = lessons.text("en", "ladder", section, **values, pays_text="")
        assert "{" not in told
    assert "needs 6.00 ms, 3.00 times as long" in lessons.text("en", "ladder", "answer_clear", **values, pays_text="")


@pytest.mark.parametrize(
    ("passes", "repeats", "case", "pays"),
    [(8, 2, "measuring", "wait"), (9, 2, "even", "short"), (20, 1, "measuring", "wait"), (20, 2, "even", "never")],
)
def test_nothing_is_compared_before_two_rounds_and_sixteen_passes(passes, repeats, case, pays):
    lanes = [flat(c, "sdpa", [3.0] * repeats, N=passes) for c in ("none", "concatenated")]  # one less is a later token
    values = said.ladder_values(ladder(lanes, N=passes), WORDS)
    assert (values["case"], values["pays"]) == (case, pays)
    plan = dataclasses.replace(ladder(lanes), rungs=())
    assert said.ladder_values(plan, WORDS)["pays"] == "wait"


def test_precisions_are_not_compared_as_if_they_were_lanes():
    """The slowest lane beside a quickest one in bf16 is the slowest in bf16."""
    lanes = [flat("none", "sdpa", [60.0] * 2), flat("none", "sdpa", [8.0] * 2, dtype="bfloat16"),
             flat("preallocated", "sdpa", [2.0] * 2, dtype="bfloat16")]  # fmt: skip
    values = said.ladder_values(ladder(lanes), WORDS)
    assert (values["slowest"], values["times"]) == ("no cache, SDPA, bf16", "4.00")
    assert values["dtypes"] == "float32, bfloat16"


def test_from_what_length_it_pays():
    """Without a cache pass i takes i/4 ms, with one 2 ms: more than 5 % dearer from i = 9 on, 10 + 9 positions."""
    slow = [[50.0, *(i / 4 for i in range(1, 21))]] * 2
    lanes = [lane("none", "sdpa", slow), flat("concatenated", "sdpa", [2.0] * 2, N=21)]
    found = ladder(lanes, P=10, N=21)
    values = said.ladder_values(found, WORDS)
    assert (values["pays"], values["from"], values["first"]) == ("from", "19", "15")
    assert (values["slow_rows"], values["fast_rows"], values["saved"]) == ("420", "30", "14")  # 10 + 11 + … + 30
    assert said.pairs_table(found, words=WORDS) == {
        "no cache": ["no cache, SDPA"],
        "quickest with a cache": ["concatenated, SDPA"],
        "pays from (positions)": [19],
        "no cache, token rows": [420],
        "quickest with a cache, token rows": [30],
    }


def test_too_few_passes_for_a_length():
    lanes = [flat(c, "sdpa", [3.0] * 4, N=5) for c in ("none", "concatenated")]  # 4 · 4 = 16 passes, but four lengths
    assert said.ladder_values(ladder(lanes, N=5), WORDS)["pays"] == "short"


def test_the_cache_of_another_kernel_is_no_pair():
    lanes = [flat("none", "eager", [6.0] * 2), flat("concatenated", "sdpa", [3.0] * 2)]
    assert said.ladder_values(ladder(lanes), WORDS)["pays"] == "no_pair"


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_copied_and_written_at_gpt2_small(language):
    """5 + 20: before 19 appends 5 + 6 + … + 23 = 266 old rows are copied, of 73,728 bytes each."""
    values = said.ladder_values(ladder([flat("concatenated", "sdpa", [3.0])]), WORDS)
    for section in ("waiting", "copied_says"):
        told = lessons.text(language, "ladder", section, **values)
        for number in ("19,611,648", "1,400,832", "266", "73,728", "19"):
            assert number in told, (section, number)


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_rows_in_the_text_are_the_records(language):
    """B09: 5 + 20 and 100 + 100 tokens."""
    told = lessons.text(language, "ladder", "q_none_a")
    for P, N, without, kept, times in ((5, 20, "290", "24", "12"), (100, 100, "14,950", "199", "75")):
        lanes = [flat(c, "sdpa", [3.0] * 2, N=N) for c in ("none", "concatenated")]
        values = said.ladder_values(ladder(lanes, P=P, N=N), WORDS)
        assert (values["slow_rows"], values["fast_rows"], values["saved"]) == (without, kept, times)
        assert all(number in told for number in (without, kept, times))
    short = lessons.text(language, "ladder", "try_short_says")
    assert all(number in short for number in ("290", "24", "12"))


@pytest.mark.parametrize(
    ("tpot", "above", "distance", "mbu", "mfu"),
    [(30.0, True, "0.61", "165.1 %", "8.3 %"), (100.0, False, "2.02", "49.5 %", "2.5 %")],
)
def test_the_floor_is_told_with_its_numbers(tpot, above, distance, mbu, mfu):
    """495,234,048 bytes at 10 GB/s take 49.5 ms; 247,617,024 operations at 100 GFLOP/s 2.5 ms."""
    values = said.ladder_values(ladder([flat("concatenated", "sdpa", [tpot])], generate=np.array([20.0])), WORDS)
    assert (values["floor"], values["moved"], values["flops"]) == ("49.5", "495,234,048", "247,617,024")
    assert (values["bandwidth"], values["flop_rate"], values["middle"]) == ("10.0", "100", "15")
    assert (values["above"], values["distance"], values["mbu"], values["mfu"]) == (above, distance, mbu, mfu)
    assert (values["generate"], values["ratio"]) == ("20.0", f"{tpot / 20:.2f}")
    bare = said.ladder_values(ladder([flat("concatenated", "sdpa", [tpot])], rates=None), WORDS)
    assert bare["floor"] == "–" and bare["above"] is False


def test_generate_beside_half_precision_alone_is_not_compared():
    half = flat("concatenated", "sdpa", [3.0], dtype="bfloat16")
    values = said.ladder_values(ladder([half, flat("none", "sdpa", [5.0])], generate=np.array([20.0])), WORDS)
    assert values["generate"] == values["ratio"] == "–"


def test_the_passes_that_do_not_count():
    cold = flat("none", "sdpa", [3.0], warm_up=np.array([36.0, 5.0, 6.0, 8.0]), ready_ms=math.nan)
    warm = flat("preallocated", "sdpa", [2.0], warm_up=np.array([9.0, 3.0]), allocate_ms=0.25)
    found = ladder([cold, warm])
    assert said.warm_table(found, words=WORDS) == {
        "lane": ["no cache, SDPA", "preallocated, SDPA"],
        "ready (ms)": [None, 5.0],
        "allocated (ms)": [None, 0.25],
        "1st prefill (ms)": [36.0, 9.0],
        "TTFT (ms)": [9.0, 9.0],
        "1st later (ms)": [5.0, 3.0],
        "2nd, 3rd (ms)": [7.0, None],
        "TPOT (ms)": [3.0, 2.0],
    }
    values = said.warm_values(found, WORDS)
    assert values == {"case": "cold", "lane": "no cache, SDPA", "first_ms": "36.0", "counted": "9.00", "times": "4.0"}
    assert said.warm_values(ladder([warm]), WORDS)["case"] == "warm"
    assert said.warm_values(ladder([lane("none", "sdpa", [[]], N=4)]), WORDS)["case"] == "none"
