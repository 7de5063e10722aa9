"""A hub on this machine: as much of its protocol as a download needs, and ways to go wrong.

A file's HEAD names commit, ETag and size; a large one (safetensors) is handed on to another host, as the hub does it.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "607a30d783dfa663caf39e06633721c8d4cfcd7e"


@dataclass(frozen=True)
class Asked:
    method: str
    file: str
    range: str | None
    host: str


class Hub(ThreadingHTTPServer):
    """Serves `files` of one repository. Every request is in `asked`, in order."""

    daemon_threads = True

    def __init__(self, repository: str, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repository = repository
        self.files = files
        self.etags = {name: etag(name, content) for name, content in files.items()}
        self.commit: str | None = COMMIT
        self.asked: list[Asked] = []
        self.sent = 0  # bytes of bodies
        self.status: int | None = None  # answered to everything
        self.break_at: dict[str, int] = {}  # bytes of a body before the connection ends, once
        self.stall = False  # where it would end, it stays open and silent instead
        self.ranges = True
        self.silent_at: tuple[str, str] | None = None  # method and file of the request that is not answered
        self.gate = threading.Event()  # answers wait for it
        self.gate.set()
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def got(self, method: str) -> list[str]:
        """Names of the files asked for by that method; a file handed on to the other host counts once."""
        return [a.file for a in self.asked if a.method == method and a.host.startswith("127.0.0.1")]


def etag(name: str, content: bytes) -> str:
    """Git's hash of a small file, SHA-256 of a large one."""
    if name.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        hub = self.server
        name = self.path.rsplit("/", 1)[1]
        hub.asked.append(Asked(self.command, name, self.headers.get("Range"), self.headers.get("Host", "")))
        hub.gate.wait(30)
        if (self.command, name) == hub.silent_at:
            hub.over.wait(30)
        paths = [f"/{hub.repository}/resolve/{revision}/{name}" for revision in ("main", hub.commit)]
        if hub.status is not None or name not in hub.files or self.path not in (*paths, f"/large/{name}"):
            self.head(hub.status or 404, {"Content-Length": "0"})
            return
        content = hub.files[name]
        facts = {"X-Repo-Commit": hub.commit} if hub.commit else {}
        if name.endswith(".safetensors") and self.path in paths:
            facts |= {"X-Linked-Etag": f'"{hub.etags[name]}"', "X-Linked-Size": str(len(content))}
            elsewhere = f"http://localhost:{hub.server_port}/large/{name}"
            self.head(302, facts | {"Location": elsewhere, "Content-Length": "0"})
            return
        facts |= {"ETag": f'"{hub.etags[name]}"'}
        asked, start = self.headers.get("Range"), 0
        if asked and hub.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            facts["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.head(206 if "Content-Range" in facts else 200, facts | {"Content-Length": str(len(content) - start)})
        if self.command == "GET":
            self.body(name, content[start:])

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def body(self, name: str, content: bytes) -> None:
        hub = self.server
        end = hub.break_at.pop(name, None)
        piece = content if end is None else content[:end]
        try:
            self.wfile.write(piece)
        except OSError:  # the other side has closed
            self.close_connection = True
            return
        hub.sent += len(piece)
        if end is not None:
            if hub.stall:
                hub.over.wait(30)
            self.close_connection = True
