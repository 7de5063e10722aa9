"""Experiments in the background: begun, replaced, stopped, refused, broken; the page sees whole results only."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from kvviz.core.refusal import Refusal
from kvviz.models.turns import Turns
from kvviz.ui import experimenter
from kvviz.ui.experimenter import Experimenter, State


@dataclass(frozen=True)
class Wish:
    n: int
    model: str = "m"
    dtype: str = "float32"


@pytest.fixture
def model(monkeypatch):
    """Stands for a loaded model: all that the worker asks of it is its lock."""
    found = SimpleNamespace(lock=Turns())
    monkeypatch.setattr(experimenter.warm, "model", lambda name, dtype: found)
    return found


def until(mine: Experimenter, wanted) -> State:
    tick = threading.Event()
    for _ in range(3000):
        if wanted(state := mine.state()):
            return state
        tick.wait(0.01)
    raise AssertionError(f"still {mine.state()}")


class Steps:
    """Work that finds 1, 2, … n, each when the test lets it."""

    def __init__(self) -> None:
        self.go, self.closed = threading.Semaphore(0), []

    def __call__(self, model, wish):
        try:
            for i in range(1, wish.n + 1):
                assert self.go.acquire(timeout=30)
                yield i
        finally:
            self.closed.append(wish.n)


def test_the_last_thing_found_is_the_result(model):
    steps = Steps()
    mine = Experimenter(steps)
    assert mine.state() == State()
    mine.start(Wish(2))
    steps.go.release()
    half = until(mine, lambda s: s.found == 1)
    assert (half.busy, half.complete, half.answers) == (True, False, Wish(2))
    steps.go.release()
    over = until(mine, lambda s: not s.busy)
    assert (over.stage, over.found, over.complete, over.stopped) == ("over", 2, True, False)


def test_stop_keeps_what_was_found(model):
    steps = Steps()
    mine = Experimenter(steps)
    mine.start(Wish(5))
    steps.go.release()
    until(mine, lambda s: s.found == 1)
    mine.stop()
    steps.go.release()  # the result that was being made
    over = until(mine, lambda s: not s.busy)
    assert over.stopped and not over.complete
    assert over.found in (1, 2)
    assert steps.closed == [5]


def test_what_was_found_before_stays_until_there_is_news(model):
    steps = Steps()
    mine = Experimenter(steps)
    mine.start(Wish(1))
    steps.go.release()
    until(mine, lambda s: s.complete)
    mine.start(Wish(3))
    now = until(mine, lambda s: s.stage == "running")
    assert (now.wish, now.found, now.answers) == (Wish(3), 1, Wish(1))
    for _ in range(3):
        steps.go.release()
    over = until(mine, lambda s: not s.busy)
    assert (over.found, over.answers) == (3, Wish(3))


def test_a_new_start_replaces_the_one_at_hand(model):
    steps = Steps()
    mine = Experimenter(steps)
    mine.start(Wish(2))
    steps.go.release()
    until(mine, lambda s: s.found == 1)
    mine.start(Wish(4))
    for _ in range(6):
        steps.go.release()
    over = until(mine, lambda s: not s.busy and s.answers == Wish(4))
    assert over.found == 4
    assert not over.stopped


def test_what_the_engine_declines_is_a_refusal_and_a_fault_is_said(model, caplog):
    def declines(model, wish):
        raise Refusal("empty_prompt")
        yield

    def breaks(model, wish):
        yield 1 / 0

    mine = Experimenter(declines)
    mine.start(Wish(1))
    assert until(mine, lambda s: not s.busy).refusal.code == "empty_prompt"
    mine = Experimenter(breaks)
    mine.start(Wish(1))
    over = until(mine, lambda s: not s.busy)
    assert over.failed and over.found is None
    assert "ZeroDivisionError" in caplog.text


def test_those_before_it_at_the_model_are_counted(model):
    entered = threading.Event()

    def work(m, wish):
        entered.set()
        with m.lock:
            yield 1

    mine = Experimenter(work)
    with model.lock:
        mine.start(Wish(1))
        assert entered.wait(30)
        assert until(mine, lambda s: s.before).before == 1
    assert until(mine, lambda s: not s.busy).before == 0


def test_one_that_nobody_looks_at_ends(model, monkeypatch):
    steps = Steps()
    monkeypatch.setattr(experimenter, "UNSEEN_SECONDS", -1.0)  # any time is too long
    mine = Experimenter(steps)
    mine.start(Wish(50))
    assert until(mine, lambda s: not s.busy).stopped
