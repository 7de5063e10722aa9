"""How long kvviz takes to come up, beside a Streamlit page with one title, in the same headless Chromium:

    python -m kvviz.bench.browser.opening [--rounds 5] [--beside CHECKOUT] [--only start warm long]

`start`: a new server and a new browser each time, to the title or a player that can be used; and on to a live model,
beside a bare process that imports, loads and runs the first passes. `warm`: a new visitor on a server that is up,
opening Home and a link with a prompt. `long`: a link with a prompt of 1,000 tokens, on each page that runs it.
All are interleaved round by round in alternating order; with --beside also an older kvviz. Ratios are of medians.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from kvviz.bench import report
from kvviz.bench.browser.case import at_rest, case, live, options, usable, window
from kvviz.bench.browser.harness import ROOT, Server, chromium

BARE = Path(__file__).with_name("bare.py")
LINK = "/decode?prompt=Dorothy+and+the+Tin+Woodman&model=story-gpt2&new=8&step=5"
LONG_MS = 5_000
# What a page shows once it is about the prompt of 1,000 tokens, where that is not the player itself.
LONG = {
    "prefill": '[data-testid="kv-player"][data-steps="8"]',
    "decode": '[data-testid="kv-player"][data-steps="8"]',
    "attention": "[data-key=attention-stage][data-drawn]",
    "problem": "[data-key=problem-triangle][data-drawn]",
    "memory": "[data-key=memory-parts][data-drawn]",
    "source": ".kvw",
}
PROCESS = """
import time; begun = time.monotonic()
import kvviz.models, torch
torched = time.monotonic()
from kvviz.models.loading import load
transformed = time.monotonic()
model = load("story-gpt2", device="cpu", dtype="float32")
loaded = time.monotonic()
from kvviz.engine import Session
Session(model, "Once upon a time", compare=False).advance(2)
print(torched - begun, transformed - torched, loaded - transformed, time.monotonic() - loaded)
"""
Task = Callable[[], None]


class Times:
    """Milliseconds of each named task, round by round in alternating order, and ratios of their medians."""

    def __init__(self) -> None:
        self.ms: dict[str, list[float]] = {}

    def add(self, name: str, seconds: float) -> None:
        self.ms.setdefault(name, []).append(seconds * 1e3)

    def report(self, goals: dict[str, tuple[str, float]] | None = None, limit: float | None = None) -> None:
        """`goals`: by a task's name the one it is a multiple of, and how many times that is aimed at."""
        for name, found in self.ms.items():
            report.times(name, found, limit)
        for name, (base, most) in (goals or {}).items():
            if name in self.ms and base in self.ms:
                ratio = median(self.ms[name]) / median(self.ms[base])
                said = "met" if ratio <= most else "MISSED"
                report.show(f"{name} / {base}", f"{ratio:8.2f} x   target <= {most}: {said}")


def interleaved(rounds: int, tasks: dict[str, Task]) -> None:
    for r in range(rounds):
        for name in tasks if r % 2 == 0 else reversed(tasks):
            with case(name):
                tasks[name]()


@contextlib.contextmanager
def visitor(browser: Browser) -> Iterator[Page]:
    page = window(browser)
    try:
        yield page
    finally:
        page.context.close()


def titled(page: Page) -> None:
    page.get_by_role("heading", name="Bare").wait_for()


def starts(playwright: Playwright, rounds: int, checkouts: dict[str, Path]) -> None:
    found = Times()

    def bare() -> None:
        browser = chromium(playwright)
        with visitor(browser) as page:
            begun = time.monotonic()
            with Server(app=BARE) as server:
                found.add("server listens, bare", time.monotonic() - begun)
                page.goto(server.url)
                titled(page)
                found.add("start, bare", time.monotonic() - begun)
        browser.close()

    def kvviz(name: str, root: Path) -> None:
        browser = chromium(playwright)
        with visitor(browser) as page:
            begun = time.monotonic()
            with Server(root=root) as server:
                found.add(f"server listens, {name}", time.monotonic() - begun)
                page.goto(server.url)
                page.wait_for_selector("[data-testid=stApp]")
                found.add(f"Streamlit's frame, {name}", time.monotonic() - begun)
                usable(page)
                found.add(f"start, {name}", time.monotonic() - begun)
                live(page)
                found.add(f"live model, {name}", time.monotonic() - begun)
        browser.close()

    def process() -> None:
        done = subprocess.run([sys.executable, "-c", PROCESS], cwd=ROOT, capture_output=True, text=True, check=True)
        parts = [float(word) for word in done.stdout.split()]
        for name, seconds in zip(("torch", "transformers", "class and load", "first passes"), parts, strict=True):
            found.add(f"bare process: {name}", seconds)
        found.add("bare process", sum(parts))

    tasks = {"bare": bare, "process": process, **{n: (lambda n=n, r=r: kvviz(n, r)) for n, r in checkouts.items()}}
    for task in tasks.values():  # the first one of each also fills the disk's cache
        with case("the first start"):
            task()
    found.ms.clear()
    interleaved(rounds, tasks)
    if listens := found.ms.get("server listens, bare"):
        at_least = [median(listens) + ms for ms in found.ms.get("bare process", [])]
        found.ms["server and bare process"] = at_least
    goals = {f"start, {name}": ("start, bare", 1.3) for name in checkouts}
    found.report(goals | {f"live model, {name}": ("server and bare process", 1.25) for name in checkouts})


