"""How fast the player answers a key, in a headless Chromium: python -m kvviz.bench.browser.player

Measured from the keydown event to a task posted from the first animation frame after the change of the
page, between computed steps, at 128 tokens of 12 layers × 12 heads.
"""

from __future__ import annotations

import tempfile
from itertools import cycle, islice
from pathlib import Path

from playwright.sync_api import sync_playwright

from kvviz.bench import report
from kvviz.bench.browser.case import WATCH_KEYS, at_rest, case, options, press, watch_messages, window
from kvviz.bench.browser.harness import ROOT, Server, chromium
from kvviz.bench.browser.recording import twelve

APP = Path(__file__).with_name("player_app.py")
PASSES, MORE = 65, 24
PRESSES = 48
CASES = {
    "step, 124 to 128 tokens": ["ArrowRight"] * 3 + ["ArrowLeft"] * 3,
    "layer": ["ArrowDown"] * 2 + ["ArrowUp"] * 2,
    "head": ["]", "]", "[", "["],
    "part of the pass": ["Shift+ArrowRight"] * 6 + ["Shift+ArrowLeft"] * 6,
}


def main() -> None:
    options(__doc__).parse_args()
    report.pace()
    with tempfile.TemporaryDirectory(prefix="kvviz-bench-") as folder, sync_playwright() as playwright:
        file = twelve(Path(folder), new=PASSES + MORE)
        browser = chromium(playwright)
        here = {"PYTHONPATH": str(ROOT)}  # a script has its own folder on the path, not the one it is started in
        with Server(app=APP, arguments=(str(file), str(PASSES)), environment=here) as server, case("the player"):
            page = window(browser)
            sizes = watch_messages(page)
            page.goto(server.url)
            page.wait_for_selector('[data-testid="kv-player"][data-step="60"]')
            at_rest(page, 2_000)
            page.evaluate(WATCH_KEYS)
            for name, keys in CASES.items():
                with case(name):
                    found = [press(page, key, 1, 30)[0] for key in islice(cycle(keys), PRESSES)]
                    report.times(name, found)
            page.keyboard.press("Escape")
            with case("N, a pass recorded before"):
                report.times("N, a pass recorded before", press(page, "n", MORE, 250))
            report.show("largest message", f"{max(sizes):,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
