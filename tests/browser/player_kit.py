"""What the player's browser tests share: opening it on a case, and reading what it shows."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from kvviz.bench.browser.harness import ROOT, WAIT_MS, Visit

APP = ROOT / "tests" / "browser" / "apps" / "player_app.py"


def opener(visits: Callable[..., Visit], url: str) -> Callable[..., Visit]:
    """Opens the app on a case and waits for the player: opener(...)("six", step=6)."""

    def opened(case: str, *, context: dict | None = None, **query: object) -> Visit:
        visit = visits(url=url, **(context or {}))
        visit.frames = []
        visit.page.on("websocket", lambda w: w.on("framereceived", lambda f: visit.frames.append(f)))
        visit.goto("/?" + "&".join(f"{k}={v}" for k, v in {"case": case, **query}.items()))
        expect(visit.player).to_have_attribute("data-step", re.compile("."), timeout=WAIT_MS)
        return visit

    return opened


def told(visit: Visit, text: str) -> None:
    """Wait until Python has said this under the player."""
    expect(visit.page.get_by_text(text, exact=True)).to_be_visible(timeout=WAIT_MS)


def say(visit: Visit) -> str:
    return visit.page.locator(".kvp-say").inner_text()


def chips(visit: Visit) -> list[str]:
    return visit.page.locator(".kvp-chip:not([hidden])").all_text_contents()


def tip(visit: Visit, x: float, y: float) -> str:
    """What is said under the pointer at a point of the stage, in CSS pixels."""
    box = visit.page.locator(".kvp-stage").bounding_box()
    visit.page.mouse.move(box["x"] + x - 3, box["y"] + y)
    visit.page.mouse.move(box["x"] + x, box["y"] + y)
    element = visit.page.locator(".kvp-tip")
    return element.inner_text() if element.is_visible() else ""


def painting(visit: Visit) -> str:
    return visit.page.evaluate("document.querySelector('.kvp canvas').toDataURL()")
