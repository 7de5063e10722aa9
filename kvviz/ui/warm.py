"""Models come up in the background, once per process, while the page is already there.

Importing torch and transformers takes seconds. No script thread does it: `request` starts a thread a model,
`status` tells the page how far it is, `model` makes a worker wait for it.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kvviz.core.background import beside
from kvviz.core.refusal import Refusal
from kvviz.models import device

if TYPE_CHECKING:
    from kvviz.models.loading import LoadedModel

Stage = Literal["asleep", "importing", "loading", "ready", "failed"]
_log = logging.getLogger(__name__)
# A pass takes Python's lock hundreds of times, and waits so long for it while a page is being drawn: Python's own
# 5 ms would make a pass of 5 ms one of 80.
SWITCH_SECONDS = 0.0005


def keep_for_good() -> None:
    """All objects of now stay out of the garbage collector's rounds. While a server comes up; later it does nothing,
    for by then visitors' runs live, and they have to go.

    Streamlit runs a full one after every script run and every fragment, with Python's lock held: 0.27 s over the
    440,000 objects that torch, transformers, pandas and Plotly are made of, and no pass can run meanwhile.
    """
    if not any(slot.stage == "ready" for slot in _slots.values()):
        gc.freeze()


@dataclass
class _Slot:
    """A model on its way or there. The future has the model, or raises why it can't be had."""

    stage: Stage = "importing"
    started: float = field(default_factory=time.monotonic)
    found: Future[LoadedModel] = field(default_factory=Future)

    def ready(self, model: LoadedModel) -> None:
        self.stage = "ready"
        self.found.set_result(model)

    def fail(self, error: Exception) -> None:
        self.stage = "failed"
        self.found.set_exception(error)

    @property
    def model(self) -> LoadedModel | None:
        return self.found.result() if self.stage == "ready" else None

    @property
    def refusal(self) -> Refusal | None:
        error = self.found.exception() if self.stage == "failed" else None
        return error if isinstance(error, Refusal) else None


@dataclass(frozen=True)
class Status:
    """`seconds` since the thread began, `refusal` if the model can't be had for a reason that has a sentence."""

    stage: Stage
    seconds: float
    refusal: Refusal | None

    @property
    def ready(self) -> bool:
        return self.stage == "ready"

    @property
    def coming(self) -> bool:
        """Worth asking again in a moment: it will be there or be refused."""
        return self.stage not in ("ready", "failed")


_slots: dict[tuple[str, str], _Slot] = {}  # by name and dtype; the one asked for last stands last
KEEP = 3  # models held for whoever comes next; a run keeps its own
_lock = threading.Lock()


def request(name: str, dtype: str = "float32") -> _Slot:
    """Starts loading `name` unless it is there, on its way, or has been refused. Returns at once."""
    key = (name, dtype)
    with _lock:
        if (held := _slots.get(key)) and held.model and held.model.device.type in device.lost:
            del _slots[key]  # it comes up again where it can
        held = _slots.pop(key, None)
        slot = _slots[key] = held or _Slot()
        ready = [k for k, s in _slots.items() if s.stage == "ready" and k != key]
        for old in ready[: max(0, len(ready) + 1 - KEEP)]:
            del _slots[old]
    if held is None:
        beside(f"load {name}", _bring_up, name, dtype, slot)
    return slot


def forget(name: str) -> None:
    """Lets a model that was refused be tried again: its files may have come meanwhile."""
    with _lock:
        for key in [k for k, s in _slots.items() if k[0] == name and s.stage == "failed"]:
            del _slots[key]


def status(name: str, dtype: str = "float32") -> Status:
    with _lock:
        slot = _slots.get((name, dtype))
        if slot is None:
            return Status("asleep", 0.0, None)
        return Status(slot.stage, time.monotonic() - slot.started, slot.refusal)


def loaded(name: str, dtype: str = "float32") -> LoadedModel | None:
    """The model if it is there now."""
    with _lock:
        slot = _slots.get((name, dtype))
        return slot.model if slot else None


def model(name: str, dtype: str = "float32") -> LoadedModel:
    """The model, waiting for it. For worker threads. Raises what loading raised: a Refusal if it has a sentence."""
    return request(name, dtype).found.result()


def _bring_up(name: str, dtype: str, slot: _Slot) -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.disable()  # what imports make stays: looking through it again and again is a third of their time
    try:
        import kvviz.models  # isort: skip  before torch: see there
        import torch  # noqa: F401

        keep_for_good()
        from kvviz.models import loading  # imports transformers

        keep_for_good()
        slot.stage = "loading"
        model = loading.load(name, dtype=dtype)
        import kvviz.engine  # noqa: F401  else the first Run imports it

        keep_for_good()
        slot.ready(model)
    except Refusal as refusal:
        slot.fail(refusal)
    except Exception:
        _log.exception("model %s did not load", name)
        slot.fail(RuntimeError(f"model {name} did not load"))
    finally:
        gc.enable()
