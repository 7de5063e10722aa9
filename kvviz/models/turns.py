"""Whose turn it is at a model: first come, first served, and everybody can see how many are before them.

Models on one device share its processor or its memory's bandwidth: `Traffic` counts the turns at all of them, so that
whoever measures knows whether somebody else's pass came in between.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any


class Traffic:
    """The turns at all models of one device."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._begun = 0
        self._there = 0  # turns that are on, and those that wait for theirs
        self._own = threading.local()  # turns that this thread has had

    def come(self) -> None:
        with self._change:
            self._there += 1

    def begin(self) -> None:
        with self._change:
            self._begun += 1

    def mine(self) -> None:
        """A turn has begun that is this thread's."""
        self._own.turns = self._mine() + 1

    def _mine(self) -> int:
        return getattr(self._own, "turns", 0)

    def leave(self) -> None:
        with self._change:
            self._there -= 1
            self._change.notify_all()

    def of_others(self) -> int:
        """Turns of other threads that have begun so far. For a thread that has none at the moment and waits for none:
        the difference between two readings is what came in between."""
        with self._change:
            return self._begun - self._mine()

    def clear(self, seconds: float) -> bool:
        """Lets those go first whose turn it is or who wait for one, for `seconds` at most. Whether nobody is left.
        For a thread that has no turn itself."""
        with self._change:
            return self._change.wait_for(lambda: not self._there, timeout=seconds)


_of: dict[str, Traffic] = {}
_guard = threading.Lock()


def traffic_of(device: str) -> Traffic:
    with _guard:
        return _of.setdefault(device, Traffic())


class Turns:
    """A lock that one thread may take several times over and that is handed on in the order of asking.

    Python's own lets whoever just gave it back take it again at once: a long run would keep a single step waiting.
    `traffic` is the device's; without one, the turns are a device's of their own.
    """

    def __init__(self, traffic: Traffic | None = None) -> None:
        self.traffic = traffic or Traffic()
        self._guard = threading.Lock()
        self._holder: int | None = None  # thread idents
        self._depth = 0
        self._line: deque[tuple[int, threading.Lock]] = deque()  # each with a lock that opens when its turn has come

    def __enter__(self) -> Turns:
        me = threading.get_ident()
        with self._guard:
            if self._holder == me:
                self._depth += 1
                return self
            self.traffic.come()
            if self._holder is None:
                self._begin(me)
                self.traffic.mine()
                return self
            gate = threading.Lock()
            gate.acquire()
            self._line.append((me, gate))
        try:
            gate.acquire()  # whoever opens it has made this thread the holder
        except BaseException:  # Ctrl-C: nobody may wait behind one who has gone
            with self._guard:
                if self._holder == me:
                    self.traffic.mine()
                    self._hand_on()
                else:
                    self._line.remove((me, gate))
                    self.traffic.leave()
            raise
        self.traffic.mine()
        return self

    def __exit__(self, *_: Any) -> None:
        with self._guard:
            self._hand_on()

    def _begin(self, thread: int) -> None:
        self._holder, self._depth = thread, 1
        self.traffic.begin()

    def _hand_on(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._holder = None
        if self._line:
            thread, gate = self._line.popleft()
            self._begin(thread)
            gate.release()
        self.traffic.leave()

    @property
    def taken(self) -> bool:
        """Somebody's turn is on: who is in no hurry can come back later."""
        with self._guard:
            return self._holder is not None

    def before(self, thread: int | None) -> int:
        """How many are before that thread, with the one whose turn it is; 0 for one that does not wait."""
        with self._guard:
            return next((i for i, (waits, _) in enumerate(self._line, 1) if waits == thread), 0)
