"""One learner's run, and the only thread that makes it longer.

Script threads come and go: Streamlit may start a second one while the first is still busy. So they only say what
is wanted (`start`, `extend`, `stop`) and read what is there. One worker a learner runs the passes, one after the
other, and publishes a finished Run after each: a reader never sees half a pass, and Stop takes effect between two.

Thread, turns, refusals, what has broken, and whether anybody looks are `job.Background`'s; the run's own are how far
it has been asked for, passes made ahead, and the run before that comes back when this one comes to nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kvviz.core import Run, Sampling
from kvviz.core.refusal import Refusal
from kvviz.ui import job
from kvviz.ui.job import Background

if TYPE_CHECKING:
    from kvviz.engine import Session
    from kvviz.models.loading import LoadedModel

AHEAD = 24  # passes made ahead of their press, at most
AHEAD_MS = 300.0  # but for one, no more than take about so long
FREE_SECONDS = 0.05  # until a model that is at work for others is looked at again; theirs were asked for


@dataclass(frozen=True)
class Settings:
    """What a run is started with. Two equal settings give the same run."""

    model: str
    prompt: str
    sampling: Sampling
    new: int  # tokens to choose before it pauses
    dtype: str = "float32"

    def same_run(self, other: Settings | None) -> bool:
        return other is not None and self == replace(other, new=self.new)


@dataclass(frozen=True)
class Progress:
    """What the worker is at. `done` and `wanted` count chosen tokens."""

    stage: Literal["idle", "model", "passes"]
    done: int
    wanted: int
    room: int | None  # tokens that may still be chosen; None before the run exists
    refusal: Refusal | None
    failed: bool
    before: int = 0  # others whose pass comes first at the same model
    preparing: bool = False  # passes ahead of their press are being made

    @property
    def busy(self) -> bool:
        return self.stage != "idle"

    @property
    def at_limit(self) -> bool:
        return self.room == 0


class Learner(Background):
    """The learner's live run. Every method may be called from any thread."""

    name = "pass"

    def __init__(self, ahead: int = AHEAD) -> None:
        super().__init__()
        self._most_ahead = ahead
        self._settings: Settings | None = None
        self._session: Session | None = None
        self._run: Run | None = None  # as far as it has been asked for
        self._next: list[Run] = []  # the run with one more pass each, made ahead
        self._prepare = False
        # settings, session and run before this one: shown, and come back to, until this one has its prefill
        self._earlier: tuple[Settings | None, Session | None, Run] | None = None
        self._wanted = 0
        self._compare = True
        self._model_there = False
        self._model: LoadedModel | None = None  # the run's
        self._doing: tuple[Session | None, bool, bool] = None, False, False  # session, whether asked for, `compare`

    # what the page reads

    @property
    def run(self) -> Run | None:
        """The run so far. While its prompt has not been through the model yet: the one before, or None."""
        with self._change:
            return self._run or (self._earlier[2] if self._earlier else None)

    @property
    def next_runs(self) -> tuple[Run, ...]:
        """The run with one pass more, two more, ...: made ahead, not asked for yet."""
        with self._change:
            return tuple(self._next)

    @property
    def session(self) -> Session | None:
        with self._change:
            return self._session

    @property
    def settings(self) -> Settings | None:
        """Settings of the run that is there or on its way."""
        with self._change:
            return self._settings

    def progress(self) -> Progress:
        with self._change:
            self._look()
            room = self._room() if self._session and self._run else None
            stage = "idle" if not self._lacks() else "passes" if self._model_there else "model"
            before = self._before() if stage == "passes" else 0
            preparing = self._has_work() and stage == "idle"
            return Progress(stage, self._done(), self._wanted, room, self._refusal, self._failed, before, preparing)

    def owns(self, run: Run) -> bool:
        """`run` is the one that can grow."""
        with self._change:
            return self._run is not None and self._run.key == run.key and self._session is not None

    # what the page asks for

    def start(self, settings: Settings, *, compare: bool, wanted: int | None = None) -> None:
        """Begins another run: prefill, then decode to `wanted` tokens (default: `new`).

        The run that is there goes once the new one has its prefill; if that is refused, it stays and can go on.
        """
        with self._change:
            self._begin()
            if self._run is not None:
                self._earlier = self._settings, self._session, self._run
            self._settings, self._session, self._run, self._next = settings, None, None, []
            self._prepare = True
            self._wanted = max(1, wanted if wanted is not None else settings.new)
            self._compare = compare
            self._model_there = False
            self._wake()

    def extend(self, to: int, *, wait: float = 0.0, wait_ahead: float = 0.0) -> None:
        """Asks for `to` passes in all, and waits up to `wait` seconds for them, then `wait_ahead` for those ahead.

        The target is absolute and never falls: five quick presses of N that arrive as two messages are five passes.
        """
        with self._change:
            if self._session is None:
                return
            self._look()
            self._wanted = max(self._wanted, min(to, self._done() + self._room()))
            self._refusal, self._failed, self._prepare = None, False, True
            self._show()
            self._wake()
            turn = self._turn
            if self._change.wait_for(lambda: self._turn != turn or not self._lacks(), timeout=wait):
                self._change.wait_for(lambda: self._turn != turn or not self._has_work(), timeout=wait_ahead)

    def stop(self) -> None:
        """No further pass begins. The one in progress ends as it should."""
        with self._change:
            if self._run is None:
                self._turn += 1
                self._back()
            self._wanted, self._prepare = self._done(), False
            self._change.notify_all()

    def compare(self, on: bool) -> None:
        """Whether the next passes have their twin. Those made ahead the other way are made again."""
        with self._change:
            if on != self._compare:
                self._compare, self._next = on, []
                if self._has_work():
                    self._wake()

    # the worker

    def _back(self) -> None:
        """To the run before one that never had its prefill."""
        self._settings, self._session, self._run = self._earlier or (None, None, None)
        self._next, self._prepare = [], False
        self._wanted, self._earlier, self._model_there = self._done(), None, self._session is not None
        self._model = self._session.model if self._session else None

    def _done(self) -> int:
        return len(self._run.steps) if self._run else 0

    def _room(self) -> int:
        return self._session.room + len(self._session.run.steps) - self._done() if self._session else 0

    def _lacks(self) -> bool:
        """Something that was asked for is not there."""
        if self._settings is None or self._refusal or self._failed:
            return False
        return self._session is None or self._done() < self._wanted

    def _has_work(self) -> bool:
        return self._lacks() or self._wants_ahead()

    def _wants_ahead(self) -> bool:
        if not self._prepare or self._session is None or self._run is None or self._refusal or self._failed:
            return False
        newest = (self._next[-1] if self._next else self._run).steps[-1]
        each = newest.ms + (newest.twin.ms if newest.twin else 0.0)
        ahead = min(self._most_ahead, max(1, int(AHEAD_MS / each)) if each else self._most_ahead)
        return len(self._next) < min(ahead, self._room())

    def _show(self) -> None:
        """What was asked for and is there becomes the run."""
        while self._next and self._done() < self._wanted:
            self._run = self._next.pop(0)

    def _take(self) -> Callable[[], Session] | None:
        if self._unseen(job.UNSEEN_SECONDS) and self._run is not None:
            self._wanted, self._prepare = self._done(), False
            return None
        if not self._lacks() and self._model and (self._model.lock.taken or job.queue_of(self._model).taken):
            self._change.wait(FREE_SECONDS)
            return None
        turn, settings, session, compare = self._turn, self._settings, self._session, self._compare
        there = self._done() + len(self._next)
        self._at = (self._model, threading.get_ident()) if self._model else None
        self._doing = session, self._lacks(), compare
        return lambda: self._one_pass(turn, settings, session, compare, there)

    def _settle(self, made: Session | None) -> None:
        session, asked, compare = self._doing
        if made is not None:
            self._publish(made, asked or compare == self._compare)
        elif self._run is None:
            self._back()
        elif self._failed or (session is not None and session.ended):
            self._session, self._next = None, []  # what a broken pass left is not to be built upon

    def _publish(self, session: Session, valid: bool) -> None:
        """After a pass. One made ahead with another `compare` than is wanted now is not `valid`: as if not made."""
        self._session, self._earlier = session, None
        if self._run is None:
            self._run = session.run
        elif valid and len(session.run.steps) == self._done() + len(self._next) + 1:
            self._next.append(session.run)
        self._wanted = min(self._wanted, self._done() + self._room())
        self._show()

    def _one_pass(self, turn: int, settings: Settings, session: Session | None, compare: bool, there: int) -> Session:
        if session is not None:
            session.rewind(there)  # of passes made ahead, those that nobody wants any more
            session.compare = compare
            session.decode_one_token()
            return session
        model = self._bring(turn, settings.model, settings.dtype)
        with self._change:
            if self._turn == turn:
                self._model_there, self._model = True, model
        from kvviz.engine import Session  # torch is there now

        session = Session(model, settings.prompt, settings.sampling, compare=compare)
        session.prefill()
        return session
