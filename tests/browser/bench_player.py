"""How fast the player answers a key, in a headless Chromium: python tests/browser/bench_player.py

Measured from the keydown event to a task posted from the first animation frame after the change of the
page, between computed steps, at 128 tokens of 12 layers × 12 heads (random numbers of that shape). It
prints a JSON line a case with median, 95th percentile and spread in milliseconds, and the browser's
largest message from Python.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from harness import ROOT, Server, chromium

APP = ROOT / "tests" / "browser" / "apps" / "player_app.py"

# A press notes the time; the first change of the player's attributes after it asks for a frame, the frame
# for a task.
WATCH = """
() => {
  window.times = [];
  let start = null;
  document.addEventListener('keydown', (e) => { if (e.key !== 'Shift') start = performance.now(); }, {capture: true});
  const channel = new MessageChannel();
  let began = 0;
  channel.port1.onmessage = () => window.times.push(performance.now() - began);
  new MutationObserver(() => {
    if (start === null) return;
    began = start;
    start = null;
    requestAnimationFrame(() => channel.port2.postMessage(0));
  }).observe(document.querySelector('[data-testid="kv-player"]'), {attributes: true, attributeFilter: ATTRIBUTES});
}
""".replace("ATTRIBUTES", json.dumps(["data-step", "data-layer", "data-head", "data-substep"]))


def press(page: Page, keys: list[str], pause_ms: int) -> list[float]:
    """Milliseconds of each press, one at a time."""
    page.evaluate("window.times = []")
    for i, key in enumerate(keys):
        page.keyboard.press(key)
        page.wait_for_function(f"window.times.length === {i + 1}")
        page.wait_for_timeout(pause_ms)
    return page.evaluate("window.times")


def summary(name: str, times: list[float]) -> dict[str, object]:
    ordered = sorted(times)
    return {
        "case": name,
        "n": len(times),
        "p50_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 1),
        "least_ms": round(ordered[0], 1),
        "most_ms": round(ordered[-1], 1),
    }


def main() -> None:
    with Server(app=APP, environment={"PYTHONPATH": str(ROOT)}) as server, sync_playwright() as playwright:
        browser = chromium(playwright)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        largest = [0]
        page.on(
            "websocket",
            lambda w: w.on("framereceived", lambda f: largest.append(len(f) if isinstance(f, bytes) else 0)),
        )
        page.goto(f"{server.url}/?case=twelve&step=60&layer=5&head=3")
        page.wait_for_selector('[data-testid="kv-player"][data-step="60"]')
        page.wait_for_timeout(2000)
        page.evaluate(WATCH)
        cases = {
            "step, 124 to 128 tokens": [
                "ArrowRight",
                "ArrowRight",
                "ArrowRight",
                "ArrowLeft",
                "ArrowLeft",
                "ArrowLeft",
            ],
            "layer": ["ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp"],
            "head": ["]", "]", "[", "["],
            "part of the pass": ["Shift+ArrowRight"] * 6 + ["Shift+ArrowLeft"] * 6,
        }
        for name, keys in cases.items():
            print(json.dumps(summary(name, press(page, keys * (48 // len(keys)), 30))), flush=True)
        page.keyboard.press("Escape")
        print(json.dumps(summary("N, a pass made of random numbers", press(page, ["n"] * 24, 250))), flush=True)
        print(json.dumps({"largest_message_bytes": max(largest)}))
        browser.close()


if __name__ == "__main__":
    main()
