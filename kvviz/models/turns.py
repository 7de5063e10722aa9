"""Whose turn it is at a model: first come, first served, and everybody can see how many are before them."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any


class Turns:
    """A lock that one thread may take several times over and that is handed on in the order of asking.

    Python's own lets whoever just gave it back take it again at once: a long run would keep a single step waiting.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._holder: int | None = None  # thread idents
        self._depth = 0
        self._line: deque[tuple[int, threading.Lock]] = deque()  # each with a lock that opens when its turn has come

    def __enter__(self) -> Turns:
        me = threading.get_ident()
        with self._guard:
            if self._holder in (None, me):
                self._holder, self._depth = me, self._depth + 1
                return self
            gate = threading.Lock()
            gate.acquire()
            self._line.append((me, gate))
        try:
            gate.acquire()  # whoever opens it has made this thread the holder
        except BaseException:  # Ctrl-C: nobody may wait behind one who has gone
            with self._guard:
                if self._holder == me:
                    self._hand_on()
                else:
                    self._line.remove((me, gate))
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        with self._guard:
            self._hand_on()

    def _hand_on(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._holder = None
        if self._line:
            self._holder, gate = self._line.popleft()
            self._depth = 1
            gate.release()

    @property
    def taken(self) -> bool:
        """Somebody's turn is on: who is in no hurry can come back later."""
        with self._guard:
            return self._holder is not None

    def before(self, thread: int | None) -> int:
        """How many are before that thread, with the one whose turn it is; 0 for one that does not wait."""
        with self._guard:
            return next((i for i, (waits, _) in enumerate(self._line, 1) if waits == thread), 0)
