"""What the hub says and sends: addresses, commits, checksums, sizes, and the bytes themselves.

huggingface_hub throws away what a broken download had brought, waits long for a silent server, and may fetch pieces
over a protocol of its own; so it is asked for addresses, headers and connections only, and `fetch` counts the bytes.
Importing this module brings in none of it: the first question does, in its own thread.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kvviz.core.background import beside
from kvviz.core.refusal import Refusal
from kvviz.models import catalog

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

T = TypeVar("T")
_log = logging.getLogger(__name__)

ANSWER_SECONDS = 4.0  # for each first word of the hub; with the libraries' import, a person knows within five
STALL_SECONDS = 15.0  # without a byte, in the middle of a file


@dataclass(frozen=True)
class File:
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
class Job:
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


def ask(job: Job) -> tuple[list[File], str]:
    """What there is to fetch, in the order in which it is fetched, and the commit it belongs to."""
    from huggingface_hub import get_session

    get_session()  # reading certificates takes its time: not the hub's
    config = _describe(job, "config.json", "main")
    commit = config.commit_hash

    def file(part: str, told: HfFileMetadata) -> File:
        blob, pointer = job.root / "blobs" / str(told.etag), job.root / "snapshots" / commit / part
        return File(part, job.url(part, commit), told.size or 0, blob.name, blob, pointer)

    found = {"config.json": config}
    if told := _describe(job, "tokenizer.json", commit, optional=True):
        found["tokenizer.json"] = told
    else:
        found |= {part: _describe(job, part, commit) for part in ("vocab.json", "merges.txt")}
    found["model.safetensors"] = _describe(job, "model.safetensors", commit)  # last: small files show trouble sooner
    return [file(part, told) for part, told in found.items()], commit


def _describe(job: Job, part: str, revision: str, *, optional: bool = False) -> Any:
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


def _answer(job: Job, call: Callable[[], T]) -> T:
    """What `call` to the hub returns, if that is within ANSWER_SECONDS; its thread is then given up, since looking up
    a name, a proxy and a silent server each have their own clock or none. Raises a Refusal for whatever goes wrong."""
    from huggingface_hub.errors import HfHubHTTPError

    future = beside(f"ask the hub for {job.name}", call)
    try:
        return future.result(ANSWER_SECONDS)
    except HfHubHTTPError as error:
        raise job.refusal("hub_refused", status=error.response.status_code) from None
    except Exception as error:
        if not future.done() or "Timeout" in type(error).__name__:
            future.add_done_callback(_close_late)
            raise job.refusal("hub_silent", seconds=f"{ANSWER_SECONDS:g}") from None
        raise job.refusal("hub_unreachable", reason=first_line(error)) from None


def _close_late(future: Future) -> None:
    if future.exception() is None and hasattr(future.result(), "close"):
        future.result().close()


def send_for(job: Job, file: File, have: int) -> Any:
    """The hub's response with the file's bytes from byte `have` on, its headers read and its body still to come."""
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

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

    return _answer(job, call)


def chunks(response: Any) -> Iterator[bytes]:
    """The pieces as they come. A connection that breaks off is their end: whoever counts sees it."""
    try:
        yield from response.iter_bytes()
    except Exception as error:  # the client's own kinds, which differ between its versions
        _log.info("the connection broke off: %s", error)


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
