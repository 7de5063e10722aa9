"""One learner's run, and the only thread that makes it longer.

Script threads come and go: Streamlit may start a second one while the first is still busy. So they only say what
is wanted (`start`, `extend`, `stop`) and read what is there. One worker a learner runs the passes, one after the
other, and publishes a finished Run after each: a reader never sees half a pass, and Stop takes effect between two.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kvviz.records import Run, Sampling
from kvviz.refusal import Refusal
from kvviz.ui import warm

if TYPE_CHECKING:
    from kvviz.engine import Session
    from kvviz.models.loading import LoadedModel

_log = logging.getLogger(__name__)
IDLE_SECONDS = 30.0  # a worker with nothing to do ends after this, so that a closed tab leaves no thread
UNSEEN_SECONDS = 90.0  # a run nobody has looked at for so long pauses; a tab in the background asks once a minute


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

    @property
    def busy(self) -> bool:
        return self.stage != "idle"

    @property
    def at_limit(self) -> bool:
        return self.room == 0


class Learner:
    """The learner's live run. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._turn = 0  # counts starts: work of an older turn is dropped
        self._settings: Settings | None = None
        self._session: Session | None = None
        self._run: Run | None = None
        # settings, session and run before this one: shown, and come back to, until this one has its prefill
        self._before: tuple[Settings | None, Session | None, Run] | None = None
        self._seen = time.monotonic()
        self._wanted = 0
        self._compare = True
        self._model_there = False
        self._model: LoadedModel | None = None  # whose turns the worker waits for
        self._refusal: Refusal | None = None
        self._failed = False
        self._worker: threading.Thread | None = None

    # what the page reads

    @property
    def run(self) -> Run | None:
        """The run so far. While its prompt has not been through the model yet: the one before, or None."""
        with self._change:
            return self._run or (self._before[2] if self._before else None)

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
            self._seen = time.monotonic()
            room = self._session.room if self._session and self._run else None
            stage = "idle" if not self._has_work() else "passes" if self._model_there else "model"
            worker, model = self._worker, self._model
            before = model.lock.before(worker.ident) if worker and model and stage == "passes" else 0
            return Progress(stage, self._done(), self._wanted, room, self._refusal, self._failed, before)

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
            self._turn += 1
            self._seen = time.monotonic()
            if self._run is not None:
                self._before = self._settings, self._session, self._run
            self._settings, self._session, self._run = settings, None, None
            self._wanted = max(1, wanted if wanted is not None else settings.new)
            self._compare, self._refusal, self._failed = compare, None, False
            self._model_there = False
            self._wake()

    def extend(self, to: int, *, wait: float = 0.0) -> None:
        """Asks for `to` passes in all, and waits up to `wait` seconds for them.

        The target is absolute and never falls: five quick presses of N that arrive as two messages are five passes.
        """
        with self._change:
            if self._session is None:
                return
            self._seen = time.monotonic()
            self._wanted = max(self._wanted, min(to, self._done() + self._session.room))
            self._refusal, self._failed = None, False
            self._wake()
            turn = self._turn
            self._change.wait_for(lambda: self._turn != turn or not self._has_work(), timeout=wait)

    def stop(self) -> None:
        """No further pass begins. The one in progress ends as it should."""
        with self._change:
            if self._run is None:
                self._turn += 1
                self._back()
            self._wanted = self._done()
            self._change.notify_all()

    def compare(self, on: bool) -> None:
        """Whether the next passes have their twin."""
        with self._change:
            self._compare = on

    # the worker

    def _back(self) -> None:
        """To the run before one that never had its prefill."""
        self._settings, self._session, self._run = self._before or (None, None, None)
        self._wanted, self._before, self._model_there = self._done(), None, self._session is not None
        self._model = self._session.model if self._session else None

    def _done(self) -> int:
        return len(self._run.steps) if self._run else 0

    def _has_work(self) -> bool:
        if self._settings is None or self._refusal or self._failed:
            return False
        return self._session is None or self._done() < self._wanted

    def _wake(self) -> None:
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="learner", daemon=True)
            self._worker.start()
        self._change.notify_all()

    def _work(self) -> None:
        while True:
            with self._change:
                if not self._change.wait_for(self._has_work, timeout=IDLE_SECONDS):
                    self._worker = None
                    return
                if time.monotonic() - self._seen > UNSEEN_SECONDS and self._run is not None:
                    self._wanted = self._done()
                    continue
                turn, settings, session, compare = self._turn, self._settings, self._session, self._compare
            refusal, failed = None, False
            try:
                session = self._one_pass(turn, settings, session, compare)
            except Refusal as reason:
                refusal = reason
            except Exception:
                _log.exception("a pass failed")
                failed = True
            with self._change:
                if self._turn == turn:
                    self._refusal, self._failed = refusal, failed
                    if session is not None and not failed and not refusal:
                        self._session, self._run, self._before = session, session.run, None
                        self._wanted = min(self._wanted, self._done() + session.room)
                    elif self._run is None:
                        self._back()
                    elif failed or (session is not None and session.ended):
                        self._session = None  # what a pass left behind that broke is not to be built upon
                self._change.notify_all()

    def _one_pass(self, turn: int, settings: Settings, session: Session | None, compare: bool) -> Session:
        if session is not None:
            session.compare = compare
            session.decode_one_token()
            return session
        model = warm.model(settings.model, settings.dtype)
        with self._change:
            if self._turn == turn:
                self._model_there, self._model = True, model
        from kvviz.engine import Session  # torch is there now

        session = Session(model, settings.prompt, settings.sampling, compare=compare)
        session.prefill()
        return session
