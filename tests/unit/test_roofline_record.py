"""Bytes, operations, floors and shares of GPT-2 small's passes, worked out on paper."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from kvviz.features.ladder.record.ladder import Rates
from kvviz.features.race.record import Lane, Spread
from kvviz.features.roofline.record import Point, Roofline, Skipped, lanes_of, step_of, steps_of
from kvviz.theory import roofline
from tests.factories import MACHINE, model_facts

SMALL = model_facts(12, 12, 12, 64, name="gpt2", vocab_size=50_257)
MATRICES = 12 * 12 * 768**2  # 84,934,656; with the output matrix of 38,597,376 four bytes each: 494,128,128
WEIGHTS = 494_128_128
KNOWN = Rates(Spread(10e9, 9e9, 11e9, 7), Spread(100e9, 95e9, 105e9, 7))


def roof(P: int, **more) -> Roofline:
    return Roofline("key", SMALL, MACHINE, P, MATRICES, steps_of(SMALL, MATRICES, P), **more)


def test_a_decode_step_moves_the_weights_once_and_each_texts_k_and_v():
    """1,024 positions are 75,497,472 bytes of K and V a text, 2 · 12 · 12 · 64 · 4 each."""
    one, many = (step_of(SMALL, MATRICES, "decode", b, 1023, 1) for b in (1, 64))
    assert (one.weights, one.kv, one.moved) == (WEIGHTS, 75_497_472, 569_625_600)
    assert many.moved == WEIGHTS + 64 * 75_497_472 == 5_325_966_336
    # 2 · 123,532,032 weights and 4 · 64 · 12 · 12 a key
    assert one.flops == 247_064_064 + 36_864 * 1024 == 284_812_800
    assert many.flops == 64 * 284_812_800
    assert (round(one.intensity, 4), round(many.intensity, 4)) == (0.5, 3.4225)
    assert (one.copied, many.copied) == (2 * 1023 * 73_728, 128 * 1023 * 73_728)


def test_prefill_moves_the_same_weights_for_all_rows():
    one, four = (step_of(SMALL, MATRICES, "prefill", b, 0, 512) for b in (1, 4))
    assert one.moved == WEIGHTS + 512 * 73_728 == 531_876_864
    assert one.flops == 86_973_087_744 + 9_663_676_416 + 77_194_752
    assert four.moved == WEIGHTS + 4 * 37_748_736 and four.flops == 4 * one.flops
    assert one.copied == 0
    assert round(one.intensity) == 182


def test_a_pass_without_a_cache_keeps_nothing():
    assert step_of(SMALL, MATRICES, "race_uncached", 1, 0, 512).moved == WEIGHTS


def test_half_precision_halves_the_bytes_and_no_operation():
    half = dataclasses.replace(SMALL, dtype="bfloat16", value_bytes=2)
    full, half = (step_of(m, MATRICES, "decode", 8, 100, 1) for m in (SMALL, half))
    assert (half.moved * 2, half.flops) == (full.moved, full.flops)


def test_from_which_batch_arithmetic_decides():
    """100 · B operations for 1,000 + 20 · B bytes: 2 a byte from B = 33.3 on; 5 is never reached."""
    assert roofline.fed_to_reach(2, 1000, 2, 100, 9) == 34
    assert roofline.fed_to_reach(5, 1000, 2, 100, 9) is None
    assert roofline.moved(1000, 34, 9, 1, 2) == 1680  # 3,400 / 1,680 = 2.02; 3,300 / 1,660 = 1.99
    # One position held: 2 · 73,728 bytes, 247,064,064 + 73,728 operations: B / 2 a byte, nearly; the ridge is at 10.
    assert roof(1, rates=KNOWN).turning == 21
    assert roof(1023, rates=KNOWN).turning is None  # it ends before 284,812,800 / 75,497,472 = 3.77
    assert roof(1023).turning is None and roof(1023).ridge is None


def test_shares_and_floor_of_a_point():
    """569,625,600 bytes at 10 GB/s are 56.96 ms, 284,812,800 operations at 100 GFLOP/s are 2.85 ms."""
    step = step_of(SMALL, MATRICES, "decode", 1, 1023, 1)
    point = Point(step, Spread(113.92512, 110, 120, 16), KNOWN)
    assert point.floor_ms == pytest.approx(56.96256)
    assert point.distance == pytest.approx(2) and point.mbu == pytest.approx(0.5)
    assert point.mfu == pytest.approx(0.025)
    assert point.achieved == pytest.approx(2.5e9)
    assert point.of_roof == pytest.approx(2.5e9 / 5.5e9, rel=1e-3)  # half a FLOP for each of 11 GB/s
    assert point.enough and not Point(step, Spread(1, 1, 1, 15), KNOWN).enough
    prefill = Point(step_of(SMALL, MATRICES, "prefill", 1, 0, 512), Spread(2000, 1, 1, 16), KNOWN)
    assert prefill.floor_ms == pytest.approx(967.13958912)


def test_the_proofs_can_fail():
    counted = roof(1023, rates=KNOWN, points=(Point(roof(1023).steps[1], Spread(60, 59, 61, 16), KNOWN),))
    assert [(c.name, c.verdict) for c in counted.checks] == [("steady", "holds"), ("roof_bytes", "holds")]
    assert counted.checks[0].value == pytest.approx(20)  # 9 to 11 about 10; 95 to 105 about 100
    assert counted.checks[1].value == pytest.approx(100 * 56.96256 / 60 / 1.1)
    quick = dataclasses.replace(counted, points=(Point(counted.steps[1], Spread(40, 1, 1, 16), KNOWN),))
    assert quick.checks[1].verdict == "fails"
    wide = Rates(Spread(10e9, 8e9, 11e9, 7), KNOWN.flop_rate)
    assert [c.verdict for c in dataclasses.replace(counted, rates=wide, points=()).checks] == ["fails"]
    prefill = Point(counted.steps[0], Spread(1, 1, 1, 16), KNOWN)
    assert dataclasses.replace(counted, points=(prefill,)).checks[1].name == "roof_arithmetic"
    few = Point(counted.steps[1], Spread(1, 1, 1, 3), KNOWN)  # too few passes to be held against anything
    assert [c.name for c in dataclasses.replace(counted, points=(few,)).checks] == ["steady"]


def race(model, *, later: int = 16):
    ms = np.full((1, later + 1), 30.0)
    lane = Lane(ms, *(np.zeros(later + 1, np.int64),) * 3)
    return SimpleNamespace(model=model, P=100, n=later + 1, passes=later, cached=lane, uncached=lane)


def test_the_lanes_of_a_race_have_floors_of_their_own():
    """The middle of 100 + 17 tokens is position 108: one row against 108 keys, or 108 rows."""
    here = roof(256, rates=KNOWN)
    cached, uncached = lanes_of(race(SMALL), here)
    assert (cached.step.held, cached.step.new, uncached.step.held, uncached.step.new) == (107, 1, 0, 108)
    assert cached.floor_ms == pytest.approx((WEIGHTS + 108 * 73_728) / 10e9 * 1000)
    rows = 2 * MATRICES * 108 + 36_864 * 108**2 + 2 * 50_257 * 768
    assert uncached.floor_ms == pytest.approx(rows / 100e9 * 1000)  # 188.5 ms of arithmetic, 49.4 of bytes
    assert cached.ms.median == 30
    other = dataclasses.replace(SMALL, dtype="bfloat16")
    for none in (None, race(other), race(SMALL, later=15)):
        assert lanes_of(none, here) == ()
    assert lanes_of(race(SMALL), roof(256)) == ()


def test_what_was_left_out_stays_known():
    found = roof(256, skipped=(Skipped("decode", 64, 10, 5),))
    assert found.step("decode", 64) is not None and found.point("decode", 64) is None
    assert not found.enough
