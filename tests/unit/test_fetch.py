"""Downloads, from a hub on this machine: whole, shared, refused, silent, broken off, damaged, without room, offline."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvviz.core import lessons
from kvviz.core.refusal import Refusal
from kvviz.models import catalog, fetch
from kvviz.models import hub as hub_module
from tests.unit.hub_stand_in import COMMIT, Asked, Hub

ROOT = "models--openai-community--gpt2"
SMALL = ["config.json", "vocab.json", "merges.txt"]
NEEDED = [*SMALL, "model.safetensors"]


pytestmark = pytest.mark.usefixtures("hub_cache")


def got(name: str = "gpt2") -> fetch.Status:
    fetch.request(name)
    status = fetch.wait(name, 60)
    assert not status.coming
    return status


def refused(code: str, name: str = "gpt2") -> Refusal:
    """Asks for a download and returns why it failed, after its sentences have been read in both languages."""
    status = got(name)
    assert status.stage == "failed"
    assert status.refusal is not None
    assert status.refusal.code == code, str(status.refusal)
    for language in lessons.LANGUAGES:
        assert "{" not in lessons.text(language, "refusals", code, **status.refusal.shown())
    return status.refusal


def size(hub: Hub, names: list[str] = NEEDED) -> int:
    return sum(len(hub.files[n]) for n in names)


def test_a_model_is_fetched_by_its_name_and_loaded(hub, hub_cache):
    from kvviz.engine import Session
    from kvviz.models import loading

    assert catalog.default_name() == "story-gpt2"
    assert fetch.status("gpt2") == fetch.Status("asleep", 0, 548_105_171, 0.0, None)
    status = got()
    assert (status.stage, status.ready, status.refusal) == ("ready", True, None)
    assert status.done == status.total == size(hub)
    assert sorted(hub.got("GET")) == sorted(NEEDED)  # once each, and nothing else
    assert sorted(hub.got("HEAD")) == sorted([*NEEDED, "tokenizer.json"])

    snapshot = catalog.hub_snapshot("gpt2")
    assert snapshot == hub_cache / ROOT / "snapshots" / COMMIT
    assert (hub_cache / ROOT / "refs" / "main").read_text() == COMMIT
    assert sorted(p.name for p in snapshot.iterdir()) == sorted(NEEDED)
    for name in NEEDED:
        assert (snapshot / name).read_bytes() == hub.files[name]
        assert os.readlink(snapshot / name) == os.path.join("..", "..", "blobs", hub.etags[name])
    assert sorted(p.name for p in (hub_cache / ROOT / "blobs").iterdir()) == sorted(hub.etags[n] for n in NEEDED)

    assert catalog.default_name() == "gpt2"
    model = loading.load("gpt2", device="cpu")
    assert (model.facts.name, model.facts.layers, model.facts.heads, model.facts.width) == ("gpt2", 12, 12, 24)
    assert Session(model, "The capital of France is").advance(3).prompt_ids.tolist() == [464, 3139, 286, 4881, 318]

    asked = len(hub.asked)
    assert got().ready
    assert len(hub.asked) == asked  # what is here is not asked for again


def test_the_hub_s_own_client_finds_what_was_fetched(hub, hub_cache):
    from huggingface_hub import hf_hub_download, scan_cache_dir

    assert got().ready
    asked = len(hub.asked)
    for name in NEEDED:
        found = hf_hub_download("openai-community/gpt2", name, cache_dir=hub_cache, local_files_only=True)
        assert Path(found).read_bytes() == hub.files[name]
    assert len(hub.asked) == asked
    scanned = scan_cache_dir(hub_cache)
    assert not scanned.warnings
    assert [(r.repo_id, r.size_on_disk) for r in scanned.repos] == [("openai-community/gpt2", size(hub))]


def test_one_tokenizer_is_enough(hub, hub_cache):
    hub.files["tokenizer.json"] = (catalog.BUILTIN / "story-gpt2" / "tokenizer.json").read_bytes()
    hub.etags["tokenizer.json"] = "a" * 40
    assert got().ready
    assert sorted(hub.got("GET")) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(hub.got("HEAD")) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert catalog.hub_snapshot("gpt2")


def test_twenty_threads_make_one_download(hub):
    hub.gate.clear()
    barrier, ends = threading.Barrier(20), []

    def ask() -> None:
        barrier.wait()
        fetch.request("gpt2")
        ends.append(fetch.wait("gpt2", 60))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for t in threads:
        t.start()
    while not hub.asked:
        time.sleep(0.01)
    fetch.request("gpt2")
    assert fetch.status("gpt2").stage == "asking"
    assert fetch.wait("gpt2", 0.01).coming
    hub.gate.set()
    for t in threads:
        t.join()
    assert [e.stage for e in ends] == ["ready"] * 20
    assert Counter(hub.got("GET")) == dict.fromkeys(NEEDED, 1)
    assert Counter(hub.got("HEAD")) == dict.fromkeys([*NEEDED, "tokenizer.json"], 1)


def test_only_the_hub_s_models_of_the_catalogue_are_fetched(hub, tiny_folder):
    catalog.name_owner_folder(tiny_folder, default=False)
    for name in ("story-gpt2", "tiny-gpt2", "openai-community/gpt2", "../gpt2", ""):
        with pytest.raises(Refusal) as caught:
            fetch.request(name)
        assert caught.value.code == "unknown_model"
    assert hub.asked == []


def test_nobody_at_the_hub_s_address(monkeypatch):
    with socket.socket() as taken:  # a port that is nobody's once this is closed
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    refusal = refused("hub_unreachable")
    assert (refusal.values["model"], refusal.values["hub"]) == ("gpt2", address)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 503])
def test_a_hub_that_refuses(hub, status):
    hub.status = status
    assert refused("hub_refused").values["status"] == status
    assert hub.got("HEAD") == ["config.json"]  # once: it is not pressed
    hub.status = None
    assert got().ready  # asked again later


def test_a_hub_that_accepts_and_stays_silent(monkeypatch):
    """The code's own deadline is what a person waits for; the libraries' clocks stand at 15 s and more."""
    assert hub_module.ANSWER_SECONDS < 5 < hub_module.STALL_SECONDS
    with socket.create_server(("127.0.0.1", 0)) as server:  # the kernel accepts; nobody ever answers
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        start = time.monotonic()
        refusal = refused("hub_silent")
        assert 4 <= time.monotonic() - start < 14
        assert refusal.values["seconds"] == "4"
        server.settimeout(5)
        connection, _ = server.accept()  # it had connected
        with connection:
            assert connection.recv(5) == b"HEAD "


def test_a_name_that_is_looked_up_for_ever(monkeypatch):
    """No timeout of an HTTP client covers the system's look-up of a name."""
    over = threading.Event()

    def never(*args, **kwargs):
        over.wait(60)
        raise socket.gaierror("looked up in vain")

    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    monkeypatch.setattr(socket, "getaddrinfo", never)
    monkeypatch.setattr(hub_module, "ANSWER_SECONDS", 0.3)
    try:
        start = time.monotonic()
        assert refused("hub_silent").values == {"model": "gpt2", "hub": "http://hub.example", "seconds": "0.3"}
        assert time.monotonic() - start < 10
    finally:
        over.set()


