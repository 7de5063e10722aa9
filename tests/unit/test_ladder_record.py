"""What a ladder's record says, against numbers worked out on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from paper_ladder import KNOWN, ladder, lane

from kvviz.features.ladder.record.ladder import Rates, running_median
from kvviz.features.race.record import Spread

MATRICES = 12 * (4 * 768 * 768 + 8 * 768 * 768)  # 84,934,656
OUTPUT = 50_257 * 768  # 38,597,376


def flat(cache: str, kernel: str, tpot: list[float], **other):
    """Twenty passes: 9 ms the first, then the same time each."""
    return lane(cache, kernel, [[9.0, *[ms] * 19] for ms in tpot], **other)


def test_bytes_operations_and_floor_of_gpt2_small():
    """Case A27, and by hand: 85 M weights in matrices and 50,257 × 768 in the output matrix, four bytes each."""
    cached = flat("concatenated", "sdpa", [30.0])
    found = ladder([flat("none", "sdpa", [50.0]), cached], generate=np.array([20.0]))
    assert found.copied == 19_611_648 and found.written == 1_400_832
    assert found.moved(cached) == (MATRICES + OUTPUT) * 4 + 15 * 73_728
    assert found.flops(cached) == 2 * (MATRICES + OUTPUT) + 4 * 64 * 12 * 12 * 15
    # 495,234,048 bytes at 10 GB/s take longer than 247,617,024 operations at 100 GFLOP/s
    assert (found.moved(cached), found.flops(cached)) == (495_234_048, 247_617_024)
    assert found.floor_ms(cached) == pytest.approx(49.5234, abs=1e-4)


def test_a_lane_without_a_cache_has_a_floor_of_its_own():
    """15 rows and 15 × 15 scores a head and layer; no K and V to fetch."""
    plain = flat("none", "sdpa", [50.0])
    found = ladder([plain])
    assert found.moved(plain) == 494_128_128
    assert found.flops(plain) == 2 * MATRICES * 15 + 4 * 64 * 144 * 225 + 2 * OUTPUT == 2_633_528_832
    assert found.floor_ms(plain) == pytest.approx(49.4128, abs=1e-4)
    assert (found.rows(plain), ladder([plain], batch=3).rows(plain)) == (290, 870)


def test_a_batch_shares_the_weights_and_half_precision_halves_the_bytes():
    half = flat("preallocated", "sdpa", [50.0], dtype="bfloat16")
    rates = {"bfloat16": KNOWN}
    four, many = (ladder([half], batch=b, other_rates=rates) for b in (4, 64))
    # 247,064,064 bytes of weights once, and 36,864 bytes a position of each sequence
    assert four.moved(half) == 247_064_064 + 4 * 15 * 36_864 == 249_275_904
    assert four.flops(half) == 4 * 247_617_024 == 990_468_096
    assert four.floor_ms(half) == pytest.approx(24.9276, abs=1e-4)
    assert four.bandwidth_share(half) == pytest.approx(0.498552, abs=1e-6)  # 249 MB in 50 ms: 5 of 10 GB/s
    assert four.arithmetic_share(half) == pytest.approx(0.198094, abs=1e-6)
    # 282,453,504 bytes take 28 ms; 15,847,489,536 operations take 158
    assert many.floor_ms(half) == pytest.approx(158.4749, abs=1e-4)
    assert four.rows(half) == 4 * 24 and four.copied == 4 * 19_611_648 and four.written == 4 * 1_400_832


def test_no_floor_without_rates_in_that_precision():
    half = flat("preallocated", "sdpa", [50.0], dtype="bfloat16")
    found = ladder([half])
    assert math.isnan(found.floor_ms(half)) and math.isnan(found.bandwidth_share(half))
    slow = Rates(Spread(1e9, 1e9, 1e9, 1), Spread(1e9, 1e9, 1e9, 1))
    # 247,064,064 + 15 × 36,864 bytes: at two bytes a value as many as there are operations, 1 FLOP a byte
    assert ladder([half], other_rates={"bfloat16": slow}).floor_ms(half) == pytest.approx(247.6170, abs=1e-4)
    assert math.isnan(ladder([half], rates=None).arithmetic_share(flat("none", "eager", [1.0])))


def test_the_fastest_keeps_a_cache_and_is_compared_round_by_round():
    lanes = [flat("none", "sdpa", [1.0, 1.0, 1.0]), flat("concatenated", "eager", [30.0, 40.0, 20.0]),
             flat("preallocated", "sdpa", [25.0, 26.0, 90.0])]  # fmt: skip
    found = ladder(lanes, generate=np.array([20.0, 26.0, 60.0]))
    assert found.fastest.name == "preallocated, sdpa"  # medians 26 and 30
    assert found.to_generate == Spread(1.25, 1.125, 1.375, 3)  # of 1.25, 1.00 and 1.50
    # the third round of `generate` has not come; half precision does other work
    half = flat("concatenated", "sdpa", [2.0] * 3, dtype="bfloat16")
    assert ladder([*lanes, half], generate=np.array([20.0, 26.0])).to_generate.median == 1.125
    with pytest.raises(ValueError):
        _ = ladder([flat("none", "sdpa", [1.0])]).fastest


def test_times_of_a_lane():
    nan = np.nan
    found = lane("concatenated", "sdpa", [[9, 1, 3], [11, 2, 6], [10, 4, nan]])
    assert found.ttft == Spread(10, 9.5, 10.5, 3)
    assert found.tpot == Spread(3, 2, 4, 5)  # of 1, 2, 3, 4 and 6
    # the third repeat is not through
    assert found.means[:2].tolist() == found.medians[:2].tolist() == [2, 4]
    assert np.isnan(found.means[2]) and np.isnan(found.medians[2])
    held_up = lane("concatenated", "sdpa", [[9, 1, 2, 99]])
    assert (held_up.medians.tolist(), held_up.means.tolist(), held_up.tpot.median) == ([2], [34], 2)
    assert found.complete == 2
    assert found.per_pass[1].tolist() == [10, 2, 4.5] and found.cumulative.tolist() == [10, 12, 16.5]
    begun = lane("concatenated", "sdpa", [[9, 1, 3]], N=4)
    assert begun.complete == 0 and np.isnan(begun.means).all() and np.isnan(begun.medians).all()
    assert begun.tpot == Spread(2, 1.5, 2.5, 2)  # 1 and 3, the passes so far
    none = lane("none", "eager", [[]], N=4)
    assert none.per_pass.shape == (3, 0) and math.isnan(none.tpot.median) and none.cumulative.shape == (0,)


def test_the_same_tokens_as_far_as_all_lanes_have_come():
    two = lane("none", "sdpa", [[1, 1]], N=3, chosen=np.array([7, 8]))
    three = lane("concatenated", "sdpa", [[1, 1, 1]], chosen=np.array([7, 9, 3]))
    unsure = lane("preallocated", "sdpa", [[1, 1, 1]], chosen=np.array([-1, 9, 3]))
    assert ladder([two, three], N=3).same.tolist() == [True, False]
    assert ladder([three, unsure], N=3).same.tolist() == [False, True, True]
    assert ladder([unsure], N=3).same.tolist() == [False, True, True]


def crossing(uncached: list[float], cached: list[float], P: int = 10) -> int | None:
    lanes = [lane("none", "sdpa", [[50.0, *uncached]]), lane("concatenated", "sdpa", [[70.0, *cached]])]
    return ladder(lanes, P=P, N=len(uncached) + 1).crossover(*lanes)


def test_crossover_by_hand():
    """Without a cache pass i takes i/4 ms, with one 2 ms. More than 2.1 from i = 9 on: 10 + 9 positions."""
    slow = [i / 4 for i in range(1, 21)]
    assert crossing(slow, [2.0] * 20) == 19
    slow[13] = 0.1  # one odd pass moves no median across
    assert crossing(slow, [2.0] * 20) == 19


@pytest.mark.parametrize(
    ("uncached", "cached", "found"),
    [
        ([4.0] * 9, [2.0] * 9, 15),  # at every length that can be told: the middle of nine passes, 11 to 19
        ([4.0] * 8, [2.0] * 8, None),  # too few
        ([2.1] * 20, [2.0] * 20, None),  # a tie
        ([4.0] * 12 + [1.0] * 12, [2.0] * 24, None),  # quicker, and slower again
        ([1.0] * 12 + [4.0] * 12, [2.0] * 24, 23),  # five of nine are from pass 13 on: the middle is pass 13
    ],
)
def test_crossover_needs_every_longer_length(uncached, cached, found):
    assert crossing(uncached, cached) == found


def test_running_median_by_hand():
    assert running_median(np.array([5.0, 1, 2, 9, 3]), 3).tolist() == [2, 2, 3]
    assert running_median(np.array([5.0, 1]), 3).size == 0


def test_pairs_are_of_one_kernel_and_one_precision_sdpa_first():
    lanes = [flat("none", "eager", [6.0]), flat("none", "sdpa", [5.0]), flat("concatenated", "eager", [3.0]),
             flat("concatenated", "sdpa", [2.5]), flat("preallocated", "sdpa", [2.0]),
             flat("preallocated", "sdpa", [0.5], compiled=True), flat("preallocated", "sdpa", [1.0], dtype="bfloat16"),
             lane("preallocated", "eager", [[9.0]], N=20)]  # fmt: skip
    found = ladder(lanes).pairs
    assert [(slow.name, fast.name, fast.dtype) for slow, fast in found] == [
        ("none, sdpa", "preallocated, sdpa", "float32"), ("none, eager", "concatenated, eager", "float32"),
    ]  # fmt: skip
    assert ladder([lanes[0], lanes[3]]).pairs == ()


def test_order_and_passes():
    lanes = [flat("none", "sdpa", [5.0, 7.0]), flat("concatenated", "sdpa", [2.0, 3.0]),
             lane("preallocated", "sdpa", [[9.0, 1.0, 1.0], [9.0, 1.0]], N=20)]  # fmt: skip
    found = ladder(lanes)
    assert [r.cache for r in found.order] == ["preallocated", "concatenated", "none"]
    assert found.passes == 3  # two and one after the first token; the others have 38
    assert ladder(lanes[:2]).passes == 38 and ladder([]).passes == 0
    begun = ladder([lane("none", "sdpa", [[9.0]], N=20), lanes[1]])
    assert [r.cache for r in begun.order] == ["concatenated"] and begun.passes == 0


@pytest.mark.parametrize(
    ("one", "other", "clear"),
    [
        ([4.0] * 3, [4.3] * 3, True),
        ([4.0] * 3, [4.2] * 3, False),  # 5 %: a tie
        ([4.0, 6.0, 8.0], [5.9, 7.9, 9.9], False),  # third quartile 7, first 6.9
        ([4.0, 6.0, 8.0], [6.1, 8.1, 10.1], True),  # 7 and 7.1
    ],
)
def test_the_quickest_is_clear_by_quartiles_and_five_per_cent(one, other, clear):
    assert ladder([flat("none", "sdpa", other), flat("concatenated", "sdpa", one)]).clear is clear


def test_nothing_is_clear_before_sixteen_passes_or_alone():
    lanes = [lane(c, "sdpa", [[9.0, *[ms] * 7]] * 2) for c, ms in (("none", 8.0), ("concatenated", 2.0))]
    assert not ladder(lanes, N=8).clear
    assert not ladder([flat("none", "sdpa", [8.0] * 2)]).clear
    lanes = [flat("none", "sdpa", [8.0]), flat("concatenated", "sdpa", [2.0])]
    assert not ladder(lanes).enough and not ladder(lanes).clear  # one repeat has no quartiles to speak of
    again = [flat("none", "sdpa", [8.0] * 2), flat("concatenated", "sdpa", [2.0] * 2)]
    assert ladder(again).enough and ladder(again).clear


def test_bytes_that_each_lane_must_hold():
    """73,728 bytes a position: what was fed, or room for 5 + 20 - 1 from the first pass on."""
    passes = [[1.0] * 8]
    found = ladder([], batch=3)
    assert found.held_formula(lane("none", "sdpa", passes, N=20)) == 0
    assert found.held_formula(lane("concatenated", "sdpa", passes, N=20)) == 3 * 12 * 73_728
    assert found.held_formula(lane("preallocated", "sdpa", passes, N=20)) == 3 * 24 * 73_728
    assert found.held_formula(lane("preallocated", "sdpa", passes, N=20, dtype="bfloat16")) == 3 * 24 * 36_864
    assert found.held_formula(lane("preallocated", "sdpa", [[]], N=20)) == 0


def checked(*rungs, **other) -> dict[str, tuple[str, float, float]]:
    return {c.name: (c.verdict, c.value, c.limit) for c in ladder(list(rungs), N=3, **other).checks}


def three(cache: str, held: int, chosen: tuple[int, ...] = (4, 5, 6), dtype: str = "float32"):
    return lane(cache, "sdpa", [[1.0, 1.0, 1.0]], held=np.full(3, held), chosen=np.array(chosen), dtype=dtype)


NONE, GROWN = three("none", 0), three("concatenated", 516_096)  # 7 positions
HALF = three("preallocated", 258_048, dtype="bfloat16")


def test_checks_hold():
    assert checked(NONE, GROWN, HALF) == {"same": ("holds", 3, 3), "held": ("holds", 2, 2)}
    assert checked(NONE) == {"same": ("holds", 3, 3)}  # keeps nothing: nothing to count
    assert checked(lane("none", "sdpa", [[]], N=3)) == {}


@pytest.mark.parametrize("held", [0, 516_095, 516_097, 2 * 516_096])
def test_wrong_bytes_are_found(held):
    assert checked(GROWN, three("preallocated", held))["held"] == ("fails", 1, 2)


def test_another_token_is_a_fault_in_full_precision_and_rounding_in_half():
    other = three("preallocated", 516_096, (4, 9, 6))
    assert checked(NONE, other)["same"] == ("fails", 2, 3)
    rounded = three("preallocated", 258_048, (4, 9, 6), "bfloat16")
    assert checked(NONE, GROWN, rounded)["same"] == ("rounding", 2, 3)
    assert checked(NONE, other, HALF)["same"] == ("fails", 2, 3)  # half precision beside it excuses nothing
    unsure = three("preallocated", 516_096, (4, 5, -1))  # its repeats, or rows of the batch, disagreed
    assert checked(unsure)["same"] == ("fails", 2, 3)
