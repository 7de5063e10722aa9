"""A learner's experiments on a model, in the background: the page asks for one and polls for what it has found.

Every pass takes its turn at the model (its lock), so an experiment waits for others' passes, never for their runs,
and they for one pass of it. Stop takes effect between two results.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kvviz.core.refusal import Refusal
from kvviz.ui import warm

if TYPE_CHECKING:
    from kvviz.models.loading import LoadedModel

_log = logging.getLogger(__name__)
UNSEEN_SECONDS = 90.0  # one that nobody has looked at for so long stops; a tab in the background asks once a minute


class Wish(Protocol):
    """What an experiment is to try: a frozen dataclass. Equal wishes have the same result."""

    @property
    def model(self) -> str: ...  # catalogue name

    @property
    def dtype(self) -> str: ...


# Runs on the worker's thread, may import the engine, and yields what it has found so far: the last one is the result.
Work = Callable[["LoadedModel", Any], Iterator[Any]]


@dataclass(frozen=True)
class State:
    """Where an experiment is. `found` stays, with the wish it answers, until a new one has found something."""

    stage: Literal["idle", "model", "running", "over"] = "idle"
    wish: Wish | None = None  # asked for last
    found: Any = None
    answers: Wish | None = None  # the wish that `found` is about
    complete: bool = False  # `found` is all there is to find
    before: int = 0  # others whose pass comes first at the same model
    stopped: bool = False
    refusal: Refusal | None = None
    failed: bool = False

    @property
    def busy(self) -> bool:
        return self.stage in ("model", "running")


class Experimenter:
    """One session's experiments of one kind, one at a time. Every method may be called from any thread."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._guard = threading.Lock()
        self._state = State()
        self._stop = threading.Event()  # of the experiment at hand; a new one brings its own
        self._seen = time.monotonic()
        self._at: tuple[LoadedModel, int] | None = None  # the model and thread of the experiment at hand

    def state(self) -> State:
        """Where it is. Asking shows that somebody is looking."""
        with self._guard:
            self._seen = time.monotonic()
            state, at = self._state, self._at
        return replace(state, before=at[0].lock.before(at[1])) if state.busy and at else state

    def start(self, wish: Wish) -> None:
        """Begins an experiment; the one at hand stops."""
        with self._guard:
            self._stop.set()
            stop = self._stop = threading.Event()
            self._seen, self._at = time.monotonic(), None
            old = self._state
            self._state = State("model", wish, old.found, old.answers, old.complete)
        threading.Thread(target=self._run, args=(wish, stop), name="experiment", daemon=True).start()

    def stop(self) -> None:
        """Ends the experiment at its next result, with what has been found."""
        with self._guard:
            self._stop.set()

    def _tell(self, stop: threading.Event, **changes: Any) -> None:
        with self._guard:
            if self._stop is stop:  # else a newer one has begun
                self._state = replace(self._state, **changes)

    def _over(self, stop: threading.Event) -> bool:
        return stop.is_set() or time.monotonic() - self._seen > UNSEEN_SECONDS

    def _run(self, wish: Wish, stop: threading.Event) -> None:
        try:
            model = warm.model(wish.model, wish.dtype)
            with self._guard:
                if self._stop is stop:
                    self._at = model, threading.get_ident()
            self._tell(stop, stage="running")
            steps = self._work(model, wish)
            try:
                while not (stopped := self._over(stop)) and (found := next(steps, None)) is not None:
                    self._tell(stop, found=found, answers=wish, complete=False)
            finally:
                steps.close()
            if stopped:
                self._tell(stop, stage="over", stopped=True)
            else:
                self._tell(stop, stage="over", complete=True)
        except Refusal as refusal:
            self._tell(stop, stage="over", refusal=refusal)
        except Exception:
            _log.exception("an experiment failed")
            self._tell(stop, stage="over", failed=True)
