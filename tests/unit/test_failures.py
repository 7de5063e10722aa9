"""Memory that runs out, a device that fails: the run they hit ends with a sentence, and hurts nobody else's."""

from __future__ import annotations

import gc
import threading
import types
import weakref
from collections import OrderedDict
from concurrent.futures import Future

import pytest
import torch

from kvviz.core import Sampling, lessons
from kvviz.core.refusal import Refusal
from kvviz.engine import Session, attention, cache_api, failures
from kvviz.features.race import measure as races
from kvviz.models import device, loading
from tests.unit.conftest import refused

TALE = "Dorothy and the Tin Woodman"
OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]
ASSERTION = getattr(torch, "AcceleratorError", RuntimeError)("CUDA error: device-side assert triggered")


@pytest.fixture(autouse=True)
def nothing_lost(monkeypatch):
    monkeypatch.setattr(device, "lost", set())
    monkeypatch.setattr(loading, "_loaded", OrderedDict(loading._loaded))


@pytest.fixture
def break_pass(monkeypatch):
    """`break_pass(error, after)`: this thread's forwards raise from the one after so many on. Gives what the frames
    that raised held, as weak references."""

    def install(error: BaseException, after: int = 0, thread: int | None = None) -> list[weakref.ref]:
        real, mine, count, held = cache_api.forward, thread or threading.get_ident(), iter(range(10**6)), []

        def forward(*args, **kwargs):
            if threading.get_ident() == mine and next(count) >= after:
                scores = torch.zeros(1000)
                held.append(weakref.ref(scores))
                raise error
            return real(*args, **kwargs)

        monkeypatch.setattr(cache_api, "forward", forward)
        return held

    return install


def is_free(model) -> bool:
    """Can another thread have the model's lock now?"""
    got = threading.Event()

    def ask() -> None:
        with model.lock:
            got.set()

    threading.Thread(target=ask, daemon=True).start()
    return got.wait(timeout=5)


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda e: type(e).__name__)
def test_a_run_out_of_memory_ends_and_gives_back_what_it_held(story_gpt2, break_pass, monkeypatch, error):
    session = Session(story_gpt2, TALE)
    session.advance(3)
    before = session.run
    assert not session.ended
    kept = [weakref.ref(t) for t in cache_api.tensors(session._cache)]
    freed = []
    monkeypatch.setattr(device, "free", freed.append)
    held = break_pass(error, after=1)  # the pass goes well, its twin does not
    refusal = refused("out_of_memory", session.decode_one_token)
    assert refusal.values == {"model": "story-gpt2", "device": "cpu"}
    assert (refusal.__cause__, refusal.__context__) == (None, None)
    gc.collect()
    assert len(kept) == 12
    assert len(held) == 1
    assert [ref() for ref in kept + held] == [None] * 13  # though `refusal` is kept
    assert freed == [story_gpt2.device]
    assert (session.room, session.ended) == (0, True)
    assert session.run is before
    assert len(before.steps) == 3
    refused("session_broken", session.decode_one_token)
    assert is_free(story_gpt2)
    assert attention._sink.get() is None
    for language in lessons.LANGUAGES:
        assert "story-gpt2" in lessons.text(language, "refusals", refusal.code, **refusal.shown())


@pytest.mark.parametrize("warm", [True, False])
def test_a_prefill_out_of_memory(story_gpt2, break_pass, monkeypatch, warm):
    """In the pass itself, or in the warm-up before it."""
    monkeypatch.setattr(story_gpt2, "warmed", {16} if warm else set())
    session = Session(story_gpt2, TALE)  # 9 tokens
    break_pass(OUT_OF_MEMORY[0])
    refused("out_of_memory", session.prefill)
    assert (session.room, session.ended) == (0, True)
    assert session.run.steps == ()
    refused("session_broken", session.prefill)
    monkeypatch.undo()
    assert 16 in story_gpt2.warmed or not warm
    assert len(Session(story_gpt2, TALE).advance(2).steps) == 2


