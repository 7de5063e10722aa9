"""One background job: what is wished for, how far it is, what it has found, and whether that is about the present wish.

`Background` is the machine: a thread that does one piece of work after another, and what is told of it. `Job` runs a
wish on it, from which results come one by one; the live run (`learner`) is the other user. Every pass takes its turn
at the model (its lock), so a job waits for others' passes, never for their runs, and they for one pass of it. A job
that times passes also waits until no other one times any on the same device. No Streamlit.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from kvviz.core.background import beside
from kvviz.core.refusal import Refusal
from kvviz.ui import warm

if TYPE_CHECKING:
    from kvviz.models.loading import LoadedModel

_log = logging.getLogger(__name__)
IDLE_SECONDS = 30.0  # a worker with nothing to do ends after this, so that a closed tab leaves no thread
UNSEEN_SECONDS = 90.0  # what nobody has looked at for so long ends; a tab in the background asks once a minute
MOST_AGAIN = 3  # times in a row that a job which ended unseen begins again because somebody looks


@dataclass(frozen=True)
class Wish:
    """What a job is to try. Equal wishes have the same result."""

    model: str  # catalogue name
    dtype: str

    timing: ClassVar[bool] = False  # its passes are timed: it stands in the device's queue

    @property
    def unseen_seconds(self) -> float:
        return UNSEEN_SECONDS

    @property
    def subject(self) -> object:
        """What it is about. A result of the same subject may stand where this one is wished for, with its own numbers
        in what is said of it."""
        return self

    @property
    def meanwhile(self) -> object:
        """While it is on its way, an earlier result that has this in common with it may stand."""
        return self.subject


@dataclass(frozen=True)
class PromptWish(Wish):
    """A wish whose results are all about one prompt on one model, whatever else it asks."""

    prompt: str

    @property
    def subject(self) -> object:
        return type(self), self.model, self.dtype, self.prompt


Stage = Literal["idle", "model", "waiting", "running", "over"]


@dataclass(frozen=True)
class State:
    """Where a job is. `found` stays, with the wish it answers, until a new one has found something."""

    stage: Stage = "idle"
    wish: Wish | None = None  # asked for last
    found: Any = None
    answers: Wish | None = None  # the wish that `found` is about: to name it; `result_for` decides where it may stand
    complete: bool = False  # `found` is all there is to find
    before: int = 0  # others who come first: jobs at the device's queue while "waiting", else passes at the model
    stopped: bool = False
    refusal: Refusal | None = None
    failed: bool = False
    unseen: bool = False  # it was stopped because nobody looked
    by_itself: bool = False  # nobody had clicked for it
    again: int = 0  # times in a row that it has begun again by itself
    key: str = ""  # a new one each start
    found_key: str = ""  # of the start that has found `found`
    started: float = 0.0  # on the monotonic clock: which of two jobs was asked for last

    @property
    def busy(self) -> bool:
        return self.stage in ("model", "waiting", "running")

    @property
    def fresh(self) -> Any:
        """What this very start has found; an earlier one's does not count."""
        return self.found if self.found_key == self.key else None

    def about(self, wish: Wish) -> bool:
        """`found` is exactly what `wish` asks for."""
        return self.answers is not None and self.answers == wish

    def result_for(self, wish: Wish) -> Any:
        """What has been found and may stand where `wish` is wished for, or None."""
        if self.answers is None:
            return None
        coming = self.busy and self.wish == wish
        if self.answers.subject == wish.subject or (coming and self.answers.meanwhile == wish.meanwhile):
            return self.found
        return None

    def begins(self, wish: Wish) -> bool:
        """A job that begins by itself has to begin: the wish is new, or the last attempt ended because nobody looked.
        One that failed is not tried again by itself."""
        return wish != self.wish or (self._left and self.by_itself and self.again < MOST_AGAIN)

    def can_retry(self, wish: Wish) -> bool:
        """The last attempt at that wish came to nothing that will change by itself."""
        return wish == self.wish and not self.busy and (self.failed or self.refusal is not None or self._left)

    @property
    def _left(self) -> bool:
        return self.unseen and not self.busy


class Queue:
    """Jobs that time passes on one device, first come first served."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._line: list[object] = []

    @property
    def taken(self) -> bool:
        with self._change:
            return bool(self._line)

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


_queues: dict[str, Queue] = {}
_guard = threading.Lock()


def queue_of(model: LoadedModel) -> Queue:
    """The queue of that model's device."""
    with _guard:
        return _queues.setdefault(str(model.device), Queue())


