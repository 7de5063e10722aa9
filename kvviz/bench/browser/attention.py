"""How quick the attention page is at 12 layers × 12 heads × 128 tokens:

    python -m kvviz.bench.browser.attention [--rounds 5]

A run of that size (random weights) is opened from a file, as a learner would. Measured in the browser: from the click
on the page's name to the painted overview, and from the click on a head to the chart of that head; with the bytes
that came over the socket.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from kvviz.bench import report
from kvviz.bench.browser.case import WAIT_MS, at_rest, case, live, options
from kvviz.bench.browser.harness import Server, Visit, chromium
from kvviz.bench.browser.recording import twelve

PAINTED = """selector => new Promise((done, late) => {
  setTimeout(() => late(new Error('nothing was drawn in time')), 60000);
  const begun = performance.now();
  const look = () => document.querySelector(selector)?.dataset.drawn
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun))) : setTimeout(look, 4);
  [...document.querySelectorAll('a')].find(a => a.textContent.trim() === 'Attention').click();
  look();
})"""
PICKED = """([x, y]) => new Promise((done, late) => {
  setTimeout(() => late(new Error('nothing was drawn in time')), 60000);
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


def opened(visit: Visit, file: Path) -> None:
    """The run of the file, at its last step, on the page Decode."""
    visit.goto("/decode?step=64")
    visit.wait_player()
    live(visit.page)
    visit.page.get_by_text("Open or save a run").first.click()
    visit.page.locator("[data-testid=stFileUploaderDropzoneInput], input[type=file]").first.set_input_files(file)
    visit.page.get_by_text("Recorded run from twelve.npz").first.wait_for(timeout=WAIT_MS)
    visit.page.keyboard.press("Escape")
    visit.press("End")
    at_rest(visit.page, 2_500)


def main() -> None:
    chosen = options(__doc__).parse_args()
    report.pace()
    paints, picks, sizes = [], [], [0]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = twelve(Path(folder))
        browser = chromium(playwright)
        with Server(root=chosen.checkout) as server, case("the attention page"):
            visit, received = Visit(browser, server.url), []
            visit.page.on("websocket", lambda w: w.on("framereceived", lambda f: received.append(len(f or b""))))
            opened(visit, file)
            for i in range(chosen.rounds):
                received.clear()
                paints.append(visit.page.evaluate(PAINTED, HEADS))
                at_rest(visit.page, 2_500)
                sizes.append(sum(received))
                box = visit.page.locator(f"{HEADS} canvas").bounding_box()
                side = int(visit.page.locator(HEADS).get_attribute("data-side")) + 4
                layer, head = (2 * i + 1) % 12, (5 * i + 3) % 12
                at = [box["x"] + 34 + (head + 0.5) * side, box["y"] + 20 + (layer + 0.5) * side]
                picks.append(visit.page.evaluate(PICKED, at))
                at_rest(visit.page, 2_500)
                visit.page.get_by_role("link", name="Decode").first.click()
                visit.wait_player()
                at_rest(visit.page, 2_500)
        browser.close()
    report.times("overview painted after the click on the page", paints)
    report.times("chart of a head after a click on it", picks)
    report.show("received for the whole page, at most", f"{max(sizes):,} bytes")


if __name__ == "__main__":
    main()
