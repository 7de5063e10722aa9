"""The race: its arithmetic on numbers worked out on paper, and its order, tokens and stopping on a real model
whose clock is a script. Nothing here depends on how fast the machine is."""

from __future__ import annotations

import dataclasses
import math
import threading

import numpy as np
import pytest
from paper_race import MODEL, THREE, paper_race

from kvviz.core import Sampling
from kvviz.features.race.record import Spread

FIVE = "Once upon a time"  # five tokens in the built-in vocabulary


def test_ratio_and_quartiles_are_of_the_repeats():
    # no cache, time so far: 10 14 20, 10 18 24, 10 16 22; cache: 10 12 14, 10 14 16, 12 15 17
    assert THREE.uncached.cumulative.tolist() == [10, 16, 22]
    assert THREE.cached.cumulative.tolist() == [10, 14, 16]
    # repeat by repeat: 20/14, 24/16, 22/17 = 1.4286, 1.5, 1.2941; the quartiles lie half-way between neighbours
    assert THREE.ratio == THREE.ratios.median == pytest.approx(20 / 14)
    assert THREE.ratios.low == pytest.approx((22 / 17 + 20 / 14) / 2)
    assert THREE.ratios.high == pytest.approx((20 / 14 + 1.5) / 2)


@pytest.mark.parametrize("repeats", [1, 2, 3, 4, 7])
def test_the_ratio_lies_within_its_quartiles(repeats):
    """Passes held up here and there, each repeat others: no sum of medians has them, each repeat's sum has its own."""
    draw = np.random.default_rng(repeats)
    for _ in range(50):
        slow, fast = (base * (1 + 9 * (draw.random((repeats, 20)) < 0.1)) for base in (2.0, 1.0))
        race = paper_race(slow, fast)
        assert race.ratios.count == repeats
        assert race.ratios.low <= race.ratio <= race.ratios.high


def test_a_repeat_that_is_not_through_does_not_move_the_clock():
    nan = math.nan
    race = paper_race([[4, 2, 2], [40, 20, nan]], [[4, 1, 1], [40, 10, nan]], state="running")
    assert race.uncached.cumulative.tolist() == [4, 6, 8] and race.cached.cumulative.tolist() == [4, 5, 6]
    assert race.ratio == pytest.approx(8 / 6)


def test_what_the_medians_leave_out_is_a_number():
    # medians 10 and 2, so 10 + 4 · 2 = 18; the repeat took 10 + 2 + 2 + 2 + 20 = 36
    lane = paper_race([[10, 2, 2, 2, 20]], [[1] * 5]).uncached
    assert (lane.by_medians, lane.gap) == (18, 2)


def test_first_and_later_tokens_are_told_apart():
    assert THREE.cached.ttft == Spread(10, 10, 11, 3)
    assert THREE.uncached.tpot.median == 6  # of 4 6 8 6 6 6
    assert THREE.cached.tpot.median == 2  # of 2 2 4 2 3 2
    assert THREE.later_ratio == 3
    assert (THREE.passes, THREE.outcome, THREE.tail) == (6, "measuring", None)


def test_work_saved_is_counted_not_timed():
    race = paper_race([[1.0] * 20] * 3, [[1.0] * 20] * 3)
    assert race.rows == (290, 24)
    assert race.work_ratio == pytest.approx(12.08, abs=0.01)
    long = paper_race([[1.0] * 100], [[1.0] * 100], P=100)
    assert long.rows == (14_950, 199)
    assert long.work_ratio == pytest.approx(75.1, abs=0.05)
    assert race.bytes_formula == 24 * 128 == race.cached.bytes_held[-1]


@pytest.mark.parametrize(
    ("slow", "fast", "outcome"),
    [
        ([[2.0] * 17] * 3, [[1.0] * 17] * 3, "paid"),
        ([[0.9] * 17] * 3, [[1.0] * 17] * 3, "lost"),
        ([[1.04] * 17] * 3, [[1.0] * 17] * 3, "even"),  # within 5 %
        ([[2.0] * 17, [0.8] * 17, [1.2] * 17], [[1.0] * 17] * 3, "even"),  # 1.2, but one repeat says 0.8
        ([[2.0] * 16] * 1, [[1.0] * 16] * 1, "measuring"),  # 15 passes after the first
        ([[2.0]] * 3, [[1.0]] * 3, "first_only"),
    ],
)
def test_what_may_be_said(slow, fast, outcome):
    assert paper_race(slow, fast).outcome == outcome


def test_a_stopped_repeat_does_not_count_as_whole():
    nan = math.nan
    race = paper_race([[4, 2, 2], [4, 2, nan]], [[4, 1, 1], [4, 1, nan]], state="stopped")
    assert race.complete == 1
    assert race.ratios == Spread(8 / 6, 8 / 6, 8 / 6, 1)
    assert race.passes == 3
    early = paper_race([[4, 2]], [[4, 1]], new=9, state="stopped")  # within the first repeat
    assert (early.complete, early.n, early.ratio) == (0, 2, 6 / 5)


