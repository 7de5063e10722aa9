"""Downloads of GPT-2's family from the hub, in the background, one a model however many ask.

Files go where the hub's own clients keep theirs, so that `catalog.hub_snapshot` and every other program find them.
huggingface_hub throws away what a broken download had brought, waits long for a silent server, and may fetch pieces
over a protocol of its own; so it is asked for addresses, headers and connections only, and the bytes are counted here.
Importing this module brings in none of it: the first request does, in its own thread.
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
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar

from kvviz.models import catalog
from kvviz.refusal import Refusal

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

Stage = Literal["asleep", "asking", "fetching", "checking", "ready", "failed"]
T = TypeVar("T")
_log = logging.getLogger(__name__)

ANSWER_SECONDS = 4.0  # for each first word of the hub; with the libraries' import, a person knows within five
STALL_SECONDS = 15.0  # without a byte, in the middle of a file
BUSY_SECONDS = 15.0  # another process holds a file's lock and brings nothing
OFFLINE = ("KVVIZ_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # kvviz's own, and those the hub's client obeys
_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class Status:
    """`done` of `total` bytes are on this disk; `seconds` since it was asked for. `total` is the catalogue's figure
    until the hub has given its own. `refusal` is there exactly when it failed."""

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
        return self.stage in ("asking", "fetching", "checking")


@dataclass(frozen=True)
class _File:
    """A file of a model: what the hub says of it, and its two places here. `size` in bytes."""

    name: str
    url: str
    size: int
    etag: str  # the SHA-256 of a large file, another name of the content for the others
    blob: Path  # the content, under its etag
    pointer: Path  # the name in the snapshot, a link to the blob

    @property
    def partial(self) -> Path:
        return self.blob.with_name(f"{self.blob.name}.incomplete")

    def here(self) -> int:
        """Bytes of it on this disk, looked for in the order in which they move on."""
        for place in (self.partial, self.blob, self.pointer):
            with contextlib.suppress(OSError):
                return min(self.size, place.stat().st_size)
        return 0


@dataclass(frozen=True)
class _Job:
    """What was asked for: the model's name, the mirror named in HF_ENDPOINT or "", the model's folder in the cache.
    Read at once, for the environment may change while it goes on."""

    name: str
    mirror: str
    root: Path

    @property
    def hub(self) -> str:
        from huggingface_hub import constants

        return self.mirror or constants.ENDPOINT

    def url(self, part: str, revision: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(catalog.hub_repository(self.name), part, revision=revision, endpoint=self.hub)

    def refusal(self, code: str, **values: object) -> Refusal:
        return Refusal(code, model=self.name, hub=self.hub, **values)


@dataclass
class _Slot:
    stage: Stage = "asleep"
    started: float = 0.0
    files: list[_File] = field(default_factory=list)
    refusal: Refusal | None = None
    done: threading.Event = field(default_factory=threading.Event)


_slots: dict[str, _Slot] = {}
_lock = threading.Lock()


def request(name: str) -> None:
    """Starts the download of `name` unless it is there or on its way; one that failed goes on where it stopped.
    Returns at once. Raises Refusal "unknown_model": only the catalogue's models of the hub are fetched."""
    if name not in catalog.hub_names():
        raise Refusal("unknown_model", model=name)
    with _lock:
        slot = _slots.get(name)
        if slot and slot.stage in ("asking", "fetching", "checking"):
            return
        slot = _slots[name] = _Slot(started=time.monotonic())
        if catalog.hub_snapshot(name):
            slot.stage = "ready"
        elif variable := offline():
            slot.stage, slot.refusal = "failed", Refusal("offline", model=name, variable=variable)
        else:
            slot.stage = "asking"
            job = _Job(name, os.environ.get("HF_ENDPOINT", "").rstrip("/"), catalog.hub_folder(name))
            threading.Thread(target=_bring, args=(job, slot), name=f"get {name}", daemon=True).start()
            return
        slot.done.set()


def status(name: str) -> Status:
    """How far it is; "asleep" for a model that nobody has asked for."""
    with _lock:
        slot = _slots.get(name) or _Slot()
    stage, files = slot.stage, slot.files
    total = sum(f.size for f in files) or catalog.hub_bytes(name)
    done = total if stage == "ready" else sum(f.here() for f in files)
    seconds = time.monotonic() - slot.started if slot.started else 0.0
    return Status(stage, done, total, seconds, slot.refusal)


def wait(name: str, seconds: float | None = None) -> Status:
    """Status once it is ready or has failed, or after `seconds`. For worker threads and the command line."""
    with _lock:
        slot = _slots.get(name)
    if slot:
        slot.done.wait(seconds)
    return status(name)


def offline() -> str | None:
    """The variable by which the owner of this machine forbids downloads, or None."""
    return next((v for v in OFFLINE if os.environ.get(v, "").upper() in ("1", "ON", "YES", "TRUE")), None)


def _bring(job: _Job, slot: _Slot) -> None:
    try:
        slot.files, commit = _ask(job)
        space = _space(job, slot)
        if space["needed"] > space["free"]:
            raise Refusal("disk_full", **space)
        slot.stage = "fetching"
        for file in slot.files:
            _bring_file(job, file, slot)
        _write_ref(job.root, commit)
        slot.stage = "ready"
    except Exception as error:
        slot.refusal = _why(job, slot, error)
        slot.stage = "failed"
    finally:
        slot.done.set()