@pytest.mark.parametrize(("method", "file"), [("HEAD", "model.safetensors"), ("GET", "vocab.json")])
def test_a_hub_that_falls_silent_later(hub, monkeypatch, method, file):
    """Each first word is waited for as long as the first; what comes too late is not taken."""
    hub.silent_at = (method, file)
    monkeypatch.setattr(hub_module, "ANSWER_SECONDS", 2.0)
    refused("hub_silent")
    assert (hub.asked[-1].method, hub.asked[-1].file) == (method, file)


def test_broken_off_and_gone_on_with_from_the_same_byte(hub, hub_cache):
    weights = hub.files["model.safetensors"]
    hub.break_at["model.safetensors"] = 1_234_567
    refusal = refused("fetch_broken")
    small = size(hub, SMALL)
    assert refusal.values == {"model": "gpt2", "done": small + 1_234_567, "total": small + len(weights)}
    assert fetch.status("gpt2").done == small + 1_234_567
    partial = hub_cache / ROOT / "blobs" / f"{hub.etags['model.safetensors']}.incomplete"
    assert partial.read_bytes() == weights[:1_234_567]
    assert catalog.hub_snapshot("gpt2") is None
    assert not (hub_cache / ROOT / "refs").exists()  # nobody takes half a model for a whole one

    fetch._slots.clear()  # as after a new start
    hub.asked.clear()
    hub.break_at["model.safetensors"] = 1_000_000
    assert refused("fetch_broken").values["done"] == small + 2_234_567
    assert got().ready
    ranges = [a.range for a in hub.asked if a.method == "GET" and a.file == "model.safetensors"]
    assert ranges == ["bytes=1234567-"] * 2 + ["bytes=2234567-"] * 2  # at the hub and where it hands on to
    assert set(hub.got("GET")) == {"model.safetensors"}
    assert hub.sent == small + len(weights)  # no byte twice
    assert (catalog.hub_snapshot("gpt2") / "model.safetensors").read_bytes() == weights
    assert not partial.exists()


def test_silence_in_the_middle(hub, monkeypatch):
    hub.break_at["model.safetensors"] = 500_000
    hub.stall = True
    monkeypatch.setattr(hub_module, "STALL_SECONDS", 0.5)
    refusal = refused("fetch_broken")
    assert refusal.values["done"] == size(hub, SMALL) + 500_000
    assert got().ready
    assert Asked("GET", "model.safetensors", "bytes=500000-", f"127.0.0.1:{hub.server_port}") in hub.asked


