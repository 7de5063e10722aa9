"""Jobs that time passes wait in their device's queue."""

from __future__ import annotations

import threading

from kvviz.ui.job import Queue


def test_first_come_first_served():
    line, order, here = Queue(), [], [threading.Event() for _ in range(3)]
    leave = threading.Event()

    def person(i: int) -> None:
        with line.turn(lambda n: here[i].set(), lambda: False) as mine:
            assert mine
            here[i].set()
            order.append(i)
            assert leave.wait(30)

    people = [threading.Thread(target=person, args=(i,)) for i in range(3)]
    for i, one in enumerate(people):
        one.start()
        assert here[i].wait(30)
    leave.set()
    for one in people:
        one.join(30)
    assert order == [0, 1, 2]
