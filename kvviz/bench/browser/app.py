"""How fast the app answers, in a headless Chromium: python -m kvviz.bench.browser.app [--rounds N]

Changing pages; an empty rerun; and N (a new token, compare off), for story-gpt2 and for random weights of GPT-2
small's size, from the keydown to a task posted from the first animation frame after the change. How long it takes
to come up is measured by kvviz.bench.browser.opening.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from kvviz.bench import report
from kvviz.bench.browser.case import WATCH_KEYS, at_rest, case, live, options, press, usable, watch_messages, window
from kvviz.bench.browser.harness import ROOT, Server, chromium
from kvviz.core import lessons

PRESSES = 30
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


def page_changes(page: Page, rounds: int) -> None:
    """From a click in the navigation to that page's title and its player."""
    ms: list[float] = []
    titles = {p: lessons.text("en", p.lower(), "title") for p in PAGES}
    with case("changing pages"):
        for name in islice(cycle(PAGES), rounds * len(PAGES)):
            start = time.monotonic()
            page.get_by_role("link", name=name, exact=True).first.click()
            page.get_by_role("heading", name=titles[name], level=1).wait_for()
            usable(page)
            ms.append((time.monotonic() - start) * 1e3)
            at_rest(page)
    report.times("changing pages", ms, 1_000)


def reruns(page: Page, rounds: int) -> None:
    """Streamlit's own key for a rerun, with nothing changed."""
    page.evaluate(RERUNS)
    with case("an empty rerun"):
        for i in range(rounds * 4):
            at_rest(page, 300)  # pressed while the script runs, the key is one run and not two
            page.evaluate(f"window.reruns.length = {i}")
            page.keyboard.press("r")
            page.wait_for_function(f"window.reruns.length > {i}", timeout=20_000)
    report.times("an empty rerun", page.evaluate("window.reruns"), 300)


def new_tokens(browser: Browser, server: Server, model: str, target: float) -> None:
    """N at the end of a live run, one press at a time: by a reader who looks, and by one who hurries."""
    page = window(browser)
    sizes = watch_messages(page)
    with case(f"N, {model}"):
        page.goto(f"{server.url}/decode?prompt=Dorothy+and+the+Tin+Woodman&model={model}&new=16&compare=false&step=15")
        page.wait_for_selector('[data-testid="kv-player"][data-step="15"]')
        at_rest(page, 3_000)
        page.evaluate(WATCH_KEYS)
        sizes.clear()
        for name, rest in (("the page at rest", 1_200), ("250 ms after the last", 250)):
            found = press(page, "n", PRESSES, rest)
            report.times(f"N, {model}, {name}", found, target, f"largest message {max(sizes):,} bytes")
        step = page.get_attribute('[data-testid="kv-player"]', "data-step")
        if step != str(15 + 2 * PRESSES):
            report.not_measured(f"N, {model}", f"the player ended at step {step}: a press was lost")
    page.context.close()


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
    chosen = options(__doc__).parse_args()
    report.pace()
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        with Server(root=chosen.checkout) as server:
            page = window(browser)
            with case("a page with a live model"):
                page.goto(server.url)
                usable(page)
                live(page)
                at_rest(page, 2_000)
                reruns(page, chosen.rounds)
                page_changes(page, chosen.rounds)
            page.context.close()
            new_tokens(browser, server, "story-gpt2", 200)
        with tempfile.TemporaryDirectory(prefix="kvviz-bench-") as home:
            folder = gpt2_of_chance(Path(home) / "random-gpt2-small")
            with Server(arguments=("--model", str(folder)), root=chosen.checkout) as server:
                new_tokens(browser, server, folder.name, 400)
        browser.close()
    report.pace()


if __name__ == "__main__":
    main()
