"""A class at once, in a headless Chromium: python tests/browser/bench_class.py [PAGES] [TOKENS]

Each page (12) is a visitor of its own with a prompt of its own; all press N together, each as soon as its last token
is there, 20 times. Some passes are made ahead of their press, so 20 presses see how they are used up and 60 how fast
more come. Prints milliseconds a token over all pages, from the keydown to a task posted from the first frame
after the change, and the server's memory: with the model loaded and nobody there, with everybody there, and three
minutes after the last page has closed. Ends with 1 if a page shows an error or another page's text.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from harness import LAPTOP, ROOT, Server, chromium

sys.path.insert(0, str(ROOT))
from kvviz.engine import Session, load

WAIT_MS = 300_000
FIRST = 2  # tokens of each run before anybody presses N
CLOSED_SECONDS = 180
SETTLED_SECONDS = 60
PROMPTS = (
    "The king", "Once upon a time", "Dorothy", "The wolf said", "In the forest", "A little girl", "The old woman",
    "Alice was", "The Tin Woodman", "The sea", "My dear", "It was a dark", "The queen", "Every morning", "The Lion",
    "The cat", "He went", "She saw", "They came", "The road",
)  # fmt: skip

# Presses N, waits for the step it brings, and again; milliseconds of each.
PRESSES = """
async (count) => {
  const player = document.querySelector('[data-testid="kv-player"]');
  const channel = new MessageChannel();
  const times = [];
  for (let i = 0; i < count; i++) {
    times.push(await new Promise((resolve) => {
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
    page = browser.new_context(viewport=LAPTOP, locale="en-US").new_page()
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
        page.evaluate(f"() => {{ window.pressed = ({PRESSES})({tokens}); }}")
    return [ms for page in pages for ms in page.evaluate("() => window.pressed")]


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    model, wrong = load("story-gpt2", device="cpu"), 0
    with sync_playwright() as playwright, Server() as server:
        browser = chromium(playwright)
        page = visitor(browser, server, "The end")
        ready(page)
        together([page], tokens)
        page.context.close()
        time.sleep(CLOSED_SECONDS)
        idle = resident(server)

        prompts = PROMPTS[:count]
        pages = [visitor(browser, server, prompt) for prompt in prompts]
        for page in pages:
            ready(page)
        ms = sorted(together(pages, tokens))
        busy = resident(server)
        for prompt, page in zip(prompts, pages, strict=True):
            run = Session(model, prompt, compare=False, capture=False).advance(FIRST + tokens)
            said = b"".join(run.pieces[i] for i in run.ids.tolist()).decode("utf-8", "replace")
            until = time.monotonic() + SETTLED_SECONDS  # Python hears of the last step once the page rests
            while (shown := text(page)) and " ".join(said.split()) not in " ".join(shown.split()):
                if time.monotonic() > until:
                    break
                page.wait_for_timeout(200)
            good = " ".join(said.split()) in " ".join(shown.split())
            alone = page.locator('[data-testid="stException"], [data-testid="stAlertContentError"]').count() == 0
            if not (good and alone):
                wrong += 1
                print(json.dumps({"prompt": prompt, "expected": said, "shown": shown, "error": not alone}))
        for page in pages:
            page.context.close()
        time.sleep(CLOSED_SECONDS)
        after = resident(server)
        browser.close()
        log = server.log()
    print(
        json.dumps(
            {
                "pages": count,
                "tokens_each": tokens,
                "p50_ms": round(statistics.median(ms), 1),
                "p95_ms": round(ms[int(0.95 * (len(ms) - 1))], 1),
                "most_ms": round(ms[-1], 1),
                "target_p95_ms": 2000,
                "memory_mb": {"idle": idle, "busy": busy, "three minutes after": after},
                "after_to_idle": round(after / idle, 3) if idle and after else None,
                "pages_wrong": wrong,
                "tracebacks_in_log": log.count("Traceback"),
            }
        )
    )
    return 1 if wrong or "Traceback" in log else 0


if __name__ == "__main__":
    sys.exit(main())
