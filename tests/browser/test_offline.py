"""C17: nothing beyond this machine is asked for, by the browser or by the server, on any page."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PAGES = {"/": "kv-player", "/prefill": "kv-player", "/decode": "kv-player", "/race": "kv-race"} | dict.fromkeys(
    ("/problem", "/permission", "/source", "/ladder", "/roofline", "/memory"), "stMainBlockContainer"
)


@pytest.mark.parametrize(("path", "hero"), PAGES.items(), ids=[p.strip("/") or "home" for p in PAGES])
def test_a_page_needs_no_network(visit, server, outside_log, path, hero):
    visit.goto(path)
    visit.page.get_by_test_id(hero).wait_for()
    assert visit.requests and not visit.outside()
    asked = outside_log.read_text(encoding="utf-8") if outside_log.exists() else ""
    assert asked == "", f"the server asked for: {asked}"
    assert "Traceback" not in server.log()


def test_a_live_run_needs_no_network(visit, outside_log):
    """The model is loaded from the checkout: the hub is not asked, not even whether it is there."""
    visit.goto("/decode?model=story-gpt2&prompt=Once%20upon%20a%20time&new=3&step=2", ready=False)
    visit.wait_player(step=2, cache_length=7)
    assert not outside_log.exists() or outside_log.read_text(encoding="utf-8") == ""


def test_the_first_start_on_a_machine_asks_nothing(servers, tmp_path):
    """No e-mail address of the owner, and no host on the internet for this machine's own address."""
    log = tmp_path / "outside.log"
    home = {"HOME": str(tmp_path), "KVVIZ_OFFLINE_LOG": str(log)}
    server = servers(environment=home, address=None)
    assert not log.exists()
    assert f"http://localhost:{server.port}" in server.log()
    assert "mail" not in server.log()


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("import urllib.request; urllib.request.urlopen('http://example.org', timeout=5)", True),
        ("import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)", True),
        ("import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
         "socket.create_connection(s.getsockname(), timeout=5)", False),
    ],
)  # fmt: skip
def test_the_guard_itself(tmp_path, code, refused):
    """What these tests rely on: a process of theirs is refused anything but this machine, and it is written down."""
    log = tmp_path / "outside.log"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KVVIZ_OFFLINE_LOG": str(log)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode != 0) == refused, done.stderr
    assert log.exists() == refused