def test_a_server_that_knows_no_ranges(hub):
    hub.break_at["model.safetensors"] = 300_000
    refused("fetch_broken")
    hub.ranges = False
    assert got().ready
    assert (catalog.hub_snapshot("gpt2") / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_a_whole_file_that_was_not_yet_moved_into_place(hub, hub_cache):
    blobs = hub_cache / ROOT / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hub.etags['model.safetensors']}.incomplete").write_bytes(hub.files["model.safetensors"])
    assert got().ready
    assert sorted(hub.got("GET")) == sorted(SMALL)


def test_other_bytes_than_the_hub_s_are_thrown_away(hub, hub_cache):
    whole = hub.files["model.safetensors"]
    hub.files["model.safetensors"] = whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:]
    assert refused("fetch_damaged").values["file"] == "model.safetensors"
    assert catalog.hub_snapshot("gpt2") is None
    assert not list((hub_cache / ROOT / "blobs").glob("*.incomplete"))
    hub.files["model.safetensors"] = whole
    assert got().ready


@pytest.mark.parametrize(
    ("commit", "etag"), [(None, "a" * 40), ("main", "a" * 40), ("../../../../x", "a" * 40), (COMMIT, "../../../evil")]
)
def test_what_is_not_a_hub_chooses_no_path(hub, hub_cache, commit, etag):
    """A log-in page that answers everything with 200, or an answer made to write elsewhere."""
    hub.commit, hub.etags["config.json"] = commit, etag
    assert refused("hub_foreign").values["hub"] == hub.address
    assert hub.got("GET") == []
    assert not hub_cache.exists()


def test_no_room_is_said_before_anything_is_fetched(hub, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, used=0, free=size(hub) - 1))
    refusal = refused("disk_full")
    assert (refusal.values["needed"], refusal.values["free"]) == (size(hub), size(hub) - 1)
    assert f"{size(hub):,} bytes more" in str(refusal)
    assert hub.got("GET") == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, used=0, free=size(hub)))
    assert got().ready


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_in_the_middle(hub, monkeypatch, code):
    class Full:
        """A file for which the disk has `room` bytes."""

        def __init__(self, out, room):
            self._out, self._room = out, room

        def write(self, chunk):
            fits = max(0, self._room - self._out.tell())
            self._out.write(chunk[:fits])
            if fits < len(chunk):
                raise OSError(code, os.strerror(code))

        def __getattr__(self, name):
            return getattr(self._out, name)

    real = fetch._receive
    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_receive", lambda n, file, out, slot: real(n, file, Full(out, 700_000), slot))
        refusal = refused("disk_full")
    assert refusal.values["needed"] == size(hub) - sum(min(700_000, len(hub.files[n])) for n in fetched_before(hub))
    assert refusal.values["free"] > 0
    assert got().ready


def fetched_before(hub: Hub) -> list[str]:
    """The files that had been begun, in the order of their requests."""
    return list(dict.fromkeys(hub.got("GET")))


def test_the_environment_counts_at_the_moment_of_asking(hub, hub_cache, tmp_path, monkeypatch):
    hub.gate.clear()
    fetch.request("gpt2")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "another"))
    hub.gate.set()
    assert fetch.wait("gpt2", 60).ready
    assert not (tmp_path / "another").exists()
    assert (hub_cache / ROOT / "snapshots" / COMMIT / "config.json").is_file()


def test_a_fault_in_the_program_is_a_sentence_too(hub, monkeypatch):
    monkeypatch.setattr(fetch, "_check", lambda *_: 1 // 0)
    assert refused("fetch_failed").values["reason"] == "integer division or modulo by zero"


def test_a_cache_that_cannot_be_written(hub, hub_cache):
    hub_cache.write_text("a file where the folder should be")
    assert refused("cache_not_writable").values["path"] == str(hub_cache / ROOT)


def test_another_process_is_fetching_it(hub, hub_cache, monkeypatch):
    from huggingface_hub.utils import WeakFileLock

    monkeypatch.setattr(fetch, "BUSY_SECONDS", 0.3)
    lock = hub_cache / ".locks" / ROOT / f"{hub.etags['config.json']}.lock"
    lock.parent.mkdir(parents=True)
    with WeakFileLock(lock):
        refused("fetch_busy")
        assert hub.got("GET") == []
    assert got().ready


@pytest.mark.parametrize("variable", ["KVVIZ_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_never_tries(hub, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
        assert refused("offline").values == {"model": "gpt2", "variable": variable}
    assert hub.asked == []
    monkeypatch.setenv(variable, "0")
    assert got().ready


@pytest.mark.parametrize("code", ["offline", "hub_silent", "hub_unreachable", "hub_refused", "hub_foreign"])
@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_who_can_not_download_is_told_what_to_do_instead(language, code):
    sentence = lessons.sections(language, "refusals")[code]
    for word in ("--model", "KVVIZ_MODEL", "Hugging Face", "{model}"):
        assert word in sentence
