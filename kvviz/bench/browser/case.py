"""What the benchmarks in the browser share: their options, one case after another, and the moments they wait for."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Error, Page

from kvviz.bench import report
from kvviz.bench.browser.harness import LAPTOP, ROOT
from kvviz.core import lessons

WAIT_MS = 60_000  # for what a busy machine may take: what takes longer is not measured, and that is said
COMING = [
    lessons.sections("en", "shell")[f"status_{stage}"].split("{")[0].strip()
    for stage in ("asleep", "importing", "loading")
]

# Milliseconds from each key to a task posted from the first frame after the player's attributes have changed.
WATCH_KEYS = """
() => {
  window.times = [];
  let start = null;
  document.addEventListener('keydown', (e) => { if (e.key !== 'Shift') start = performance.now(); }, {capture: true});
  const channel = new MessageChannel();
  channel.port1.onmessage = (e) => window.times.push(performance.now() - e.data);
  new MutationObserver(() => {
    if (start === null) return;
    const began = start;
    start = null;
    requestAnimationFrame(() => channel.port2.postMessage(began));
  }).observe(document.querySelector('[data-testid="kv-player"]'), {attributes: true, attributeFilter: ATTRIBUTES});
}
""".replace("ATTRIBUTES", json.dumps(["data-step", "data-layer", "data-head", "data-substep"]))


def options(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of each case (default 5)")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="the kvviz to measure (default: this one)")
    return parser


@contextlib.contextmanager
def case(name: str) -> Iterator[None]:
    """One case: on a machine too busy for it the benchmark says so and goes on with the next."""
    try:
        yield
    except (Error, TimeoutError) as error:
        report.not_measured(name, str(error).splitlines()[0])


def window(browser: Browser) -> Page:
    """A new visitor."""
    page = browser.new_context(viewport=LAPTOP, locale="en-US").new_page()
    page.set_default_timeout(WAIT_MS)
    return page


def usable(page: Page) -> None:
    """The player is there and shows a step."""
    page.wait_for_selector('[data-testid="kv-player"][data-step]')


def live(page: Page) -> None:
    """The sidebar has stopped saying that the model is on its way: Run would run at once."""
    page.wait_for_function(
        "words => { const bar = document.querySelector('[data-testid=stSidebar]')?.innerText; "
        "return bar && bar.includes('Model') && !words.some(w => bar.includes(w)); }",
        arg=COMING,
    )


def at_rest(page: Page, ms: int = 500) -> None:
    """The app's script has not run for so long."""
    page.evaluate(
        """([ms, most]) => new Promise((rest, late) => {
          const app = () => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState;
          const begun = performance.now();
          let since = begun;
          const look = () => {
            const now = performance.now();
            if (app() !== 'notRunning') since = now;
            if (now - since > ms) rest();
            else if (now - begun > most) late(new Error(`the page did not come to rest in ${most} ms`));
            else setTimeout(look, 20);
          };
          look();
        })""",
        [ms, WAIT_MS],
    )


def press(page: Page, key: str, count: int, pause_ms: int) -> list[float]:
    """Presses a key so often, each once the last one has shown; WATCH_KEYS must be in place."""
    page.evaluate("window.times = []")
    for i in range(count):
        page.keyboard.press(key)
        page.wait_for_function(f"window.times.length > {i}")
        page.wait_for_timeout(pause_ms)
    return page.evaluate("window.times")


def watch_messages(page: Page) -> list[int]:
    """Bytes of each message that Python sends to this page from now on; to be called before it opens."""
    sizes: list[int] = []
    page.on("websocket", lambda w: w.on("framereceived", lambda f: sizes.append(len(f) if isinstance(f, bytes) else 0)))
    return sizes
