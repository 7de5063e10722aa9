"""Passes under the roof: timed on copies that share the weights, one turn at a time, and only where they fit."""

from __future__ import annotations

import threading

import pytest
import torch

from kvviz.engine import cache_api
from kvviz.engine.lanes import sharing
from kvviz.features.ladder.record.ladder import Rates
from kvviz.features.problem import measure as growth
from kvviz.features.race.record import Spread
from kvviz.features.roofline import measure as roofline
from kvviz.measure import rates
from kvviz.theory import roofline as theory
from tests.unit.conftest import refused

KNOWN = Rates(Spread(10e9, 10e9, 10e9, 7), Spread(100e9, 100e9, 100e9, 7))
SHAKY = Rates(Spread(10e9, 5e9, 15e9, 7), Spread(100e9, 100e9, 100e9, 7))
P = 8


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(rates, "_known", {})


def measured(model, **more):
    return list(roofline.points(model, P, **{"batches": (1, 2), "rounds": 2, "known": KNOWN} | more))


def test_each_pass_is_timed_in_every_round(story_gpt2):
    every = measured(story_gpt2, quick_ms=0)
    first, last = every[0], every[-1]
    assert (first.state, first.rates, first.points) == ("running", None, ())
    assert (last.state, last.rounds, last.planned, last.rates) == ("done", 2, 2, KNOWN)
    assert [(p.step.kind, p.step.batch, p.ms.count) for p in last.points] == [
        ("prefill", 1, 2), ("decode", 1, 2), ("decode", 2, 2),
    ]  # fmt: skip
    assert all(p.ms.median > 0 for p in last.points)
    # 6 layers of 12 · 256², 4,096 · 256 for the logits; 4 · 32 · 8 · 6 a key, 9 keys in each text
    assert last.point("decode", 2).step.flops == 2 * (2 * 5_767_168 + 6_144 * 9)
    assert last.point("decode", 2).step.moved == 4 * 5_767_168 + 2 * 9 * 12_288
    assert len({r.key for r in every[1:]}) == 1


def test_prefill_of_several_prompts_is_timed_while_it_is_quick(story_gpt2):
    last = measured(story_gpt2, quick_ms=1e9)[-1]
    assert [(p.step.batch) for p in last.points if p.step.kind == "prefill"] == [1, 2]
    assert last.point("prefill", 2).step.flops == 2 * last.point("prefill", 1).step.flops


@pytest.mark.parametrize("name", ["story_gpt2", "story_llama"])
def test_pytorch_counts_the_operations_of_the_formula(name, request):
    (planned,) = roofline.plan(request.getfixturevalue(name), 64)
    assert [(c.name, c.verdict) for c in planned.checks] == [("flops_prefill", "holds"), ("flops_decode", "holds")]
    assert all(c.value <= 1 for c in planned.checks)


