"""The learner's worker: targets are absolute, Stop falls between two passes, a new run drops the old one."""

from __future__ import annotations

import threading

import pytest

from kvviz.core.refusal import Refusal
from kvviz.ui import job, warm
from kvviz.ui.learner import Learner
from tests.unit.learner_kit import PROMPT, finished, lengths, settings, until


@pytest.fixture
def learner():
    made = Learner()
    yield made
    made.stop()


def test_a_run_stops_at_its_new_tokens(learner):
    learner.start(settings(new=3), compare=True)
    until(lambda: finished(learner))
    assert lengths(learner) == [9, 10, 11]
    assert learner.run.compared
    assert learner.progress().room == 1024 - 11


def test_five_presses_are_five_passes_however_they_arrive(learner):
    learner.start(settings(new=1), compare=False)
    until(lambda: finished(learner))
    for to in (2, 3, 3, 6, 4):  # messages that overtook each other, one twice
        learner.extend(to)
    until(lambda: finished(learner))
    assert lengths(learner) == [9, 10, 11, 12, 13, 14]


def test_extend_waits_for_its_pass(learner):
    learner.start(settings(new=1), compare=False)
    until(lambda: finished(learner))
    learner.extend(2, wait=60)
    assert len(learner.run.steps) == 2


def test_stop_falls_between_two_passes(learner):
    learner.start(settings(new=200), compare=True)
    until(lambda: learner.run is not None and len(learner.run.steps) >= 5)
    learner.stop()
    until(lambda: finished(learner))
    run = learner.run
    assert 5 <= len(run.steps) < 200
    assert all(s.kv_shape[4] == s.length_after == 9 + s.index for s in run.steps)
    assert all(s.twin is not None for s in run.steps)
    stopped_at = len(run.steps)
    learner.extend(stopped_at + 1, wait=60)  # and it can go on from there
    assert len(learner.run.steps) == stopped_at + 1


def test_a_run_started_during_a_run_replaces_it_whole(learner):
    learner.start(settings(new=300), compare=False)
    until(lambda: learner.run is not None and len(learner.run.steps) >= 2)
    learner.start(settings(prompt="The king", new=4), compare=False)
    until(lambda: finished(learner))
    assert learner.run.prompt == "The king"
    assert len(learner.run.steps) == 4


def test_the_old_run_stays_until_the_new_one_has_its_prefill(learner, monkeypatch):
    learner.start(settings(new=1), compare=False)
    until(lambda: finished(learner))
    first, gate = learner.run, threading.Event()
    real = warm.model
    monkeypatch.setattr(warm, "model", lambda name, dtype: (gate.wait(60), real(name, dtype))[1])
    learner.start(settings(prompt="The king", new=1), compare=False)
    assert learner.run is first
    assert not learner.owns(first)
    gate.set()
    until(lambda: finished(learner))
    assert learner.run.prompt == "The king"
    assert learner.owns(learner.run)


def test_a_run_ends_where_the_positions_do(learner):
    prompt = "the" + " the" * 1021
    learner.start(settings(prompt=prompt, new=50), compare=False)
    until(lambda: finished(learner))
    run, progress = learner.run, learner.progress()
    assert run.length == 1024
    assert len(run.steps) == 1024 - run.P + 1
    assert progress.at_limit
    assert progress.refusal is None
    learner.extend(10**6, wait=5)
    assert learner.run is run


def test_what_can_not_be_run_is_refused_with_its_code(learner):
    learner.start(settings(prompt="the" + " the" * 1200), compare=False)
    until(lambda: finished(learner))
    assert learner.progress().refusal.code == "too_long"
    learner.start(settings(model="no-such-model"), compare=False)
    until(lambda: finished(learner))
    assert isinstance(learner.progress().refusal, Refusal)
    assert learner.progress().refusal.code == "unknown_model"
    assert not learner.progress().failed


def test_a_pass_that_breaks_keeps_all_before_it(monkeypatch, caplog):
    learner = Learner(ahead=0)  # no pass is there before it is asked for
    learner.start(settings(new=2), compare=False)
    until(lambda: finished(learner))
    monkeypatch.setattr(learner.session, "decode_one_token", lambda: 1 / 0)
    learner.extend(3, wait=60)
    assert learner.progress().failed
    assert lengths(learner) == [9, 10]
    assert "ZeroDivisionError" in caplog.text
    learner.start(settings(new=2), compare=False)
    until(lambda: finished(learner))
    assert not learner.progress().failed
    assert lengths(learner) == [9, 10]


def test_stop_before_the_first_pass_starts_nothing(learner, monkeypatch):
    gate, real = threading.Event(), warm.model
    monkeypatch.setattr(warm, "model", lambda name, dtype: (gate.wait(60), real(name, dtype))[1])
    monkeypatch.setattr(job, "IDLE_SECONDS", 0.05)
    learner.start(settings(), compare=False)
    learner.stop()
    gate.set()
    until(lambda: learner._worker is None)  # it has had its chance to publish
    assert finished(learner)
    assert learner.run is None and learner.settings is None


