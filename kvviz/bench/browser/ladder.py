"""How soon the ladder's first points are on screen, and how the page answers meanwhile:

    python -m kvviz.bench.browser.ladder [--rounds 5]

Three lanes of 128 new tokens on story-gpt2: from the click on Start to the first points drawn, from
the click on another view to that view drawn while the lanes run, and from the click on Stop to the end.
"""

from __future__ import annotations

from playwright.sync_api import sync_playwright

from kvviz.bench import report
from kvviz.bench.browser.case import at_rest, case, live, options
from kvviz.bench.browser.harness import Server, Visit, chromium

LANES = "none-sdpa,concatenated-sdpa,preallocated-sdpa"
# Milliseconds from a click until something is so.
UNTIL = """([selector, done]) => new Promise((come, late) => {
  setTimeout(() => late(new Error("nothing came of a click in time")), 60000);
  const begun = performance.now();
  const so = new Function("return " + done);
  const look = () => so() ? requestAnimationFrame(() => setTimeout(() => come(performance.now() - begun)))
                          : setTimeout(look, 4);
  if (!document.querySelector(selector)) late(new Error("there is no " + selector));
  else document.querySelector(selector).click();
  look();
})"""
CHART = "document.querySelector('[data-key=ladder-hero]')"
# The lines of lanes that have a point: prefill itself is not in the picture.
POINTS = (
    f"({CHART}?.querySelector('.js-plotly-plot')?.data ?? []).some(t => t.name && (t.x?.length || t.x?.bdata?.length))"
)
VIEW = ".st-key-ladder_view button:nth-of-type(2)"
STOP = ".st-key-ladder_stop button:not([disabled])"


def main() -> None:
    chosen = options(__doc__).parse_args()
    report.pace()
    first, view, stop = [], [], []
    with Server(root=chosen.checkout) as server, sync_playwright() as playwright:
        browser = chromium(playwright)
        with case("the lanes"):
            visit = Visit(browser, server.url)
            visit.goto(f"/ladder?model=story-gpt2&prompt=Once%20upon%20a%20time&ladder_N=128&ladder_lanes={LANES}")
            page = visit.page
            page.wait_for_selector("[data-key=ladder-hero][data-drawn]")
            page.wait_for_selector(".st-key-ladder_start button:not([disabled])")
            live(page)
            at_rest(page, 2_000)
            for _ in range(chosen.rounds):
                # What is there already is of the last time: another key means that this one is drawn.
                page.evaluate(
                    "window.before = document.querySelector('[data-key=ladder-hero] .js-plotly-plot').layout.uirevision"
                )
                fresh = f"{CHART}.querySelector('.js-plotly-plot').layout.uirevision !== window.before && {POINTS}"
                first.append(page.evaluate(UNTIL, [".st-key-ladder_start button", fresh]))
                page.wait_for_selector(STOP)
                page.wait_for_selector(VIEW)
                clocked = f"{CHART}.querySelector('.js-plotly-plot').layout.uirevision.endsWith(' clock')"
                changed = page.evaluate(UNTIL, [VIEW, clocked])
                if page.locator(STOP).count():  # else the lanes were through before the view had changed
                    view.append(changed)
                    stop.append(page.evaluate(UNTIL, [STOP, f"!document.querySelector('{STOP}')"]))
                at_rest(page, 1_500)
                page.locator(".st-key-ladder_view button").first.click()
                at_rest(page, 1_500)
        browser.close()
    for name, found in (("first points after Start", first), ("another view while it runs", view), ("Stop", stop)):
        report.times(name, found)


if __name__ == "__main__":
    main()
