"""Source walk in a real browser: the lit line moves by the keys, within a pass and into the next one."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from kvviz.bench.browser.harness import Visit

LONG_MS = 240_000  # a machine runs other tests beside it; never a claim about speed


def opened(visits, query: str, **context: object) -> Visit:
    visit = visits(**context)
    visit.goto("/")  # the first page a server shows decides that app.py does the navigation
    visit.goto(f"/source?{query}")
    expect(visit.page.locator(".kvw-line[data-lit]").first).to_be_visible(timeout=LONG_MS)
    return visit


def test_the_keys_walk_from_line_to_line_and_into_the_next_pass(visits):
    page = opened(visits, "step=3&layer=3&head=2&station=append_k").page
    lit, count, side = (page.locator(f".kvw-{name}") for name in ("line[data-lit]", "count", "side"))
    expect(lit).to_have_text(re.compile(r"self\.keys = torch\.cat"))
    expect(side).to_contain_text("(1, 8, 11, 32)")
    page.keyboard.press("ArrowRight")
    expect(lit).to_have_text(re.compile(r"self\.values = torch\.cat"))
    page.keyboard.press("PageUp")
    page.keyboard.press("Shift+ArrowRight")
    expect(count).to_contain_text("pass 4")
    expect(side).to_contain_text("(1, 8, 12, 32)")
    page.keyboard.press("ArrowDown")
    expect(count).to_contain_text("layer 4")
    page.keyboard.press("End")
    expect(lit).to_have_text(re.compile(r"input_ids = torch\.cat"))
    page.keyboard.press("ArrowRight")
    expect(count).to_contain_text("Line 1 / 20 · pass 5")
    expect(page).to_have_url(re.compile(r"(?=.*step=5)(?=.*layer=4)(?=.*station=cut)"), timeout=LONG_MS)
    expect(page.locator(".st-key-answer-source")).to_contain_text("13 stored", timeout=LONG_MS)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_station_fits_its_card_and_no_line_is_cut(visits, language):
    page = opened(visits, f"step=3&layer=3&head=2&station=cut&lang={language}").page
    for number in range(20):
        page.locator(".kvw-dot").nth(number).click()
        found = page.evaluate(
            """() => ({
            lit: document.querySelector('.kvw-line[data-lit]').getBoundingClientRect(),
            code: document.querySelector('.kvw-code').getBoundingClientRect(),
            wide: ['.kvw-code', '.kvw-side'].filter(s => {
              const e = document.querySelector(s); return e.scrollWidth > e.clientWidth + 1 }),
            high: document.querySelector('.kvw-side').scrollHeight - document.querySelector('.kvw-side').clientHeight,
            })"""
        )
        assert found["wide"] == [], number + 1
        assert found["high"] <= 1, number + 1
        assert found["code"]["top"] <= found["lit"]["top"] <= found["code"]["bottom"], number + 1
    strip = page.locator("[class*=st-key-proof-holds-source]").last
    expect(strip).to_be_visible(timeout=LONG_MS)
    box = strip.bounding_box()
    assert box and box["y"] + box["height"] <= 900
