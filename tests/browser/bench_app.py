"""How fast the app answers, in a headless Chromium: python tests/browser/bench_app.py [ROUNDS]

From starting the server to a player that can be used and to a live model; changing pages; an empty rerun; and N (a new
token, compare off), for story-gpt2 and for random weights of GPT-2 small's size, from the keydown to a task posted from
the first animation frame after the change. It prints a JSON line a case: median, spread, and the largest message.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from harness import LAPTOP, ROOT, Server, chromium

sys.path.insert(0, str(ROOT))
from kvviz.core import lessons

WAIT_MS = 180_000
ROUNDS = 5
PRESSES = 30
COMING = [
    lessons.sections("en", "shell")[f"status_{stage}"].split("{")[0].strip()
    for stage in ("asleep", "importing", "loading")
]
PAGES = ("Prefill", "Decode", "Race", "Home")

# Times, in the page's own clock, at which the app's script starts and stops.
RERUNS = """
() => {
  window.reruns = [];
  const app = document.querySelector('[data-testid="stApp"]');
  let start = null;
  new MutationObserver(() => {
    const running = app.dataset.testScriptState === 'running';
    if (running && start === null) start = performance.now();
    if (!running && start !== null) { window.reruns.push(performance.now() - start); start = null; }
  }).observe(app, {attributes: true, attributeFilter: ['data-test-script-state']});
}
"""

# From a key to a task posted from the first frame after the player's step has changed.
KEYS = """
() => {
  window.times = [];
  let start = null;
  document.addEventListener('keydown', () => { start = performance.now(); }, {capture: true});
  const channel = new MessageChannel();
  channel.port1.onmessage = (e) => window.times.push(performance.now() - e.data);
  new MutationObserver(() => {
    if (start === null) return;
    const began = start;
    start = null;
    requestAnimationFrame(() => channel.port2.postMessage(began));
  }).observe(document.querySelector('[data-testid="kv-player"]'), {attributes: true, attributeFilter: ['data-step']});
}
"""


def report(name: str, ms: list[float], target: float | None = None, **more: object) -> None:
    ordered = sorted(ms)
    line: dict[str, object] = {
        "case": name,
        "n": len(ms),
        "p50_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 1),
        "least_ms": round(ordered[0], 1),
        "most_ms": round(ordered[-1], 1),
    }
    if target is not None:
        line |= {"target_p50_ms": target, "met": statistics.median(ordered) <= target}
    print(json.dumps(line | more), flush=True)


def usable(page: Page) -> None:
    """The player is there and shows a step."""
    page.wait_for_selector('[data-testid="kv-player"][data-step]', timeout=WAIT_MS)


def live(page: Page) -> None:
    """The sidebar has stopped saying that the model is on its way: Run would run at once."""
    page.wait_for_function(
        "words => { const bar = document.querySelector('[data-testid=stSidebar]')?.innerText; "
        "return bar && bar.includes('Model') && !words.some(w => bar.includes(w)); }",
        arg=COMING,
        timeout=WAIT_MS,
    )


def starts(playwright, rounds: int) -> None:
    """A new server and a new browser each time. The first one also warms the disk's cache: it stands apart."""
    player, model = [], []
    for i in range(rounds + 1):
        browser = chromium(playwright)
        page = browser.new_page(viewport=LAPTOP, locale="en-US")
        begun = time.monotonic()
        with Server() as server:
            page.goto(server.url)
            usable(page)
            player.append((time.monotonic() - begun) * 1e3)
            live(page)
            model.append((time.monotonic() - begun) * 1e3)
        browser.close()
        if i == 0:
            report("first start of the server to the player usable", player[:1])
            report("first start of the server to a live model", model[:1], 20_000)
    report("start of the server to the player usable", player[1:], 3_000)
    report("start of the server to a live model", model[1:], 8_000)


def page_changes(page: Page, rounds: int) -> None:
    """From a click in the navigation to that page's title and its player."""
    ms = []
    titles = {p: lessons.text("en", p.lower(), "title") for p in PAGES}
    for name in islice(cycle(PAGES), rounds * len(PAGES)):
        start = time.monotonic()
        page.get_by_role("link", name=name, exact=True).first.click()
        page.get_by_role("heading", name=titles[name], level=1).wait_for()
        usable(page)
        ms.append((time.monotonic() - start) * 1e3)
        page.wait_for_timeout(700)
    report("changing pages", ms, 1_000)


def reruns(page: Page, rounds: int) -> None:
    """Streamlit's own key for a rerun, with nothing changed."""
    page.evaluate(RERUNS)
    for i in range(rounds * 4):
        page.keyboard.press("r")
        page.wait_for_function(f"window.reruns.length > {i}", timeout=WAIT_MS)
        page.wait_for_timeout(300)
    report("an empty rerun", page.evaluate("window.reruns"), 300)


def new_tokens(browser: Browser, server: Server, model: str, target: float) -> None:
    """N at the end of a live run, one press at a time: by a reader who looks, and by one who hurries."""
    page = browser.new_page(viewport=LAPTOP, locale="en-US")
    largest = [0]
    page.on(
        "websocket",
        lambda w: w.on("framereceived", lambda f: largest.append(len(f) if isinstance(f, bytes) else 0)),
    )
    page.goto(f"{server.url}/decode?prompt=Dorothy+and+the+Tin+Woodman&model={model}&new=16&compare=false&step=15")
    page.wait_for_selector('[data-testid="kv-player"][data-step="15"]', timeout=WAIT_MS)
    page.wait_for_timeout(3_000)
    page.evaluate(KEYS)
    largest[:] = [0]
    for name, rest in (("the page at rest", 1_200), ("250 ms after the last", 250)):
        page.evaluate("window.times = []")
        for i in range(PRESSES):
            page.keyboard.press("n")
            page.wait_for_function(f"window.times.length > {i}", timeout=WAIT_MS)
            page.wait_for_timeout(rest)
        report(f"N, {model}, {name}", page.evaluate("window.times"), target, message_bytes=max(largest))
    step = page.get_attribute('[data-testid="kv-player"]', "data-step")
    assert step == str(15 + 2 * PRESSES), step
    page.close()


def gpt2_of_chance(folder: Path) -> Path:
    """A model folder of GPT-2 small's size with random weights and GPT-2's own vocabulary."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(ROOT / "tests" / "data" / "gpt2-tokenizer" / name, folder)
    return folder


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with sync_playwright() as playwright:
        starts(playwright, rounds)
        browser = chromium(playwright)
        with Server() as server:
            page = browser.new_page(viewport=LAPTOP, locale="en-US")
            page.goto(server.url)
            usable(page)
            live(page)
            page.wait_for_timeout(2_000)
            reruns(page, rounds)
            page_changes(page, rounds)
            page.close()
            new_tokens(browser, server, "story-gpt2", 200)
        with tempfile.TemporaryDirectory(prefix="kvviz-bench-") as home:
            folder = gpt2_of_chance(Path(home) / "random-gpt2-small")
            with Server(arguments=("--model", str(folder))) as server:
                new_tokens(browser, server, folder.name, 400)
        browser.close()


if __name__ == "__main__":
    main()
