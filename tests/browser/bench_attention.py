"""How quick the attention page is at 12 layers × 12 heads × 128 tokens:

    python tests/browser/bench_attention.py [TIMES]

A run of that size (random numbers) is opened from a file, as a learner would. Measured in the browser, TIMES times each
(5): from the click on the page's name to the painted overview, and from the click on a head to the
chart of that head; with the bytes that came over the socket. Medians; the machine should be idle.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from harness import ROOT, WAIT_MS, Server, Visit, chromium

sys.path.insert(0, str(ROOT))
from kvviz.core import storage
from tests.factories import PLAYER_CASES, make_run

PAINTED = """selector => new Promise(done => {
  const begun = performance.now();
  const look = () => document.querySelector(selector)?.dataset.drawn
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun))) : setTimeout(look, 4);
  [...document.querySelectorAll('a')].find(a => a.textContent.trim() === 'Attention').click();
  look();
})"""
PICKED = """([x, y]) => new Promise(done => {
  const chart = () => document.querySelector('[data-testid=kv-chart][data-key=attention-stage]');
  const canvas = document.querySelector('[data-testid=kv-heads] canvas');
  const [before, said] = [chart(), chart().getAttribute('aria-label')];
  const drawn = before.dataset.drawn;
  const begun = performance.now();
  const look = () => chart() && (chart() !== before || chart().dataset.drawn !== drawn) && chart().dataset.drawn &&
    chart().getAttribute('aria-label') !== said
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun))) : setTimeout(look, 4);
  canvas.dispatchEvent(new MouseEvent('click', { clientX: x, clientY: y, bubbles: true }));
  look();
})"""
HEADS = "[data-testid=kv-heads]"


def settled(visit: Visit) -> None:
    visit.page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", state="attached")
    visit.page.wait_for_timeout(2500)


def main(times: int) -> None:
    received = [0]
    with tempfile.TemporaryDirectory() as folder, Server() as server, sync_playwright() as playwright:
        file = Path(folder) / "twelve.npz"
        storage.save(make_run(**PLAYER_CASES["twelve"]), file)
        browser = chromium(playwright)
        visit = Visit(browser, server.url)
        visit.page.on("websocket", lambda w: w.on("framereceived", lambda f: received.append(len(f or b""))))
        visit.goto("/decode?step=64")
        visit.wait_player()
        visit.page.get_by_text("Open or save a run").first.click()
        visit.page.locator("[data-testid=stFileUploaderDropzoneInput], input[type=file]").first.set_input_files(file)
        visit.page.get_by_text("Recorded run from twelve.npz").first.wait_for(timeout=WAIT_MS)
        visit.page.keyboard.press("Escape")
        visit.page.wait_for_timeout(20_000)  # the model comes up meanwhile, and the machine is idle again
        visit.press("End")
        settled(visit)
        paints, picks, sizes = [], [], []
        for i in range(times):
            received.clear()
            paints.append(visit.page.evaluate(PAINTED, HEADS))
            settled(visit)
            sizes.append(sum(received))
            box = visit.page.locator(f"{HEADS} canvas").bounding_box()
            side = int(visit.page.locator(HEADS).get_attribute("data-side")) + 4
            layer, head = (2 * i + 1) % 12, (5 * i + 3) % 12
            at = [box["x"] + 34 + (head + 0.5) * side, box["y"] + 20 + (layer + 0.5) * side]
            picks.append(visit.page.evaluate(PICKED, at))
            settled(visit)
            visit.page.get_by_role("link", name="Decode").first.click()
            visit.wait_player()
            settled(visit)
        print(f"overview painted after the click on the page: {[round(t) for t in paints]} ms, "
              f"median {statistics.median(paints):.0f}")  # fmt: skip
        print(f"chart of a head after a click on it:          {[round(t) for t in picks]} ms, "
              f"median {statistics.median(picks):.0f}")  # fmt: skip
        print(f"received for the whole page:                  {max(sizes):,} bytes at most")
        visit.close()
        browser.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
