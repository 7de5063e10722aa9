"""A learner's race in the background: one at a time a model, in the order in which they were asked for.

The worker publishes a frozen record after each token; the page polls `state`. Between tokens the model's lock is
free, so that another learner's single step waits for one token, never for a race.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from kvviz.core import Sampling
from kvviz.core.refusal import Refusal
from kvviz.features.race.record import Race, Waits
from kvviz.ui import warm

_log = logging.getLogger(__name__)
UNSEEN_S = 20.0  # a race nobody has looked at for this long stops: its tab is closed

Stage = Literal["idle", "model", "waiting", "warming", "racing", "over"]


@dataclass(frozen=True)
class Wish:
    """What to race. `length` None: the prompt as it is; else said again, or cut, to so many tokens."""

    model: str
    prompt: str
    new: int
    repeats: int | None = None  # None: as many as are cheap
    length: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    dtype: str = "float32"


@dataclass(frozen=True)
class State:
    stage: Stage = "idle"
    wish: Wish | None = None
    key: str = ""  # a new one each start
    race_key: str = ""  # the same for as long as it is about the same race
    before: int = 0  # races ahead of this one on the same model
    race: Race | None = None
    waits: Waits | None = None
    measuring_waits: bool = False  # the job at hand is `waits`
    refusal: Refusal | None = None
    failed: bool = False

    @property
    def busy(self) -> bool:
        return self.stage not in ("idle", "over")


class Line:
    """People waiting for one model, first come first served."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._line: list[object] = []

    @contextmanager
    def turn(self, before: Callable[[int], None], give_up: Callable[[], bool]) -> Iterator[bool]:
        """Blocks until nobody is ahead, telling `before` how many are; yields False if it gave up waiting."""
        me = object()
        with self._change:
            self._line.append(me)
        try:
            with self._change:
                while (ahead := self._line.index(me)) and not give_up():
                    before(ahead)
                    self._change.wait(timeout=0.2)
            yield ahead == 0
        finally:
            with self._change:
                self._line.remove(me)
                self._change.notify_all()


_lines: dict[str, Line] = {}
_guard = threading.Lock()


def line_of(model: str) -> Line:
    with _guard:
        return _lines.setdefault(model, Line())


class Racer:
    """One session's races. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._state = State()
        self._stop = threading.Event()
        self._seen = time.monotonic()

    def state(self) -> State:
        """Where the race is. Asking shows that somebody is looking."""
        with self._guard:
            self._seen = time.monotonic()
            return self._state

    def start(self, wish: Wish, *, waits: bool = False) -> None:
        """Begins a race, or measures first-token times; stops what is running."""
        with self._guard:
            self._stop.set()
            self._stop = threading.Event()
            self._seen = time.monotonic()
            old, key = self._state, secrets.token_hex(4)
            if waits:
                self._state = State("model", wish, key, old.race_key, race=old.race, measuring_waits=True)
            else:
                self._state = State("model", wish, key, key, waits=old.waits)
            work = (self._state.key, wish, self._stop, waits)
        threading.Thread(target=self._work, args=work, name="race", daemon=True).start()

    def stop(self) -> None:
        """Ends the race at the next token, with what has been measured."""
        with self._guard:
            self._stop.set()

    def _tell(self, key: str, **changes: object) -> None:
        with self._guard:
            if self._state.key == key:  # else a newer race has begun
                self._state = replace(self._state, **changes)

    def _unseen(self) -> bool:
        return time.monotonic() - self._seen > UNSEEN_S

    def _work(self, key: str, wish: Wish, stop: threading.Event, waits: bool) -> None:
        try:
            model = warm.model(wish.model, wish.dtype)
            from kvviz.features.race import measure as engine  # torch is there now

            with line_of(wish.model).turn(
                lambda n: self._tell(key, stage="waiting", before=n), lambda: stop.is_set() or self._unseen()
            ) as mine:
                if not mine or stop.is_set():
                    self._tell(key, stage="over", before=0)
                    return
                self._tell(key, stage="warming", before=0)
                what = {"stop": stop}
                if waits:
                    steps = engine.waits(model, wish.prompt, **what)
                else:
                    what |= {"repeats": wish.repeats, "length": wish.length, "sampling": wish.sampling}
                    steps = engine.race(model, wish.prompt, wish.new, **what)
                for record in steps:
                    self._tell(key, stage="racing", **{"waits" if waits else "race": record})
                    if self._unseen():
                        stop.set()
            self._tell(key, stage="over")
        except Refusal as refusal:
            self._tell(key, stage="over", refusal=refusal)
        except Exception:
            _log.exception("a race failed")
            self._tell(key, stage="over", failed=True)
