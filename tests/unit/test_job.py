"""Experiments in the background: begun, replaced, stopped, refused, broken; the page sees whole results only."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest

from kvviz.core.refusal import Refusal
from kvviz.models.turns import Turns
from kvviz.ui import job
from kvviz.ui.job import MOST_AGAIN, Job, PromptWish, State, Wish


@dataclass(frozen=True)
class Count(Wish):
    n: int


@dataclass(frozen=True)
class Timed(Count):
    timing: ClassVar[bool] = True


def count(n: int) -> Count:
    return Count("m", "float32", n)


def timed(n: int) -> Timed:
    return Timed("m", "float32", n)


@pytest.fixture
def model(monkeypatch):
    """Stands for a loaded model: all that the worker asks of it is its lock."""
    found = SimpleNamespace(lock=Turns(), device="cpu")
    monkeypatch.setattr(job.warm, "model", lambda name, dtype: found)
    return found


def until(mine: Job, wanted) -> State:
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

    def __call__(self, model, wish, stop):
        try:
            for i in range(1, wish.n + 1):
                assert self.go.acquire(timeout=30)
                yield i
        finally:
            self.closed.append(wish.n)


def test_the_last_thing_found_is_the_result(model):
    steps = Steps()
    mine = Job(steps)
    assert mine.state() == State()
    mine.start(count(2))
    steps.go.release()
    half = until(mine, lambda s: s.found == 1)
    assert (half.busy, half.complete, half.answers) == (True, False, count(2))
    steps.go.release()
    over = until(mine, lambda s: not s.busy)
    assert (over.stage, over.found, over.complete, over.stopped) == ("over", 2, True, False)


def test_stop_keeps_what_was_found(model):
    steps = Steps()
    mine = Job(steps)
    mine.start(count(5))
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
    mine = Job(steps)
    mine.start(count(1))
    steps.go.release()
    until(mine, lambda s: s.complete)
    mine.start(count(3))
    now = until(mine, lambda s: s.stage == "running")
    assert (now.wish, now.found, now.answers) == (count(3), 1, count(1))
    for _ in range(3):
        steps.go.release()
    over = until(mine, lambda s: not s.busy)
    assert (over.found, over.answers) == (3, count(3))


def test_a_new_start_replaces_the_one_at_hand(model):
    steps = Steps()
    mine = Job(steps)
    mine.start(count(2))
    steps.go.release()
    until(mine, lambda s: s.found == 1)
    mine.start(count(4))
    for _ in range(6):
        steps.go.release()
    over = until(mine, lambda s: not s.busy and s.answers == count(4))
    assert over.found == 4
    assert not over.stopped


def test_what_the_engine_declines_is_a_refusal_and_a_fault_is_said(model, caplog):
    def declines(model, wish, stop):
        raise Refusal("empty_prompt")
        yield

    def breaks(model, wish, stop):
        yield 1 / 0

    mine = Job(declines)
    mine.start(count(1))
    assert until(mine, lambda s: not s.busy).refusal.code == "empty_prompt"
    mine = Job(breaks)
    mine.start(count(1))
    over = until(mine, lambda s: not s.busy)
    assert over.failed and over.found is None
    assert "ZeroDivisionError" in caplog.text


def test_those_before_it_at_the_model_are_counted(model):
    entered = threading.Event()

    def work(m, wish, stop):
        entered.set()
        with m.lock:
            yield 1

    mine = Job(work)
    with model.lock:
        mine.start(count(1))
        assert entered.wait(30)
        assert until(mine, lambda s: s.before).before == 1
    assert until(mine, lambda s: not s.busy).before == 0


def test_one_that_nobody_looks_at_ends(model, monkeypatch):
    steps = Steps()
    monkeypatch.setattr(job, "UNSEEN_SECONDS", -1.0)  # any time is too long
    mine = Job(steps)
    mine.start(count(50))
    assert until(mine, lambda s: not s.busy).stopped


def test_a_result_answers_its_own_wish_and_no_other(model):
    over = State("over", count(1), "x", count(1), complete=True)
    assert over.about(count(1)) and over.result_for(count(1)) == "x"
    assert not over.about(count(2)) and over.result_for(count(2)) is None
    assert State().result_for(count(1)) is None


@dataclass(frozen=True)
class Edit(Wish):
    prompt: str
    at: int

    @property
    def meanwhile(self):
        return self.prompt


@dataclass(frozen=True)
class Length(PromptWish):
    new: int


def test_an_earlier_result_stands_while_its_like_is_on_its_way_and_no_longer():
    old, new, other = (Edit("m", "float32", *place) for place in (("a", 1), ("a", 2), ("b", 1)))
    coming = State("running", new, "x", old)
    assert coming.result_for(new) == "x" and coming.result_for(other) is None
    for ended in ({"failed": True}, {"refusal": Refusal("empty_prompt")}, {"stopped": True}):
        assert State("over", new, "x", old, **ended).result_for(new) is None


def test_a_result_about_the_same_prompt_stands_whatever_its_length():
    old, new = Length("m", "float32", "a", 5), Length("m", "float32", "a", 9)
    over = State("over", old, "x", old, True)
    assert over.result_for(new) == "x" and not over.about(new)
    for wish in (Length("m", "float32", "b", 5), Length("n", "float32", "a", 5), Length("m", "bfloat16", "a", 5)):
        assert over.result_for(wish) is None


def test_one_that_failed_is_tried_again_by_a_click_alone(model):
    def breaks(model, wish, stop):
        yield 1 / 0

    mine = Job(breaks)
    mine.start(count(1), by_itself=True)
    over = until(mine, lambda s: not s.busy)
    assert not over.begins(count(1)) and over.can_retry(count(1))
    assert over.begins(count(2)) and not over.can_retry(count(2))


def test_one_that_ended_unseen_begins_again_when_looked_at_a_few_times(model, monkeypatch):
    steps = Steps()
    monkeypatch.setattr(job, "UNSEEN_SECONDS", -1.0)
    mine = Job(steps)
    for again in range(MOST_AGAIN + 1):
        mine.start(count(1), by_itself=True)
        over = until(mine, lambda s: not s.busy)
        assert (over.unseen, over.stopped, over.again) == (True, True, again)
        assert over.begins(count(1)) == (again < MOST_AGAIN)
    assert over.can_retry(count(1))
    mine.start(count(1))  # a click counts anew, and what a click began does not begin again by itself
    over = until(mine, lambda s: not s.busy)
    assert over.again == 0 and not over.begins(count(1))


def test_jobs_that_time_passes_take_turns_on_a_device_and_others_do_not_wait(model):
    slow, quick = Steps(), Steps()
    first, second, other = Job(slow), Job(quick), Job(quick)
    first.start(timed(1))
    until(first, lambda s: s.stage == "running")
    second.start(timed(1))
    assert until(second, lambda s: s.stage == "waiting" and s.before).before == 1
    quick.go.release()
    other.start(count(1))
    assert until(other, lambda s: not s.busy).found == 1
    assert second.state().stage == "waiting"
    slow.go.release()
    quick.go.release()
    assert until(second, lambda s: not s.busy).found == 1
    assert first.state().found == 1


def test_one_that_is_stopped_in_line_leaves_it(model):
    steps = Steps()
    first, second = Job(steps), Job(steps)
    first.start(timed(1))
    until(first, lambda s: s.stage == "running")
    second.start(timed(1))
    until(second, lambda s: s.stage == "waiting")
    second.stop()
    over = until(second, lambda s: not s.busy)
    assert over.stopped and over.found is None and over.before == 0
    steps.go.release()
    assert until(first, lambda s: not s.busy).found == 1
    assert not job.queue_of(model).taken


def test_one_that_times_has_the_last_word_when_it_is_stopped(model):
    go = threading.Semaphore(0)

    def work(model, wish, stop):
        while not stop.is_set():
            assert go.acquire(timeout=30)
            yield "running"
        yield "stopped"

    mine = Job(work)
    mine.start(timed(1))
    go.release()
    until(mine, lambda s: s.found)
    mine.stop()
    go.release()
    over = until(mine, lambda s: not s.busy)
    assert (over.stopped, over.found) == (True, "stopped")
