"""Positions in a real Chromium: experiments that run by themselves on both kinds of model, and one asked for."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from kvviz.bench.browser.harness import WAIT_MS, Visit

LONG_MS = 3 * WAIT_MS


def opened(visits, query: str = "?step=6", **context: object) -> Visit:
    visit = visits(**context)
    visit.goto("/")
    visit.goto(f"/positions{query}")
    visit.errors[:] = [e for e in visit.errors if "404" not in e]
    return visit


def chart(visit: Visit, name: str) -> Locator:
    return visit.page.locator(f".st-key-chart-positions-{name} [data-testid=kv-chart]")  # there before it is painted


@pytest.mark.parametrize("language", ["en", "zh"])
def test_both_kinds_are_measured_and_nothing_is_cut(visits, language):
    visit = opened(visits, f"?step=6&lang={language}")
    for name in ("table", "rotation"):
        expect(chart(visit, name)).to_be_attached(timeout=LONG_MS)
    strip = visit.page.locator(".st-key-proofs-positions")
    expect(strip.locator("[class*=st-key-proof-holds]")).to_have_count(4, timeout=LONG_MS)
    expect(chart(visit, "misplaced")).to_be_attached(timeout=LONG_MS)
    main = visit.page.get_by_test_id("stMain")
    assert main.evaluate("m => m.scrollWidth - m.clientWidth") <= 0


def test_the_plane_of_a_pair_is_a_square_and_stays_one(visits):
    """Turned K lies on the circle of K: the picture must not flatten it, also not when another pair is drawn."""
    visit = opened(visits)
    plane = chart(visit, "rotation")
    plane.scroll_into_view_if_needed(timeout=LONG_MS)
    expect(plane).to_have_attribute("data-drawn", "1", timeout=LONG_MS)
    size = """c => { const l = c.querySelector('.js-plotly-plot')._fullLayout;
        return [l.xaxis._length, l.yaxis._length, l.xaxis.range, l.yaxis.range] }"""

    def square() -> None:
        wide, tall, x, y = plane.evaluate(size)
        assert wide > 200
        assert wide / (x[1] - x[0]) == pytest.approx(tall / (y[1] - y[0]), rel=0.01)
        assert x[0] < 0 < x[1] and y[0] < 0 < y[1]

    square()
    visit.page.get_by_role("button", name="The slowest pair").click()
    expect(visit.page.locator(".st-key-positions_pair input[type=range]")).to_have_value("15", timeout=60_000)
    plane.scroll_into_view_if_needed()  # what nobody sees is not drawn
    expect(plane).to_have_attribute(
        "aria-label", re.compile("Dimensions 15 and 31 of layer 3, head 2"), timeout=WAIT_MS
    )
    expect(plane).not_to_have_attribute("data-drawn", "1", timeout=WAIT_MS)
    square()


def test_far_positions_are_measured_and_the_proof_that_fails_is_shown(visits):
    visit = opened(visits)
    start = visit.page.locator(".st-key-lengths_start button")
    expect(start).to_be_enabled(timeout=LONG_MS)
    start.click()
    failing = visit.page.locator(".st-key-proofs-positions [class*=st-key-proof-fails]")
    expect(failing).to_contain_text("Not equal with dynamic NTK", timeout=4 * LONG_MS)
    expect(visit.page.get_by_text("has learned 1,024").first).to_be_attached(timeout=WAIT_MS)
    expect(chart(visit, "kept")).to_be_attached(timeout=WAIT_MS)
