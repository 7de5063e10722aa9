"""Passes made ahead of the presses that ask for them: no part of the run until then, and the same as any other."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import replace

import pytest

from kvviz.core import Sampling
from kvviz.ui import learner as module
from kvviz.ui import warm
from kvviz.ui.learner import Learner
from tests.unit.learner_kit import finished, lengths, settings, until


@pytest.fixture
def learner():
    made = Learner()
    yield made
    made.stop()


def prepared(learner: Learner) -> bool:
    progress = learner.progress()
    return not progress.busy and not progress.preparing


def test_passes_are_made_ahead_and_belong_to_the_run_once_asked_for(monkeypatch):
    monkeypatch.setattr(module, "AHEAD_MS", 1e9)
    learner = Learner(ahead=6)
    learner.start(settings(new=2), compare=False)
    until(lambda: prepared(learner))
    assert lengths(learner) == [9, 10]
    assert [len(run.steps) for run in learner.next_runs] == [3, 4, 5, 6, 7, 8]
    assert learner.progress().room == 1024 - 10  # what is ahead is not used up
    fourth = learner.next_runs[1].steps[3]
    learner.extend(4)  # no wait: they are there
    assert lengths(learner) == [9, 10, 11, 12]
    assert learner.run.steps[3] is fourth
    until(lambda: prepared(learner))
    assert [len(run.steps) for run in learner.next_runs] == [5, 6, 7, 8, 9, 10]
    alone = Learner(ahead=0)
    alone.start(settings(new=10), compare=False)
    until(lambda: finished(alone))
    assert learner.next_runs[-1].new_ids.tolist() == alone.run.new_ids.tolist()
    learner.stop()


def test_passes_ahead_wait_while_the_model_works_for_others():
    learner = Learner()
    learner.start(settings(new=2), compare=False)
    until(lambda: finished(learner))
    with warm.model("story-gpt2").lock:
        made = len(learner.session.run.steps)
        until(lambda: learner._change.acquire(blocking=False))  # between two looks at the model
        learner._change.release()
        time.sleep(0.3)
        assert len(learner.session.run.steps) <= made + 1  # one may have stood in line already
        assert learner.progress().before == 0
    until(lambda: prepared(learner))
    assert learner.next_runs
    learner.stop()


def test_all_that_is_made_ahead_can_be_taken_back():
    from kvviz.engine.session import REWINDS

    assert module.AHEAD < REWINDS  # and one pass that was under way


def test_passes_ahead_take_a_bounded_time(monkeypatch):
    from kvviz.engine import session as engine

    monkeypatch.setattr(engine.Session, "_record", _slow(engine.Session._record, ms=130.0))
    learner = Learner()
    learner.start(settings(new=2), compare=False)
    until(lambda: prepared(learner))
    assert [len(run.steps) for run in learner.next_runs] == [3, 4]  # two of 130 ms within 300
    learner.stop()


def _slow(record, ms: float):
    return lambda *args, **kwargs: dataclasses.replace(record(*args, **kwargs), ms=ms)


def test_passes_ahead_end_where_the_positions_do(learner, monkeypatch):
    prompt = "the" + " the" * 1020
    monkeypatch.setattr(module, "AHEAD_MS", 1e9)
    learner.start(settings(prompt=prompt, new=1), compare=False)
    until(lambda: prepared(learner))
    left = 1024 - learner.run.P
    assert learner.progress().room == left
    assert len(learner.next_runs) == left < 6


def test_what_was_made_ahead_without_twins_is_made_again_with_them(learner):
    learner.start(replace(settings(new=2), sampling=Sampling(1.0, 0, 1.0, 7)), compare=False)
    until(lambda: prepared(learner))
    was = learner.next_runs[-1].new_ids.tolist()
    learner.compare(True)
    assert learner.next_runs == ()
    until(lambda: prepared(learner))
    made = learner.next_runs[-1]
    assert [s.twin is not None for s in made.steps[:3]] == [False, False, True]
    assert all(s.twin.same_token for s in made.steps[2:])
    both = min(len(made.steps), len(was))
    assert made.new_ids.tolist()[:both] == was[:both]  # the same draws


def test_stop_ends_what_is_made_ahead(learner, monkeypatch):
    learner.start(settings(new=200), compare=False)
    until(lambda: learner.run is not None and len(learner.run.steps) >= 3)
    learner.stop()
    until(lambda: prepared(learner))
    steps = len(learner.session.run.steps)
    assert len(learner.run.steps) <= steps <= len(learner.run.steps) + 1  # at most the pass that was under way


def test_a_pass_ahead_that_fails_is_told_and_what_was_there_stays(learner, monkeypatch, caplog):
    from kvviz.engine import session as engine

    real = engine.run_pass
    monkeypatch.setattr(module, "AHEAD_MS", 1e9)
    monkeypatch.setattr(engine, "run_pass", lambda *a, **k: 1 / 0 if a[2] == 12 else real(*a, **k))
    learner.start(settings(new=2), compare=False)
    until(lambda: learner.progress().failed)
    assert lengths(learner) == [9, 10]
    assert "ZeroDivisionError" in caplog.text