def test_the_other_runs_on_the_model_go_on(story, break_pass):
    """Each as if alone, in text and numbers, while one of them runs out of memory again and again."""
    settings = Sampling(temperature=0.8, seed=4)
    alone = Session(story, TALE, settings).advance(20)
    begun, runs, ended = threading.Event(), {}, []

    def hungry() -> None:
        begun.wait()
        for _ in range(4):
            try:
                Session(story, "The Scarecrow").advance(20)
            except Refusal as refusal:
                ended.append(refusal.code)

    def other(name: int) -> None:
        begun.wait()
        runs[name] = Session(story, TALE, settings).advance(20)

    bad = threading.Thread(target=hungry)
    threads = [bad, *(threading.Thread(target=other, args=(i,)) for i in range(2))]
    for thread in threads:
        thread.start()
    break_pass(OUT_OF_MEMORY[0], after=3, thread=bad.ident)
    begun.set()
    for thread in threads:
        thread.join()
    assert ended == ["out_of_memory"] * 4
    assert sorted(runs) == [0, 1]
    for run in runs.values():
        assert run.new_ids.tolist() == alone.new_ids.tolist()
        for step, wanted in zip(run.steps, alone.steps, strict=True):
            assert (step.kv_shape, step.kv_bytes) == (wanted.kv_shape, wanted.kv_bytes)
            assert abs(step.chosen_prob - wanted.chosen_prob) < 1e-5
            assert {p.verdict for p in step.proofs} == {"holds"}
    assert is_free(story)


def test_a_race_out_of_memory_ends(story_gpt2, break_pass, monkeypatch):
    freed = []
    monkeypatch.setattr(device, "free", freed.append)
    racing = races.race(story_gpt2, TALE, 6, repeats=3)
    seen = [next(racing), next(racing)]
    held = break_pass(OUT_OF_MEMORY[1], after=1)  # one lane has its pass, the other does not
    refusal = refused("out_of_memory", next, racing)
    gc.collect()
    assert [ref() for ref in held] == [None]
    assert refusal.__context__ is None
    assert (seen[-1].n, seen[-1].state) == (2, "running")  # what was measured stays
    assert next(racing, None) is None
    assert freed == [story_gpt2.device]
    assert is_free(story_gpt2)
    monkeypatch.undo()
    *_, last = races.race(story_gpt2, TALE, 3, repeats=1)
    assert last.state == "done"


def test_first_token_times_and_the_uncached_run_end_the_same_way(story_gpt2, break_pass):
    measuring = races.waits(story_gpt2, TALE, lengths=(4, 8), repeats=2)
    alone = Session(story_gpt2, TALE).generate_without_cache(5)
    next(measuring)
    next(alone)
    break_pass(OUT_OF_MEMORY[2])
    refused("out_of_memory", next, measuring)
    refused("out_of_memory", next, alone)
    assert is_free(story_gpt2)


def test_a_generator_that_is_dropped_is_closed():
    closed = []

    def steps():
        try:
            yield from range(5)
        finally:
            closed.append(True)

    told = failures.each_or_end(types.SimpleNamespace(device=torch.device("cpu")), steps())
    assert next(told) == 0
    told.close()
    assert closed == [True]


def test_a_failed_kernel_on_a_device_that_still_answers_ends_one_run(story_gpt2, break_pass, monkeypatch):
    session = Session(story_gpt2, TALE)
    session.advance(2)
    with monkeypatch.context():
        break_pass(ASSERTION)
        assert refused("device_failed", session.decode_one_token).values == {"device": "cpu"}
        monkeypatch.undo()
    assert (session.room, session.ended) == (0, True)
    assert device.lost == set()
    assert len(Session(story_gpt2, TALE).advance(3).steps) == 3


def test_a_device_that_no_longer_answers_is_given_up(monkeypatch):
    """Models on it are loaded anew, and `pick` goes to the CPU from then on."""

    def dead(*_, **__):
        raise ASSERTION

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "empty_cache", dead)
    monkeypatch.setattr(torch, "ones", dead)
    assert str(device.pick()) == "cuda:0"
    for where in ("cuda:0", "cuda:1", "cpu"):
        loading._loaded["x", where, "float32"] = Future()
    model = types.SimpleNamespace(device=torch.device("cuda:0"), facts=types.SimpleNamespace(name="x"))
    refusal = refused("device_lost", failures.run_or_end, model, dead)
    assert refusal.values == {"device": "cuda:0"}
    assert device.lost == {"cuda"}
    assert [key for key in loading._loaded if key[0] == "x"] == [("x", "cpu", "float32")]
    assert str(device.pick()) == "cpu"
    for language in lessons.LANGUAGES:
        assert "cuda:0" in lessons.text(language, "refusals", refusal.code, **refusal.shown())


def test_any_other_error_stays_what_it_is(story_gpt2, break_pass):
    session = Session(story_gpt2, TALE)
    session.advance(2)
    break_pass(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1") as caught:
        session.decode_one_token()
    assert type(caught.value) is RuntimeError
    assert not session.ended
    assert session.room > 0  # back at its last step
