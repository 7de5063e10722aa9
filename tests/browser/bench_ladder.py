"""How soon the ladder's first points are on screen, and how the page answers meanwhile:

    python tests/browser/bench_ladder.py [TIMES]

Three lanes of 128 new tokens on story-gpt2, TIMES times (5): from the click on Start to the first points drawn, from
the click on another view to that view drawn while the lanes run, and from the click on Stop to the end. Medians; the
machine should be idle.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from harness import Server, Visit, chromium

LANES = "none-sdpa,concatenated-sdpa,preallocated-sdpa"
# Milliseconds from a click until something is so.
UNTIL = """([selector, done]) => new Promise(come => {
  const begun = performance.now();
  const so = new Function("return " + done);
  const look = () => so() ? requestAnimationFrame(() => setTimeout(() => come(performance.now() - begun)))
                          : setTimeout(look, 4);
  document.querySelector(selector).click();
  look();
})"""
CHART = "document.querySelector('[data-key=ladder-hero]')"
# The lines of lanes that have a point: prefill itself is not in the picture.
POINTS = (
    f"({CHART}?.querySelector('.js-plotly-plot')?.data ?? []).some(t => t.name && (t.x?.length || t.x?.bdata?.length))"
)
RUNNING = "document.querySelector('.st-key-ladder_stop button:not([disabled])')"


def main(times: int) -> None:
    first, view, stop = [], [], []
    with Server() as server, sync_playwright() as playwright:
        browser = chromium(playwright)
        visit = Visit(browser, server.url)
        visit.goto(f"/ladder?model=story-gpt2&prompt=Once%20upon%20a%20time&ladder_N=128&ladder_lanes={LANES}")
        page = visit.page
        page.wait_for_selector("[data-key=ladder-hero][data-drawn]")
        page.wait_for_selector(".st-key-ladder_start button:not([disabled])")
        page.wait_for_timeout(15_000)  # the model comes up meanwhile, and the machine is idle again
        for _ in range(times):
            # What is there already is of the last time: another key means that this one is drawn.
            page.evaluate(
                "window.before = document.querySelector('[data-key=ladder-hero] .js-plotly-plot').layout.uirevision"
            )
            fresh = f"{CHART}.querySelector('.js-plotly-plot').layout.uirevision !== window.before && {POINTS}"
            first.append(page.evaluate(UNTIL, [".st-key-ladder_start button", fresh]))
            page.wait_for_timeout(400)
            clocked = f"{CHART}.querySelector('.js-plotly-plot').layout.uirevision.endsWith(' clock')"
            view.append(page.evaluate(UNTIL, [".st-key-ladder_view button:nth-of-type(2)", clocked]))
            assert page.evaluate(f"!!{RUNNING}"), "the lanes were through before the view changed"
            stop.append(page.evaluate(UNTIL, [".st-key-ladder_stop button", f"!{RUNNING}"]))
            page.wait_for_timeout(1500)
            page.locator(".st-key-ladder_view button").first.click()
            page.wait_for_timeout(1500)
        for name, found in (("first points after Start", first), ("another view while it runs", view), ("Stop", stop)):
            print(f"{name + ':':<28} {[round(t) for t in found]} ms, median {statistics.median(found):.0f}")
        browser.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
