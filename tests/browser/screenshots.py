"""Pictures of every page, at two sizes, light and dark, in English and Chinese, to be looked at.

    python tests/browser/screenshots.py FOLDER [--pages decode race] [--sizes 1440x900] [--whole]
        [--query 'prompt=Once+upon+a+time&step=6&layer=3&head=2']

The theme follows the browser's colour scheme, the language its locale. `--whole` adds a picture of the whole page,
the part below the fold included. The app runs from this checkout, on a free port, with an empty model cache.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import parse_qs

from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import TimeoutError as Late

from kvviz.bench.browser.harness import ROOT, Server, Visit, chromium

PAGES = ("home", *sorted(p.stem for p in (ROOT / "pages").glob("*.py") if p.stem != "home"))
LANGUAGES = {"en": "en-US", "zh": "zh-CN"}
PLACE = "prompt=Dorothy+and+the+Tin+Woodman+were&new=24&step=6&layer=3&head=2"
SETTLE_MS = 1500
CHARTS_DRAWN = "[...document.querySelectorAll('[data-testid=kv-chart]')].every(e => e.dataset.drawn || !e.near)"


def take(browser: Browser, url: str, page: str, folder: Path, wanted: argparse.Namespace) -> None:
    for size in wanted.sizes:
        width, height = (int(n) for n in size.split("x"))
        for theme in ("light", "dark"):
            for language, locale in LANGUAGES.items():
                visit = Visit(
                    browser, url, viewport={"width": width, "height": height}, color_scheme=theme, locale=locale
                )
                name = f"{page}-{width}-{theme}-{language}"
                path = "" if page == "home" else page
                visit.goto(f"/{path}?{wanted.query}" if wanted.query and page != "home" else f"/{path}")
                ready(visit, page, wanted.query)
                visit.shot(folder / f"{name}.png")
                if wanted.whole:
                    main = "document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight"
                    visit.page.set_viewport_size({"width": width, "height": int(visit.page.evaluate(main)) + 40})
                    visit.page.wait_for_function(CHARTS_DRAWN)
                    visit.page.wait_for_timeout(SETTLE_MS)
                    visit.shot(folder / f"{name}-whole.png")
                wrong = [*visit.errors, *visit.exceptions(), *visit.outside()]
                print(name, *(["WRONG:", *wrong] if wrong else ["ok"]), flush=True)
                visit.close()


def ready(visit: Visit, page: str, query: str) -> None:
    """Until the page shows what it is about, and a moment more for what follows it."""
    heroes = {
        "race": ".kvr",
        "problem": "[data-key=problem-triangle]",
        "permission": "[data-key=permission-map]",
        "ladder": "[data-key=ladder-hero]",
        "memory": "[data-key=memory-parts]",
        "roofline": "[data-key=roofline-hero]",
        "source": ".kvw",
    }
    hero = heroes.get(page, "[data-testid=kv-player]")
    if page == "decode" and (step := parse_qs(query).get("step")):
        hero += f'[data-step="{step[0]}"]'  # the run that the link asks for is there, and not only the recorded one
    try:
        visit.page.wait_for_selector(hero, state="visible")
        visit.settled()
    except Late:
        print(f"{page}: {hero} did not come; the picture shows what did", flush=True)
    visit.page.wait_for_function(CHARTS_DRAWN)
    visit.page.wait_for_timeout(SETTLE_MS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", nargs="+", choices=PAGES, default=PAGES)
    parser.add_argument("--sizes", nargs="+", default=["1440x900", "1920x1080"])
    parser.add_argument("--query", default=PLACE)
    parser.add_argument("--whole", action="store_true")
    wanted = parser.parse_args()
    wanted.folder.mkdir(parents=True, exist_ok=True)
    with Server() as server, sync_playwright() as playwright:
        browser = chromium(playwright)
        for page in wanted.pages:
            take(browser, server.url, page, wanted.folder, wanted)
        browser.close()


if __name__ == "__main__":
    main()