def test_the_last_passes_explain_the_ratio():
    # 41 passes, 1 repeat: the last quarter is 10, fewer than 16, so 16; no cache i ms, cache 2 ms
    race = paper_race([list(range(41))], [[2.0] * 41])
    assert race.tail.passes == 16
    assert race.tail.uncached_ms == np.median(range(25, 41))
    assert race.tail.rows == 5 + 33  # the middle one of passes 25 .. 40
    # 3 repeats of 101: a quarter of the 100 later passes is 25, 75 passes in all
    assert paper_race([[1.0] * 101] * 3, [[1.0] * 101] * 3).tail.passes == 75


def test_a_verdict_can_fail():
    assert THREE.verdict == "holds"
    far = np.full(3, 0.01, dtype=np.float32)
    assert dataclasses.replace(THREE, max_abs_dlogit=far).verdict == "fails"
    other = dataclasses.replace(THREE.uncached, chosen=THREE.ids + 1)
    assert dataclasses.replace(THREE, uncached=other).verdict == "fails"
    half = dataclasses.replace(MODEL, dtype="bfloat16")
    assert (
        dataclasses.replace(THREE, uncached=other, max_abs_dlogit=far, model=half, tolerance=2.0).verdict == "rounding"
    )
    assert dataclasses.replace(THREE, max_abs_dlogit=far * 1000, model=half, tolerance=2.0).verdict == "fails"


class Script:
    """Stands in for `run_pass`: runs the real pass, writes down who ran, and tells the milliseconds it is told to."""

    def __init__(self, ms=lambda cached, rows: 1.0, each=lambda call: None, logits=lambda cached, logits: logits):
        self.calls: list[tuple[bool, int, int, bool]] = []  # cached, rows, start, listening
        self.ms, self.each, self.logits = ms, each, logits

    def __call__(self, model, ids, start, cache, *, listen):
        from kvviz.engine.feed import run_pass

        cached = cache is not None
        self.calls.append((cached, len(ids), start, listen))
        self.each(len(self.calls))
        done = run_pass(model, ids, start, cache, listen=listen)
        return dataclasses.replace(done, ms=self.ms(cached, len(ids)), logits=self.logits(cached, done.logits))


def go(model, new, *, prompt=FIVE, script=None, **options):
    from kvviz.features.race.measure import race

    return list(race(model, prompt, new, run=script or Script(), **options))


WARM = 6  # untimed passes: two cached and one uncached, at the shortest prefix and at the longest


def test_lanes_take_turns_and_swap_who_goes_first(story_gpt2):
    script = Script()
    go(story_gpt2, 4, script=script, repeats=2)
    raced = script.calls[WARM:]
    assert [c[0] for c in raced[0::2]] == [True, False, True, False, False, True, False, True]
    assert all(a[0] != b[0] for a, b in zip(raced[0::2], raced[1::2], strict=True))
    assert not any(listening for *_, listening in script.calls)
    with_, without = [c for c in raced if c[0]], [c for c in raced if not c[0]]
    assert [(rows, start) for _, rows, start, _ in with_] == [(5, 0), (1, 5), (1, 6), (1, 7)] * 2
    assert [(rows, start) for _, rows, start, _ in without] == [(5, 0), (6, 0), (7, 0), (8, 0)] * 2


def test_both_lanes_keep_one_row_of_logits(story_gpt2):
    kept = []
    handle = story_gpt2.module.lm_head.register_forward_pre_hook(lambda _, given: kept.append(given[0].shape[1]))
    go(story_gpt2, 3, repeats=1)
    handle.remove()
    assert kept[-6:] == [1] * 6  # rows that reach the output matrix


def test_five_and_twenty(story):
    import torch

    steps = go(story, 20, script=Script(lambda cached, rows: 2.0 if cached else 2.0 + rows / 10), repeats=3)
    assert [s.n for s in steps] == [*range(1, 21), *([20] * 40)]
    assert [s.state for s in steps] == ["running"] * 59 + ["done"]
    done = steps[-1]
    assert done.P == 5
    assert done.rows == (290, 24)
    per_token = {"story-gpt2": 12_288, "story-llama": 3_072}[story.facts.name]
    assert done.cached.bytes_held.tolist() == [per_token * t for t in range(5, 25)]
    assert done.bytes_formula == 24 * per_token
    assert not done.uncached.bytes_held.any()
    assert done.uncached.ms.shape == done.cached.ms.shape == (3, 20)
    assert (done.verdict, done.same_token.sum()) == ("holds", 20)
    # every cached pass 2 ms; without, 2 ms and a tenth a row: 20 · 2 + 290 / 10 = 69
    assert done.ratio == pytest.approx(69 / 40)
    assert done.outcome == "paid"
    ids = torch.tensor([done.prompt_ids.tolist()])
    with torch.inference_mode():  # a loop of its own: the whole text each time, the model's own mask and positions
        for token in done.ids.tolist():
            assert int(story.module(input_ids=ids, use_cache=False).logits[0, -1].argmax()) == token
            ids = torch.cat([ids, torch.tensor([[token]])], dim=1)


