"""The problem and Why caching is allowed in a real browser, with a real model: driven, read, and looked at."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from kvviz.bench.browser.harness import Visit

LONG_MS = 240_000  # PyTorch starts, and a machine runs other tests beside it; never a claim about speed


def opened(visits, path: str, **context: object) -> Visit:
    visit = visits(**context)
    visit.goto("/")  # the first page a server shows decides that app.py does the navigation
    visit.goto(path)
    return visit


def chart(visit: Visit, key: str) -> Locator:
    """A chart, once it has been drawn."""
    found = visit.page.locator(f"[data-testid=kv-chart][data-key={key}]")
    expect(found).to_have_attribute("data-drawn", re.compile(r"\d"), timeout=LONG_MS)
    return found


def press(visit: Visit, key: str) -> None:
    button = visit.page.locator(f".st-key-{key} button")
    expect(button).to_be_enabled(timeout=LONG_MS)
    button.click()


def counters(visit: Visit, page: str) -> dict[str, tuple[str, ...]]:
    rows = visit.page.locator(f".st-key-facts-{page} tbody tr")
    cells = [row.locator("td").all_inner_texts() for row in rows.all()]
    return {name: tuple(rest) for name, *rest in cells}


def proofs(visit: Visit, page: str) -> Locator:
    return visit.page.locator(f"[class*=st-key-proof-holds-{page}]")


def overflowing(visit: Visit) -> list[str]:
    """Tables and lines of the main part whose text does not fit them."""
    return visit.page.evaluate(
        """() => [...document.querySelectorAll('[class*=st-key-facts-] table, [class*=st-key-proof-] p, '
            + '[class*=st-key-answer-] p')]
        .filter(e => e.offsetParent && e.scrollWidth > e.parentElement.clientWidth + 1).map(e => e.textContent)"""
    )


def test_the_problem_is_generated_and_counted(visits):
    visit = opened(visits, "/problem")
    chart(visit, "problem-triangle")
    press(visit, "try-problem-small")
    expect(proofs(visit, "problem")).to_have_count(5, timeout=LONG_MS)
    found = counters(visit, "problem")
    assert found["token rows"] == ("290", "24")
    assert found["attention scores"] == ("4,870", "310")
    assert found["of these, causal"] == ("2,580", "300")
    assert found["K, V bytes written"] == ("3,563,520", "294,912")
    assert all(re.fullmatch(r"[\d,.]+ [MG]FLOP", n) for n in found["operations"])
    expect(visit.page.locator(".st-key-answer-problem")).to_contain_text("290 token rows, 266 of them computed again")
    thumb = visit.page.locator(".st-key-work_shown input[type=range]")
    thumb.focus()
    for n in (19, 18, 17):  # each heard before the next: a rerun puts the slider where Python knows it
        thumb.press("ArrowLeft")
        expect(visit.page.locator(".st-key-answer-problem")).to_contain_text(f"For {n} tokens", timeout=LONG_MS)
    assert counters(visit, "problem")["token rows"] == ("221", "21")  # 5 + … + 21
    assert overflowing(visit) == []


def test_an_edit_is_made_opened_and_broken(visits):
    visit = opened(visits, "/permission?edit=2&edit_to=+a")
    chart(visit, "permission-map")
    expect(proofs(visit, "permission")).to_have_count(6, timeout=LONG_MS)
    line = visit.page.locator(".st-key-answer-permission")
    expect(line).to_contain_text("all 24 cells of K and V before it are exactly 0")  # 2 · 6 layers · 2 positions
    assert counters(visit, "permission")["exactly 0, before"] == ("24", "4")
    press(visit, "try-permission-open")
    expect(line).to_contain_text("Without the mask the edit reaches back", timeout=LONG_MS)
    expect(visit.page).to_have_url(re.compile(r"/permission"))
    visit.page.locator(".st-key-broken button", has_text="mask too short").click()
    said = visit.page.get_by_test_id("stMain")
    expect(said).to_contain_text("10 keys are stored, 1 is seen", timeout=LONG_MS)
    visit.page.locator("[data-key=permission-wrong]").scroll_into_view_if_needed(timeout=LONG_MS)
    chart(visit, "permission-wrong")
    written = visit.page.locator(".st-key-written-broken").inner_text()
    right = visit.page.locator(".st-key-written-right").inner_text()
    assert written.startswith("·") and right.startswith("·") and written != right
    assert overflowing(visit) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize(("page", "hero"), [("problem", "problem-triangle"), ("permission", "permission-map")])
def test_the_hero_fits_the_first_screen(visits, page, hero, locale, scheme):
    visit = opened(visits, f"/{page}", locale=locale, color_scheme=scheme)
    found = chart(visit, hero)
    expect(proofs(visit, page).first).to_be_visible(timeout=LONG_MS)
    visit.settled()
    box = found.bounding_box()
    strip = visit.page.locator(f".st-key-proofs-{page}").bounding_box()
    assert box["y"] + box["height"] <= 900
    assert strip["y"] + strip["height"] <= 900
    assert overflowing(visit) == []