class Background:
    """A thread that does what there is to do, and what a page may ask about it. Methods may be called from any thread.

    Whoever builds on it says under `_change` what there is to do (`_has_work`, `_take`) and what follows from it
    (`_settle`). `_turn` counts starts: work of an older turn is dropped when it comes back.
    """

    name = "job"

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._turn = 0
        self._seen = time.monotonic()
        self._refusal: Refusal | None = None
        self._failed = False
        self._at: tuple[LoadedModel, int] | None = None  # whose turns which thread waits for
        self._worker: object | None = None  # stands for the thread whose work counts

    def _has_work(self) -> bool:
        raise NotImplementedError

    def _take(self) -> Callable[[], Any] | None:
        """A piece of work, to be done without the guard. None: look again."""
        raise NotImplementedError

    def _settle(self, made: Any) -> None:
        """After a piece of work of this turn: what it returned, or None where `_refusal` or `_failed` says why not."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Another turn, with nothing said against it yet."""
        self._turn += 1
        self._refusal, self._failed, self._at = None, False, None
        self._look()

    def _look(self) -> None:
        self._seen = time.monotonic()

    def _unseen(self, seconds: float) -> bool:
        return time.monotonic() - self._seen > seconds

    def _before(self) -> int:
        """Others whose pass comes first at the same model."""
        return self._at[0].lock.before(self._at[1]) if self._at else 0

    def _wake(self) -> None:
        if self._worker is None:
            self._worker = object()
            beside(self.name, self._work, self._worker)
        self._change.notify_all()

    def _work(self, me: object) -> None:
        while True:
            with self._change:
                busy = self._change.wait_for(lambda: self._worker is not me or self._has_work(), timeout=IDLE_SECONDS)
                if self._worker is not me:  # another thread has taken over
                    return
                if not busy:
                    self._worker = None
                    return
                turn, work = self._turn, self._take()
            if work is None:
                continue
            made, refusal, failed = None, None, False
            try:
                made = work()
            except Refusal as reason:
                refusal = reason
            except Exception:
                _log.exception("a %s failed", self.name)
                failed = True
            with self._change:
                if self._turn == turn:
                    self._refusal, self._failed = refusal, failed
                    self._settle(made)
                self._change.notify_all()

    def _bring(self, turn: int, name: str, dtype: str) -> LoadedModel:
        """The model, waiting for it; whoever asks is told from now on how many come first at it."""
        model = warm.model(name, dtype)
        with self._change:
            if self._turn == turn:
                self._at = model, threading.get_ident()
        return model


# Runs on the job's thread, may import the engine, and yields what it has found so far: the last one is the result. A
# timing one looks at the event between its passes and yields a last time once it is set.
Work = Callable[["LoadedModel", Any, threading.Event], Iterator[Any]]


class Job(Background):
    """One session's jobs of one kind, one at a time."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._do = work
        self._state = State()
        self._stop = threading.Event()  # of the job at hand; a new one brings its own
        self._next: Callable[[], Any] | None = None

    def state(self) -> State:
        """Where it is. Asking shows that somebody is looking."""
        with self._change:
            self._look()
            state = self._state
            return replace(state, before=self._before()) if self._at and state.stage == "running" else state

    def start(self, wish: Wish, *, by_itself: bool = False) -> None:
        """Begins a job; the one at hand stops."""
        with self._change:
            self._stop.set()
            stop = self._stop = threading.Event()
            self._begin()
            old, turn = self._state, self._turn
            again = old.again + 1 if by_itself and old.unseen and old.wish == wish else 0
            self._state = State(
                "model", wish, old.found, old.answers, old.complete, by_itself=by_itself, again=again,
                key=secrets.token_hex(4), found_key=old.found_key, started=time.monotonic(),
            )  # fmt: skip
            self._next = lambda: self._run(turn, wish, stop)
            self._worker = None  # a thread that is still at the one before does not keep this one waiting
            self._wake()

    def stop(self) -> None:
        """Ends the job at its next result, with what has been found."""
        with self._change:
            self._stop.set()

    def _has_work(self) -> bool:
        return self._next is not None

    def _take(self) -> Callable[[], Any] | None:
        work, self._next = self._next, None
        return work

    def _settle(self, made: Any) -> None:
        ended = made or {}
        self._state = replace(
            self._state, stage="over", before=0, refusal=self._refusal, failed=self._failed, **ended
        )  # fmt: skip
        self._at = None

    def _tell(self, turn: int, **changes: Any) -> None:
        with self._change:
            if self._turn == turn:  # else a newer one has begun
                self._state = replace(self._state, **changes)

    def _run(self, turn: int, wish: Wish, stop: threading.Event) -> dict[str, bool]:
        """How it ended: changes of the state."""
        unseen = False

        def over() -> bool:
            nonlocal unseen
            if not stop.is_set() and self._unseen(wish.unseen_seconds):
                unseen = True
                stop.set()
            return stop.is_set()

        model = self._bring(turn, wish.model, wish.dtype)
        if not wish.timing:
            self._tell(turn, stage="running")
            self._results(turn, model, wish, stop, over)
        else:
            with queue_of(model).turn(lambda n: self._tell(turn, stage="waiting", before=n), over) as mine:
                if mine and not over():
                    self._tell(turn, stage="running", before=0)
                    self._results(turn, model, wish, stop, over)
        return {"stopped": True, "unseen": unseen} if stop.is_set() else {"complete": True}

    def _results(
        self, turn: int, model: LoadedModel, wish: Wish, stop: threading.Event, over: Callable[[], bool]
    ) -> None:
        steps = self._do(model, wish, stop)
        try:
            while wish.timing or not over():  # a timing one has the last word when it is stopped
                if (found := next(steps, None)) is None:
                    return
                with self._change:
                    if self._turn == turn:
                        self._state = replace(
                            self._state, found=found, answers=wish, complete=False, found_key=self._state.key
                        )
                over()
        finally:
            steps.close()