@pytest.mark.parametrize("end", ["refused", "stopped", "failed"])
def test_a_second_run_that_comes_to_nothing_leaves_the_first_alive(learner, monkeypatch, end):
    learner.start(settings(new=2), compare=False)
    until(lambda: finished(learner))
    first, gate, real = learner.run, threading.Event(), warm.model

    def model(name, dtype):
        assert gate.wait(60)
        if end == "failed":
            raise RuntimeError("on purpose")
        return real(name, dtype)

    monkeypatch.setattr(warm, "model", model)
    learner.start(settings(prompt="a " * 2000 if end == "refused" else "Once", new=2), compare=False)
    assert learner.run is first and not learner.owns(first)
    if end == "stopped":
        learner.stop()
    gate.set()
    until(lambda: finished(learner))
    found = learner.progress()
    assert (found.refusal.code if found.refusal else None) == ("too_long" if end == "refused" else None)
    assert found.failed == (end == "failed")
    assert learner.run is first and learner.owns(first)
    assert learner.settings.prompt == PROMPT
    learner.extend(3, wait=60)
    assert lengths(learner) == [9, 10, 11]


def test_a_run_nobody_looks_at_pauses(learner, monkeypatch):
    """C11: a closed tab asks no more, and its passes end."""
    learner.start(settings(new=1), compare=False)
    until(lambda: finished(learner))
    monkeypatch.setattr(job, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(job, "UNSEEN_SECONDS", 0.2)
    learner.extend(1000)
    until(lambda: learner._worker is None)
    assert 1 < len(learner.run.steps) < 1000
    assert finished(learner)


def test_compare_can_change_between_passes(learner):
    learner.start(settings(new=2), compare=False)
    until(lambda: finished(learner))
    learner.compare(True)
    learner.extend(3, wait=60)
    assert [s.twin is not None for s in learner.run.steps] == [False, False, True]


def test_an_idle_worker_ends(learner, monkeypatch):
    monkeypatch.setattr(job, "IDLE_SECONDS", 0.05)
    learner.start(settings(new=1), compare=False)
    until(lambda: finished(learner))
    until(lambda: learner._worker is None)
    learner.extend(2, wait=60)
    assert len(learner.run.steps) == 2


def test_sixteen_threads_ask_for_a_model_and_one_loads(monkeypatch):
    from kvviz.models import loading

    calls = []
    real = loading.load
    monkeypatch.setattr(loading, "load", lambda name, dtype: (calls.append(name), real(name, dtype=dtype))[1])
    monkeypatch.setattr(warm, "_slots", {})
    found = []
    threads = [threading.Thread(target=lambda: found.append(warm.model("story-gpt2"))) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert calls == ["story-gpt2"]
    assert len(found) == 16 and len({id(m) for m in found}) == 1


def test_a_model_that_is_not_there_says_so_and_can_be_tried_again(monkeypatch):
    monkeypatch.setattr(warm, "_slots", {})
    with pytest.raises(Refusal) as caught:
        warm.model("gpt2-large")
    assert caught.value.code == "not_on_disk"
    assert warm.status("gpt2-large").stage == "failed"
    warm.forget("gpt2-large")
    assert warm.status("gpt2-large").stage == "asleep"


def test_who_waits_for_a_turn_is_told_how_many_are_before():
    one, two = Learner(ahead=0), Learner(ahead=0)
    for learner in (one, two):
        learner.start(settings(new=1), compare=False)
    until(lambda: finished(one) and finished(two))
    model = warm.model("story-gpt2")
    with model.lock:
        one.extend(2)
        until(lambda: one.progress().before == 1)
        two.extend(2)
        until(lambda: two.progress().before == 2)
        assert one.progress().before == 1
    until(lambda: finished(one) and finished(two))
    assert (one.progress().before, two.progress().before) == (0, 0)
    assert len(one.run.steps) == len(two.run.steps) == 2


def test_memory_that_runs_out_ends_one_run_and_no_other(monkeypatch):
    import torch

    from kvviz.engine import session as engine

    one, two = Learner(ahead=0), Learner(ahead=0)
    for learner, prompt in ((one, "The king"), (two, "Once upon a time")):
        learner.start(settings(prompt=prompt, new=2), compare=False)
    until(lambda: finished(one) and finished(two))
    mine, real = one._at[1], engine.run_pass

    def run_pass(*args, **kwargs):
        if threading.get_ident() == mine:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(*args, **kwargs)

    monkeypatch.setattr(engine, "run_pass", run_pass)
    one.extend(3)
    two.extend(3)
    until(lambda: finished(one) and finished(two))
    assert one.progress().refusal.code == "out_of_memory"
    assert len(one.run.steps) == 2  # what was there can still be read, and no longer grow
    assert not one.owns(one.run) and one.session is None
    assert two.progress().refusal is None
    assert len(two.run.steps) == 3
    monkeypatch.undo()
    one.start(settings(prompt="The king", new=3), compare=False)
    until(lambda: finished(one))
    assert len(one.run.steps) == 3


def test_a_model_on_a_device_that_is_lost_comes_up_again(monkeypatch):
    from kvviz.models import device, loading

    monkeypatch.setattr(warm, "_slots", {})
    first = warm.model("story-gpt2")
    assert warm.model("story-gpt2") is first
    moved = loading.load("story-llama")  # stands for the model where there is a device left
    monkeypatch.setattr(device, "lost", {"cpu"})
    monkeypatch.setattr(loading, "load", lambda name, dtype: moved)
    assert warm.model("story-gpt2") is moved