def test_a_wrong_formula_fails_that_proof(story_gpt2, monkeypatch):
    right = growth.matrix_values(story_gpt2)
    monkeypatch.setattr(growth, "matrix_values", lambda model: right * 11 // 10)
    (planned,) = roofline.plan(story_gpt2, P)
    assert {c.verdict for c in planned.checks} == {"fails"}
    assert planned.checks[1].value > 5


def test_the_shared_model_stays_as_it_is_and_its_weights_are_not_copied(story_gpt2):
    before = story_gpt2.module.config._attn_implementation
    copied = sharing(story_gpt2.module, "eager")
    for mine, shared in zip(copied.parameters(), story_gpt2.module.parameters(), strict=True):
        assert mine.data_ptr() == shared.data_ptr()
    assert copied.config._attn_implementation == "eager"
    assert story_gpt2.module.config._attn_implementation == before


def test_a_batch_is_the_same_text_over_and_over_in_memory_of_its_own(story_gpt2):
    module = sharing(story_gpt2.module, "sdpa")
    alone = cache_api.new_cache()
    roofline._forward(module, 1, 0, P, alone, story_gpt2.device)
    three = cache_api.repeated(alone, 3)
    assert cache_api.shape(three) == (6, 2, 3, 8, P, 32)
    assert cache_api.nbytes(three) == 3 * cache_api.nbytes(alone) == 3 * P * 12_288
    logits = roofline._forward(module, 3, P, 1, three, story_gpt2.device)
    one = roofline._forward(module, 1, P, 1, alone, story_gpt2.device)
    assert logits.shape == (3, 1, 4096)
    assert float((logits - one).abs().max()) <= 1e-3
    assert cache_api.length(three) == cache_api.length(alone) == P + 1


def test_rates_are_measured_once_for_a_device_and_format_unless_they_shook(story_gpt2, monkeypatch):
    found = [SHAKY, KNOWN, None]
    monkeypatch.setattr(rates, "measure", lambda *_, **__: found.pop(0))
    assert roofline.known_rates(story_gpt2) is None
    assert [roofline.rates_of(story_gpt2) for _ in range(3)] == [SHAKY, KNOWN, KNOWN]
    assert found == [None]
    assert rates._known.keys() == {("cpu", torch.float32)}
    (planned,) = roofline.plan(story_gpt2, P)
    assert planned.rates == KNOWN  # another length finds the roof drawn


def test_memory_is_asked_before_a_copy_of_a_quarter_gib(story_gpt2, monkeypatch):
    monkeypatch.setattr(roofline.memory, "there", lambda name: 700 * 2**20)
    refusal = refused("no_memory_for_rates", roofline.rates_of, story_gpt2)
    assert refusal.values["needed"] == "0.75 GiB"  # two tensors and the margin, 256 MiB each


def test_a_batch_without_room_is_left_out_and_named(story_gpt2, monkeypatch):
    """What two texts need is more than one does; there is room for one."""
    one, two = (roofline.step_of(story_gpt2.facts, 0, "decode", b, P, 1) for b in (1, 2))
    monkeypatch.setattr(roofline.memory, "there", lambda name: 0)
    needs = [roofline._lacks(story_gpt2, step).needed for step in (one, two)]
    monkeypatch.setattr(roofline.memory, "there", lambda name: needs[1] - 1)
    last = measured(story_gpt2, quick_ms=0)[-1]
    assert [(s.kind, s.batch, s.needed, s.there) for s in last.skipped] == [("decode", 2, needs[1], needs[1] - 1)]
    assert [(p.step.kind, p.step.batch) for p in last.points] == [("prefill", 1), ("decode", 1)]
    # 2 · 9 positions of K and V for each text; 4 bytes of 2 · 256 + 2 · 256 + 2 · 8 · 9 + 4,096 values
    assert needs[1] - needs[0] == 2 * 9 * 12_288 + 4 * (1024 + 144 + 4096)


def test_stop_comes_between_passes_and_the_model_is_free_there(story_gpt2):
    stop, seen = threading.Event(), []

    def others_turn(taken: threading.Event) -> None:
        with story_gpt2.lock:
            taken.set()

    for record in roofline.points(story_gpt2, P, batches=(1, 2), rounds=50, stop=stop, known=KNOWN, quick_ms=0):
        seen.append(record)
        taken = threading.Event()
        threading.Thread(target=others_turn, args=(taken,), daemon=True).start()
        assert taken.wait(60)
        if record.points:
            stop.set()
    assert seen[-1].state == "stopped" and seen[-1].rounds < 50
    assert seen[-1].points == seen[-2].points


def test_positions_past_the_last_are_refused(story_gpt2):
    refused("too_many_new", lambda: next(roofline.points(story_gpt2, 1024)))
    refused("too_long", lambda: next(roofline.plan(story_gpt2, 1025)))


def test_theory_and_engine_speak_of_the_same_ridge(story_gpt2):
    last = measured(story_gpt2, quick_ms=0)[-1]
    assert last.ridge == theory.ridge(100e9, 10e9) == 10
