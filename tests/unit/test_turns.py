"""Turns at a model: in the order of asking, seen by everybody, not lost by one who goes away."""

from __future__ import annotations

import threading
import time

import pytest

from kvviz.models import turns
from kvviz.models.turns import Turns


def until(true, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_first_come_first_served_and_the_line_is_seen():
    line, served = Turns(), []
    threads = []
    with line:
        for name in "ABC":
            thread = threading.Thread(target=lambda name=name: take(line, served, name))
            threads.append(thread)
            thread.start()
            until(lambda n=len(threads), t=thread: line.before(t.ident) == n)
        assert [line.before(t.ident) for t in threads] == [1, 2, 3]
        assert line.before(threading.get_ident()) == 0
        assert served == []
    for thread in threads:
        thread.join(30)
    assert served == ["A", "B", "C"]
    assert [line.before(t.ident) for t in threads] == [0, 0, 0]


def take(line: Turns, served: list[str], name: str) -> None:
    with line:
        served.append(name)


def test_who_has_just_had_a_turn_stands_behind_who_waits():
    line, served, other = Turns(), [], None
    with line:
        other = threading.Thread(target=take, args=(line, served, "other"))
        other.start()
        until(lambda: line.before(other.ident) == 1)
    with line:
        served.append("first again")
    other.join(30)
    assert served == ["other", "first again"]


def test_a_thread_may_take_it_again_within_its_turn():
    line, served = Turns(), []
    with line:
        with line, line:
            pass
        thread = threading.Thread(target=take, args=(line, served, "A"))
        thread.start()
        until(lambda: line.before(thread.ident) == 1)
        assert served == []  # the inner blocks gave nothing back
    thread.join(30)
    assert served == ["A"]


def test_an_error_within_a_turn_gives_it_back():
    line, served = Turns(), []
    with pytest.raises(ZeroDivisionError), line:
        _ = 1 // 0
    thread = threading.Thread(target=take, args=(line, served, "A"), daemon=True)
    thread.start()
    thread.join(30)
    assert served == ["A"]


@pytest.mark.parametrize("handed_over", [False, True])
def test_one_who_is_interrupted_while_waiting_leaves_the_line(monkeypatch, handed_over):
    line, served, real = Turns(), [], threading.Lock
    held, gone = threading.Event(), threading.Event()

    class Gate:
        """Stands for the lock that a waiting thread sleeps at: there it is interrupted."""

        def __init__(self) -> None:
            self.calls = 0

        def acquire(self) -> None:
            self.calls += 1
            if self.calls == 2:
                if handed_over:  # the interruption comes when the turn has come
                    held.set()
                    until(lambda: line._holder == threading.get_ident())
                raise KeyboardInterrupt

        def release(self) -> None:
            pass

    def interrupted() -> None:
        monkeypatch.setattr(turns.threading, "Lock", Gate)
        try:
            with line:
                served.append("interrupted")
        except KeyboardInterrupt:
            gone.set()

    with line:
        thread = threading.Thread(target=interrupted)
        thread.start()
        (held if handed_over else gone).wait(30)
    assert gone.wait(30)
    thread.join(30)
    monkeypatch.setattr(turns.threading, "Lock", real)
    after = threading.Thread(target=take, args=(line, served, "after"), daemon=True)
    after.start()
    after.join(30)
    assert served == ["after"]