def test_a_ratio_below_one_is_told_as_it_is(story_gpt2):
    done = go(story_gpt2, 20, script=Script(lambda cached, rows: 2.0 if cached else 1.8))[-1]
    assert done.ratio == pytest.approx(0.9)
    assert done.outcome == "lost"


def test_a_wrong_cache_is_found(story_gpt2):
    done = go(story_gpt2, 3, script=Script(logits=lambda cached, x: x + 0.5 if cached else x), repeats=1)[-1]
    assert done.max_abs_dlogit == pytest.approx(0.5, abs=1e-3)
    assert done.verdict == "fails"
    flipped = go(story_gpt2, 3, script=Script(logits=lambda cached, x: x if cached else -x), repeats=1)[-1]
    assert not flipped.same_token.any()
    assert flipped.verdict == "fails"


@pytest.mark.parametrize("at", [1, 2, 7, 8, 9])
def test_stop_leaves_a_whole_number_of_tokens(story_gpt2, at):
    stop = threading.Event()
    script = Script(each=lambda call: stop.set() if call == WARM + at else None)
    last = go(story_gpt2, 3, script=script, stop=stop, repeats=3)[-1]
    tokens = -(-at // 2)  # the pass in progress ends, and so does the other lane's
    assert last.state == "stopped"
    assert len(script.calls) == WARM + 2 * tokens
    assert last.n == min(tokens, 3)
    for lane in (last.uncached, last.cached):
        assert np.isfinite(lane.ms).sum() == tokens
        assert len(lane.rows) == len(lane.bytes_held) == len(lane.chosen) == last.n
    assert last.complete == tokens // 3


def test_stopped_before_the_first_token(story_gpt2):
    stop = threading.Event()
    stop.set()
    (only,) = go(story_gpt2, 3, stop=stop)
    assert (only.state, only.n, only.passes, only.outcome) == ("stopped", 0, 0, "measuring")


def test_repeats_are_added_while_they_are_cheap(story_gpt2):
    from kvviz.features.race.measure import least_repeats

    assert [least_repeats(n) for n in (1, 2, 3, 5, 17, 100)] == [3, 16, 8, 4, 3, 3]
    clock = iter([0.0, 0.5])  # a repeat takes half a second: eight fit in four
    assert go(story_gpt2, 17, clock=lambda: next(clock))[-1].complete == 8
    clock = iter([0.0, 60.0])
    assert go(story_gpt2, 17, clock=lambda: next(clock))[-1].complete == 3


def test_a_prompt_of_another_length(story_gpt2):
    from kvviz.core.refusal import Refusal

    own = story_gpt2.encode(FIVE)
    assert go(story_gpt2, 1, length=12, repeats=1)[-1].prompt_ids.tolist() == [*own, *own, *own[:2]]
    assert go(story_gpt2, 1, length=2, repeats=1)[-1].prompt_ids.tolist() == own[:2]
    for length, new, code in ((1000, 26, "too_many_new"), (1025, 1, "too_long")):
        with pytest.raises(Refusal) as refused:
            go(story_gpt2, new, length=length)
        assert refused.value.code == code
    with pytest.raises(Refusal) as refused:
        go(story_gpt2, 1, prompt="")
    assert refused.value.code == "empty_prompt"


def test_a_seeded_race_writes_what_the_run_writes(story_gpt2):
    from kvviz.engine import Session

    sampling = Sampling(temperature=0.9, top_k=30, seed=5)
    raced = go(story_gpt2, 12, sampling=sampling, repeats=2)[-1]
    run = Session(story_gpt2, FIVE, sampling, compare=False).advance(12)
    assert raced.ids.tolist() == run.new_ids.tolist()
    assert raced.same_token.all()


def test_waits_times_first_and_later_tokens(story_gpt2):
    """D05"""
    from kvviz.features.race.measure import LATER, waits

    script = Script(lambda cached, rows: float(rows))  # a millisecond a row
    steps = list(waits(story_gpt2, FIVE, lengths=(3, 40, 1020), repeats=3, run=script))
    done = steps[-1]
    assert [s.state for s in steps] == ["running"] * 5 + ["done"]
    assert done.lengths == (3, 40)  # 1,020 + 6 would not fit in 1,024
    assert [s.median for s in done.ttft] == [3, 40]
    assert [(s.median, s.count) for s in done.tpot] == [(1, 3 * LATER)] * 2
    assert all(cached for cached, rows, start, _ in script.calls[-2 * (LATER + 1) :])
