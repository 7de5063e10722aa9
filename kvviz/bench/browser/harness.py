"""A running app and a real Chromium, for the browser tests, the benchmarks and the screenshots.

`Server` starts `streamlit run app.py`; `chromium(playwright)` launches the browser; `Visit` is one window on it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Playwright, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[3]
WAIT_MS = 90_000  # for what a loaded two-core machine may be slow at; never a claim about speed
LAPTOP = {"width": 1440, "height": 900}
PROJECTOR = {"width": 1920, "height": 1080}
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "msedge")
_CHROMIUM_PATHS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
    # Names other than this machine's do not resolve: what asks for them fails at once.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def chromium_path(playwright: Playwright) -> str:
    """The browser to drive: KVVIZ_CHROMIUM, the first one found, or Playwright's own. RuntimeError without any."""
    named = os.environ.get("KVVIZ_CHROMIUM")
    if named:
        return named
    found = next((path for name in _CHROMIUM_NAMES if (path := shutil.which(name))), None)
    found = found or next((p for p in _CHROMIUM_PATHS if Path(p).exists()), None)
    found = found or next((p for p in (playwright.chromium.executable_path,) if Path(p).exists()), None)
    if not found:
        raise RuntimeError("No Chromium or Chrome found; install one, or name it in KVVIZ_CHROMIUM.")
    return found


def chromium(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=chromium_path(playwright), args=list(_ARGUMENTS))


class Server:
    """The app on a free port, with caches that hold nothing. Use as a context manager.

    `app` may be another script, for a test of one component alone, and `root` another checkout of kvviz. Without
    `address` it listens as a learner's does.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
        app: str | Path = "app.py",
        address: str | None = "127.0.0.1",
        root: Path = ROOT,
    ):
        self.port = free_port()
        self.url = f"http://localhost:{self.port}"
        self._home = tempfile.TemporaryDirectory(prefix="kvviz-server-")
        self._log_path = Path(self._home.name) / "server.log"
        self._environment = {
            **os.environ,
            "HF_HOME": str(Path(self._home.name) / "empty-hub"),
            "KVVIZ_CACHE": str(Path(self._home.name) / "empty-cache"),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
            **(environment or {}),
        }
        self._arguments = arguments
        self._app, self._root = str(app), root
        self._address = address
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> Server:
        options = {"server.port": self.port, "server.headless": "true"}
        if self._address:
            options["server.address"] = self._address
        flags = [f"--{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", "streamlit", "run", self._app, *flags]
        if self._arguments:
            command += ["--", *self._arguments]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self._root, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )
        for _ in range(3_000):
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self._process.returncode}:\n{self.log()}")
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5) as answer:
                    if answer.status == 200:
                        return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.02)
        self.__exit__()
        raise RuntimeError(f"the server did not get healthy:\n{self.log()}")

    def __exit__(self, *_: object) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def pid(self) -> int:
        """The process, while it runs."""
        assert self._process
        return self._process.pid

    def log(self) -> str:
        """What the server has printed so far."""
        return self._log_path.read_text(encoding="utf-8", errors="replace") if self._log_path.exists() else ""


class Visit:
    """One browser window on the app, which writes down what it asks for and what goes wrong in it."""

    def __init__(self, browser: Browser, url: str, **context: object):
        self.url = url
        settings = {"viewport": LAPTOP, "locale": "en-US", "color_scheme": "light", "reduced_motion": "reduce"}
        self.context = browser.new_context(**{**settings, **context})
        self.context.set_default_timeout(WAIT_MS)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.context.on("request", lambda r: self.requests.append(r.url))
        self.page = self.new_page()

    def new_page(self) -> Page:
        """Another tab of the same window, watched like the first."""
        page = self.context.new_page()
        page.on("websocket", lambda w: self.requests.append(w.url))
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.on("console", self._console)
        return page

    def _console(self, message: ConsoleMessage) -> None:
        # Opened at a page's path, Streamlit first looks for itself below that path and is told 404, then above it.
        looking = message.location["url"].endswith(("/_stcore/health", "/_stcore/host-config"))
        if message.type == "error" and not looking:
            self.errors.append(f"{message.text} ({message.location['url']})")

    def close(self) -> None:
        self.context.close()

    def goto(self, path: str = "/", *, ready: bool = True) -> Page:
        """Open a path of the app (`/decode?step=3`) and wait until its script has run."""
        self.page.goto(self.url + path)
        if ready:
            self.settled()
        return self.page

    def settled(self) -> None:
        """Wait until the app is connected and its script is not running."""
        self.page.wait_for_selector(
            '[data-testid="stApp"][data-test-connection-state="CONNECTED"][data-test-script-state="notRunning"]',
            state="attached",
        )

    @property
    def player(self) -> Locator:
        return self.page.get_by_test_id("kv-player")

    @property
    def running_text(self) -> Locator:
        """Prompt and chosen tokens up to the step, under the player."""
        return self.page.locator(".st-key-running_text [data-testid=stText]")

    def wait_player(self, **attributes: object) -> Locator:
        """Wait until the player shows this: wait_player(step=3, cache_length=8, layer=0, head=0)."""
        for name, value in attributes.items():
            expect(self.player).to_have_attribute(f"data-{name.replace('_', '-')}", str(value), timeout=WAIT_MS)
        if not attributes:
            expect(self.player).to_be_visible(timeout=WAIT_MS)
        return self.player

    def shown(self) -> dict[str, int]:
        """What the player's attributes say now."""
        names = ("step", "cache-length", "layer", "head")
        return {n.replace("-", "_"): int(self.player.get_attribute(f"data-{n}") or -1) for n in names}

    def press(self, *keys: str) -> None:
        """Press keys on the page, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def shot(self, path: str | Path, *, full: bool = False) -> bytes:
        return self.page.screenshot(path=str(path), full_page=full, animations="disabled")

    def outside(self) -> list[str]:
        """Requests for anything but this machine."""
        return [u for u in self.requests if not _local(u)]

    def exceptions(self) -> list[str]:
        """Tracebacks that Streamlit shows on the page."""
        return self.page.get_by_test_id("stException").all_inner_texts()


def _local(url: str) -> bool:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme in ("data", "blob", "about") or parts.hostname in ("localhost", "127.0.0.1", "::1")


if __name__ == "__main__":
    with sync_playwright() as launcher:
        print(chromium_path(launcher))
