"""Roofline in a real browser: passes by formula first, then measured at a click, and the hero fits the screen."""

from __future__ import annotations


def test_the_page_draws_measures_and_fits(visit):
    visit.goto("/roofline?roofline_P=8")
    page = visit.page
    hero = page.locator("[data-key=roofline-hero]")
    page.wait_for_selector("[data-key=roofline-hero][data-drawn]")
    assert "FLOP a byte" in (hero.text_content() or "")
    page.locator(".st-key-roofline_start button").click()
    page.get_by_text("16 of 16 rounds", exact=False).wait_for()
    assert "ridge" in (hero.text_content() or "")
    box = hero.bounding_box()
    assert box and box["y"] >= 0 and box["y"] + box["height"] <= 900
    assert box["x"] + box["width"] <= 1440
    cards = page.locator(".st-key-facts-roofline-step").bounding_box()
    assert cards and cards["y"] + cards["height"] <= 900
    page.get_by_text("times the time for", exact=False).scroll_into_view_if_needed()
    page.wait_for_selector("[data-key=roofline-batches][data-drawn]")
