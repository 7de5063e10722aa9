"""A class at once, in a headless Chromium: python -m kvviz.bench.browser.visitors [--pages 12] [--tokens 20]

Each page (12) is a visitor of its own with a prompt of its own; all press N together, each as soon as its last token
is there, 20 times. Some passes are made ahead of their press, so 20 presses see how they are used up and 60 how fast
more come. Prints milliseconds a token over all pages, from the keydown to a task posted from the first frame
after the change, and the server's memory: with the model loaded and nobody there, with everybody there, and three
minutes after the last page has closed. Ends with 1 if a page shows an error or another page's text.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from kvviz.bench import report
from kvviz.bench.browser.case import case, options, window
from kvviz.bench.browser.harness import Server, chromium
from kvviz.engine import Session, load

WAIT_MS = 300_000
PRESS_SECONDS = 15  # that one press may take; the whole of a page's presses has so many times as long
FIRST = 2  # tokens of each run before anybody presses N
CLOSED_SECONDS = 180
SETTLED_SECONDS = 60
P95_MS = 2_000
PROMPTS = (
    "The king", "Once upon a time", "Dorothy", "The wolf said", "In the forest", "A little girl", "The old woman",
    "Alice was", "The Tin Woodman", "The sea", "My dear", "It was a dark", "The queen", "Every morning", "The Lion",
    "The cat", "He went", "She saw", "They came", "The road",
)  # fmt: skip

# Presses N, waits for the step it brings, and again; milliseconds of each.
PRESSES = """
async ([count, most]) => {
  const player = document.querySelector('[data-testid="kv-player"]');
  const channel = new MessageChannel();
  const times = [];
  for (let i = 0; i < count; i++) {
    times.push(await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error(`press ${i + 1} brought nothing in ${most} s`)), most * 1000);
      const start = performance.now();
      const seen = new MutationObserver(() => {
        seen.disconnect();
        channel.port1.onmessage = () => resolve(performance.now() - start);
        requestAnimationFrame(() => channel.port2.postMessage(0));
      });
      seen.observe(player, {attributes: true, attributeFilter: ['data-step']});
      document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'n', bubbles: true}));
    }));
  }
  return times;
}
"""


def resident(server: Server) -> float | None:
    """The server's memory in MB, where the system tells it as Linux does."""
    try:
        status = Path(f"/proc/{server.pid}/status").read_text()
    except OSError:
        return None
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def visitor(browser: Browser, server: Server, prompt: str) -> Page:
    page = window(browser)
    words = prompt.replace(" ", "+")
    page.goto(f"{server.url}/decode?prompt={words}&model=story-gpt2&new={FIRST}&compare=false&step={FIRST - 1}")
    return page


def ready(page: Page) -> None:
    """The visitor's own run is there, not the recorded one that is shown until then."""
    page.wait_for_selector(f'[data-testid="kv-player"][data-steps="{FIRST}"]', timeout=WAIT_MS)
    page.wait_for_timeout(1_000)


def text(page: Page) -> str:
    return page.locator(".st-key-running_text").first.inner_text()


def together(pages: list[Page], tokens: int) -> list[float]:
    """All pages press at the same time: the script of each runs in its own tab."""
    for page in pages:
        page.evaluate(f"() => {{ window.pressed = ({PRESSES})([{tokens}, {PRESS_SECONDS}]); }}")
    found: list[float] = []
    for i, page in enumerate(pages):
        with case(f"page {i + 1}"):
            found += page.evaluate("() => window.pressed")
    return found


def shows(page: Page, said: str) -> str:
    """What the page shows under the player: `said`, or what stood there when it was waited for long enough."""
    until = time.monotonic() + SETTLED_SECONDS  # Python hears of the last step once the page rests
    while said not in (shown := " ".join(text(page).split())) and time.monotonic() < until:
        page.wait_for_timeout(200)
    return shown


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--pages", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=20, help="each")
    parser.add_argument("--no-memory", action="store_true", help="only the times: six minutes less")
    chosen = parser.parse_args()
    model, wrong = load("story-gpt2", device="cpu"), 0
    rest = 0 if chosen.no_memory else CLOSED_SECONDS
    report.pace()
    with sync_playwright() as playwright, Server(root=chosen.checkout) as server:
        browser = chromium(playwright)
        page = visitor(browser, server, "The end")
        ready(page)
        together([page], chosen.tokens)
        page.context.close()
        time.sleep(rest)
        idle = resident(server)

        prompts = PROMPTS[: chosen.pages]
        pages = [visitor(browser, server, prompt) for prompt in prompts]
        for page in pages:
            ready(page)
        ms = sorted(together(pages, chosen.tokens))
        busy = resident(server)
        for prompt, page in zip(prompts, pages, strict=True):
            run = Session(model, prompt, compare=False, capture=False).advance(FIRST + chosen.tokens)
            said = b"".join(run.pieces[i] for i in run.ids.tolist()).decode("utf-8", "replace")
            shown = shows(page, said := " ".join(said.split()))
            alone = page.locator('[data-testid="stException"], [data-testid="stAlertContentError"]').count() == 0
            if said not in shown or not alone:
                wrong += 1
                report.show(f"WRONG: {prompt}", f"expected {said!r}, shown {shown!r}, an error: {not alone}")
        for page in pages:
            page.context.close()
        time.sleep(rest)
        after = resident(server)
        browser.close()
        log = server.log()
    within = ms[int(0.95 * (len(ms) - 1))] <= P95_MS if len(ms) == chosen.tokens * len(prompts) else None
    report.times(f"{len(prompts)} pages, {chosen.tokens} presses of N each", ms)
    report.show(f"p95 target <= {P95_MS:,} ms", {True: "met", False: "MISSED", None: "not all presses came"}[within])
    if idle and busy and after and rest:
        report.show("memory: idle, everybody there, three minutes after", f"{idle:.0f}, {busy:.0f}, {after:.0f} MB")
        report.show("three minutes after / idle", f"{after / idle:.3f}")
    report.show("pages wrong, tracebacks in the log", f"{wrong}, {log.count('Traceback')}")
    report.pace()
    return 1 if wrong or "Traceback" in log else 0


if __name__ == "__main__":
    sys.exit(main())