def opened(browser: Browser, found: Times, name: str, url: str, there: Callable[[Page], object]) -> None:
    with visitor(browser) as page:
        begun = time.monotonic()
        page.goto(url)
        there(page)
        found.add(name, time.monotonic() - begun)
        at_rest(page, 300)  # the next visitor's time is not this one's rest


def up(stack: contextlib.ExitStack, browser: Browser, root: Path) -> Server:
    """A server with a live model, which has had a visitor."""
    server = stack.enter_context(Server(root=root))
    with visitor(browser) as page:
        page.goto(server.url + LINK)
        page.wait_for_selector('[data-testid="kv-player"][data-step="5"]')
        live(page)
        at_rest(page, 2_000)
    return server


def warm(playwright: Playwright, rounds: int, checkouts: dict[str, Path]) -> None:
    found = Times()
    with contextlib.ExitStack() as stack:
        browser = chromium(playwright)
        servers = {name: up(stack, browser, root) for name, root in checkouts.items()}
        bare = stack.enter_context(Server(app=BARE))
        step = '[data-testid="kv-player"][data-step="5"][data-steps="8"]'
        tasks: dict[str, Task] = {"warm, bare": lambda: opened(browser, found, "warm, bare", bare.url, titled)}
        for name, server in servers.items():
            home, link = f"Home, {name}", f"a link to its step, {name}"
            tasks[home] = lambda n=home, s=server: opened(browser, found, n, s.url, usable)
            tasks[link] = lambda n=link, s=server: opened(
                browser, found, n, s.url + LINK, lambda page: page.wait_for_selector(step)
            )
        interleaved(1, tasks)
        found.ms.clear()
        interleaved(rounds * 2, tasks)
        browser.close()
    goals = {f"Home, {name}": ("warm, bare", 1.25) for name in checkouts}
    found.report(goals | {f"a link to its step, {name}": ("warm, bare", 1.5) for name in checkouts})


def long(playwright: Playwright, rounds: int, checkouts: dict[str, Path]) -> None:
    found = Times()
    with contextlib.ExitStack() as stack:
        browser = chromium(playwright)
        servers = {name: up(stack, browser, root) for name, root in checkouts.items()}
        tasks: dict[str, Task] = {}
        counter = iter(range(1_000_000))

        def task(label: str, server: Server, page_name: str, selector: str) -> Task:
            def go() -> None:
                # Another text each time, for what one link has computed must not serve the next.
                words = "+the" * 999
                url = f"{server.url}/{page_name}?prompt={next(counter) % 10}{words}&model=story-gpt2&new=8&step=7"
                opened(browser, found, label, url, lambda page: about_the_prompt(page, selector))

            return go

        for page_name, selector in LONG.items():
            for name, server in servers.items():
                label = f"1,000 tokens, {page_name}, {name}"
                tasks[label] = task(label, server, page_name, selector)
        interleaved(rounds, tasks)
        browser.close()
    found.report(limit=LONG_MS)


def about_the_prompt(page: Page, selector: str) -> None:
    """The page says that the run is a live one, its script has ended, and its picture is there."""
    page.get_by_text("Your run: story-gpt2", exact=False).first.wait_for()
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", state="attached")
    page.wait_for_selector(selector)


CASES = {"start": starts, "warm": warm, "long": long}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    chosen = parser.parse_args()
    checkouts = {"kvviz": chosen.checkout} | ({"beside": chosen.beside} if chosen.beside else {})
    with sync_playwright() as playwright:
        for name in chosen.only:
            report.pace()
            CASES[name](playwright, chosen.rounds, checkouts)
    report.pace()


if __name__ == "__main__":
    main()
