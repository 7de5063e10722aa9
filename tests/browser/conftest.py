"""Fixtures of the browser tests. `harness.py` holds what they are made of.

    def test_next(visit):
        visit.goto("/decode?prompt=Once&step=2")
        visit.wait_player(step=2)
        visit.press("ArrowRight")
        visit.wait_player(step=3)

At the end each visit is held to three things: it asked for nothing beyond this machine, Streamlit showed no
traceback, and the browser logged no error. A test that provokes an error takes it out of `visit.errors`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from player_kit import APP, opener
from playwright.sync_api import Browser, sync_playwright

from kvviz.bench.browser.harness import Server, Visit, chromium


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The app as a learner starts it, shared by all browser tests."""
    with Server() as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = chromium(playwright)
        yield launched
        launched.close()


@pytest.fixture
def servers() -> Iterator[Callable[..., Server]]:
    """Starts further servers for one test: servers(environment={...}, arguments=(...), app=path)."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Server(**options))


@pytest.fixture
def visits(browser: Browser, servers: object, request: pytest.FixtureRequest) -> Iterator[Callable[..., Visit]]:
    """Opens windows: visits(locale="zh-CN", color_scheme="dark", viewport=PROJECTOR, url=other.url)."""
    opened: list[Visit] = []

    def open_window(*, url: str | None = None, **context: object) -> Visit:
        # The shared server starts only for the tests that use it.
        url = url or request.getfixturevalue("server").url
        opened.append(Visit(browser, url, **context))
        return opened[-1]

    yield open_window
    found = [(v.outside(), v.exceptions(), v.errors) for v in opened]
    for v in opened:
        v.close()
    for outside, exceptions, errors in found:
        assert not outside, f"asked for something beyond this machine: {outside}"
        assert not exceptions, exceptions
        assert not errors, errors


@pytest.fixture
def visit(visits: Callable[..., Visit]) -> Visit:
    """One window: 1440×900, light, English."""
    return visits()


@pytest.fixture(scope="session")
def player_server() -> Iterator[Server]:
    """The player alone, on made-up runs."""
    with Server(app=APP) as running:
        yield running


@pytest.fixture
def watch(visits: Callable[..., Visit], player_server: Server) -> Callable[..., Visit]:
    """Opens the player on a case: watch("six", step=6)."""
    return opener(visits, player_server.url)
