"""Ladder in a real browser, with a real model: points come while it runs, the page answers, Stop leaves a result."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from kvviz.bench.browser.harness import Visit

LONG_MS = 240_000  # PyTorch starts, and a machine runs other tests beside it; never a claim about speed
NEW = 400  # more than a machine can be done with before Stop is pressed


def hero(visit: Visit, alt: str) -> Locator:
    """The picture, once it is the one that is told so and has been drawn."""
    found = visit.page.locator("[data-testid=kv-chart][data-key=ladder-hero]")
    expect(found).to_have_attribute("aria-label", re.compile(alt), timeout=LONG_MS)
    expect(found).to_have_attribute("data-drawn", re.compile(r"\d"), timeout=LONG_MS)
    return found


def press(visit: Visit, key: str) -> None:
    button = visit.page.locator(f".st-key-{key} button")
    expect(button).to_be_enabled(timeout=LONG_MS)
    button.click()


def points(chart: Locator) -> list[int]:
    """How many points each line with a name has."""
    return chart.evaluate(
        "c => c.querySelector('.js-plotly-plot')._fullData.filter(t => t.showlegend !== false && t.name)"
        ".map(t => t._length)"
    )


def test_it_draws_while_it_runs_and_stop_leaves_a_result(visits):
    visit = visits()
    visit.goto("/")  # the first page a server shows decides that app.py does the navigation
    visit.goto(f"/ladder?ladder_N={NEW}")
    page = visit.page
    hero(visit, "By formula")
    press(visit, "ladder_start")
    first = hero(visit, "Milliseconds a pass against positions")
    expect(page.locator(".st-key-ladder_stop button")).to_be_enabled()
    assert len(points(first)) == 3  # a line a lane
    page.get_by_role("radio", name="the clock").click()
    hero(visit, "Milliseconds since the start")
    expect(page.locator(".st-key-ladder_stop button")).to_be_enabled()  # it still runs
    press(visit, "ladder_stop")
    expect(page.locator(".st-key-ladder_start button")).to_be_enabled(timeout=LONG_MS)
    stopped = hero(visit, "Milliseconds since the start")
    page.get_by_text("Stopped", exact=False).first.wait_for()
    page.get_by_text("No round is complete yet", exact=False).wait_for()
    shown = points(stopped)
    assert len(shown) == 3 and 0 < max(shown) < NEW


def test_a_result_is_kept_and_stands_beside_the_next(visits):
    visit = visits()
    visit.goto("/")
    visit.goto("/ladder?ladder_N=20&ladder_P=5&ladder_lanes=none-sdpa,concatenated-sdpa")
    page = visit.page
    press(visit, "ladder_start")
    hero(visit, "Milliseconds a pass against positions, a line for each of 2 lanes, from 5 to 24 positions")
    expect(page.locator("[class*=st-key-proof-holds-ladder]")).to_have_count(2, timeout=LONG_MS)
    name = page.locator(".st-key-ladder_name input")
    name.fill("<img src=x onerror=window.kvHurt=1> $x$")
    name.press("Enter")
    press(visit, "ladder_keep")
    expect(page.locator(".st-key-ladder_drop_0 button")).to_be_enabled()
    press(visit, "ladder_start")
    page.get_by_text("The quickest of 2 results:", exact=False).wait_for(timeout=LONG_MS)
    beside = page.locator(".st-key-chart-ladder-beside [data-testid=kv-chart]")  # there before it is painted
    beside.scroll_into_view_if_needed()
    expect(beside).to_have_attribute("data-drawn", re.compile(r"\d"), timeout=LONG_MS)
    assert "<img src=x" in beside.text_content()  # in the legend, as text
    assert page.evaluate("window.kvHurt") is None and page.locator("img[src=x]").count() == 0
    main = page.get_by_test_id("stMain")
    assert main.evaluate("m => m.scrollWidth - m.clientWidth") <= 0