def _why(job: _Job, slot: _Slot, error: Exception) -> Refusal:
    """The sentence for whatever ended a download. The hub's failures have theirs by now: an OSError is this disk's."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, OSError) and error.errno in _FULL:
        return Refusal("disk_full", **_space(job, slot))
    if isinstance(error, OSError):
        return Refusal("cache_not_writable", path=str(job.root), reason=_first_line(error))
    _log.error("model %s was not fetched", job.name, exc_info=error)
    return Refusal("fetch_failed", model=job.name, reason=_first_line(error))


def _ask(job: _Job) -> tuple[list[_File], str]:
    """What there is to fetch, in the order in which it is fetched, and the commit it belongs to."""
    from huggingface_hub import get_session

    get_session()  # reading certificates takes its time: not the hub's
    config = _describe(job, "config.json", "main")
    commit = config.commit_hash

    def file(part: str, told: HfFileMetadata) -> _File:
        blob, pointer = job.root / "blobs" / str(told.etag), job.root / "snapshots" / commit / part
        return _File(part, job.url(part, commit), told.size or 0, blob.name, blob, pointer)

    found = {"config.json": config}
    if told := _describe(job, "tokenizer.json", commit, optional=True):
        found["tokenizer.json"] = told
    else:
        found |= {part: _describe(job, part, commit) for part in ("vocab.json", "merges.txt")}
    found["model.safetensors"] = _describe(job, "model.safetensors", commit)  # last: small files show trouble sooner
    return [file(part, told) for part, told in found.items()], commit


def _describe(job: _Job, part: str, revision: str, *, optional: bool = False) -> Any:
    """Commit, ETag and size of a file. None for an optional one that the hub doesn't have."""
    from huggingface_hub import get_hf_file_metadata
    from huggingface_hub.errors import HfHubHTTPError

    def call() -> HfFileMetadata | None:
        try:
            return get_hf_file_metadata(job.url(part, revision), timeout=STALL_SECONDS, endpoint=job.hub)
        except HfHubHTTPError as error:
            if optional and error.response.status_code == 404:
                return None
            raise

    told = _answer(job, call)
    if told is None:
        return None
    # They become names of files: a log-in page, or a crafted answer, must not choose where those are.
    commit, etag = told.commit_hash or "", told.etag or ""
    if not re.fullmatch("[0-9a-f]{40}", commit) or not re.fullmatch("[0-9A-Za-z-]{1,128}", etag) or not told.size:
        raise job.refusal("hub_foreign")
    return told


def _answer(job: _Job, call: Callable[[], T]) -> T:
    """What `call` to the hub returns, if that is within ANSWER_SECONDS; its thread is then given up, since looking up
    a name, a proxy and a silent server each have their own clock or none. Raises a Refusal for whatever goes wrong."""
    from huggingface_hub.errors import HfHubHTTPError

    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name=f"ask the hub for {job.name}", daemon=True).start()
    try:
        return future.result(ANSWER_SECONDS)
    except HfHubHTTPError as error:
        raise job.refusal("hub_refused", status=error.response.status_code) from None
    except Exception as error:
        if not future.done() or "Timeout" in type(error).__name__:
            future.add_done_callback(_close_late)
            raise job.refusal("hub_silent", seconds=f"{ANSWER_SECONDS:g}") from None
        raise job.refusal("hub_unreachable", reason=_first_line(error)) from None


def _close_late(future: Future) -> None:
    if future.exception() is None and hasattr(future.result(), "close"):
        future.result().close()


def _bring_file(job: _Job, file: _File, slot: _Slot) -> None:
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


def _receive(job: _Job, file: _File, out: BinaryIO, slot: _Slot) -> None:
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    have = out.tell()

    def call() -> Any:
        headers = build_hf_headers(library_name="kvviz")
        headers["Accept-Encoding"] = "identity"  # bytes on the wire are bytes of the file
        if have:
            headers["Range"] = f"bytes={have}-"
        session = get_session()
        asked = session.build_request("GET", file.url, headers=headers, timeout=STALL_SECONDS)
        response = session.send(asked, stream=True, follow_redirects=True)
        try:
            hf_raise_for_status(response)
        except Exception:
            response.close()
            raise
        return response

    response = _answer(job, call)
    with contextlib.closing(response):
        if have:
            start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if response.status_code != 206:  # the whole file, from its start
                _empty(out)
            elif not start or int(start[1]) != have:
                raise job.refusal("hub_foreign")
        for chunk in _chunks(response):
            out.write(chunk)
            if out.tell() > file.size:  # seen when it is checked
                break
    out.flush()
    if out.tell() < file.size:
        done, total = sum(f.here() for f in slot.files), sum(f.size for f in slot.files)
        raise Refusal("fetch_broken", model=job.name, done=done, total=total)


def _chunks(response: Any) -> Iterator[bytes]:
    """The pieces as they come. A connection that breaks off is their end: whoever counts sees it."""
    try:
        yield from response.iter_bytes()
    except Exception as error:  # the client's own kinds, which differ between its versions
        _log.info("the connection broke off: %s", error)


def _empty(out: BinaryIO) -> None:
    out.seek(0)
    out.truncate()


def _check(job: _Job, file: _File) -> None:
    """Size, and the SHA-256 where the ETag is one. What is damaged is thrown away."""
    good = file.partial.stat().st_size == file.size
    if good and re.fullmatch("[0-9a-f]{64}", file.etag):
        with file.partial.open("rb") as whole:
            good = hashlib.file_digest(whole, "sha256").hexdigest() == file.etag
    if not good:
        file.partial.unlink()
        raise Refusal("fetch_damaged", model=job.name, file=file.name)


@contextlib.contextmanager
def _only_process(job: _Job, file: _File) -> Iterator[None]:
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


def _space(job: _Job, slot: _Slot) -> dict[str, Any]:
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


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
