"""Attention and masks in a real Chromium: pick a head by click and by key, follow a link, in both themes."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from playwright.sync_api import Locator, expect

from kvviz.bench.browser.harness import WAIT_MS, Visit
from kvviz.core import storage


def overview(visit: Visit) -> Locator:
    return visit.page.get_by_test_id("kv-heads")


def opened(visits, query: str = "?step=6", **context: object) -> Visit:
    visit = visits(**context)
    visit.goto("/")
    visit.goto(f"/attention{query}")
    expect(overview(visit)).to_have_attribute("data-step", "6", timeout=WAIT_MS)
    visit.errors[:] = [e for e in visit.errors if "404" not in e]
    return visit


def place(visit: Visit, **where: int) -> None:
    for name, value in where.items():
        expect(overview(visit)).to_have_attribute(f"data-{name}", str(value), timeout=WAIT_MS)


def click_head(visit: Visit, layer: int, head: int) -> None:
    """Tiles stand in a grid: 34 and 20 pixels from the corner, 4 apart."""
    side = int(overview(visit).get_attribute("data-side")) + 4
    overview(visit).locator("canvas").click(
        position={"x": 34 + head * side + side / 2, "y": 20 + layer * side + side / 2}
    )


def stage(visit: Visit) -> Locator:
    return visit.page.locator("[data-testid=kv-chart][data-key=attention-stage]")


def test_a_click_picks_a_head_and_the_page_follows(visits):
    visit = opened(visits)
    place(visit, layer=3, head=2)
    expect(visit.page.get_by_text("puts 65.2 % on")).to_be_visible(timeout=WAIT_MS)
    click_head(visit, 2, 2)
    place(visit, layer=2, head=2)
    expect(visit.page.locator(".st-key-answer-attention")).to_contain_text("Layer 2, head 2 puts", timeout=WAIT_MS)
    row = storage.bundled().attention_row(2, 2, 14)
    expect(stage(visit)).to_have_attribute("aria-label", re.compile(f"{100 * row.max():.1f} %"), timeout=WAIT_MS)
    expect(visit.page).to_have_url(re.compile("layer=2.*head=2"), timeout=WAIT_MS)


def test_the_head_picked_stays_in_view_on_other_pages(visits):
    """Decode's player was there before and knew another place; back here it is still the one that was picked."""
    visit = visits()
    visit.goto("/decode?step=6&layer=3&head=2")
    visit.wait_player()
    go = lambda name: visit.page.get_by_role("link", name=name, exact=True).first.click()  # noqa: E731
    player = visit.page.get_by_test_id("kv-player")
    for layer, head in ((2, 2), (4, 6)):
        go("Attention")
        expect(overview(visit)).to_have_attribute("data-step", "6", timeout=WAIT_MS)
        click_head(visit, layer, head)
        expect(stage(visit)).to_have_attribute("aria-label", re.compile(f"layer {layer}, head {head}"), timeout=WAIT_MS)
        go("Decode")
        expect(player).to_have_attribute("data-layer", str(layer), timeout=WAIT_MS)
        expect(player).to_have_attribute("data-head", str(head))
        visit.page.wait_for_timeout(500)  # no word of the player's takes it back
        expect(player).to_have_attribute("data-layer", str(layer))


def test_keys_move_step_layer_and_head(visits):
    visit = opened(visits)
    visit.press("ArrowDown", ".", "ArrowRight")
    place(visit, layer=4, head=3, step=7)
    expect(visit.page.locator(".st-key-answer-attention")).to_contain_text("one row of 16 weights", timeout=WAIT_MS)
    visit.press("Home")
    place(visit, step=0)
    expect(visit.page.locator(".st-key-answer-attention")).to_contain_text("9 × 9 scores a head", timeout=WAIT_MS)
    visit.page.get_by_label("Prompt", exact=True).fill("a")
    visit.page.get_by_label("Prompt", exact=True).press("ArrowDown")  # somebody who types moves nothing
    place(visit, layer=4, head=3, step=0)


def test_a_page_drawn_anew_takes_no_key_back(visits):
    """The key "r" has Streamlit run the whole page; what was pressed meanwhile is newer than what that run knew."""
    visit = opened(visits)
    place(visit, layer=3, head=2)
    for turn in range(1, 4):
        visit.press("r", "ArrowUp", ".")
        visit.settled()
        expect(visit.page.locator(".st-key-answer-attention")).to_contain_text(
            f"Layer {3 - turn}, head {2 + turn}", timeout=WAIT_MS
        )
        place(visit, layer=3 - turn, head=2 + turn)


def test_the_picture_has_the_weights_in_it_and_follows_the_theme(visits):
    """A square's corner is a weight of 1: the darkest colour of the scale on light ground, the lightest on dark."""
    for scheme, corner in (("light", [0, 57, 92]), ("dark", [169, 219, 251])):
        visit = opened(visits, color_scheme=scheme)
        expect(overview(visit)).to_have_attribute("data-theme", scheme, timeout=WAIT_MS)
        pixel = (
            overview(visit)
            .locator("canvas")
            .evaluate("c => [...c.getContext('2d').getImageData(34 + 1, 20 + 1, 1, 1).data].slice(0, 3)")
        )
        assert pixel == corner


def test_a_link_opens_one_query(visits):
    visit = opened(visits, "?step=6&attention_rows=one&attention_query=4")
    expect(visit.page.get_by_text("the query at position 4")).to_be_visible(timeout=WAIT_MS)
    chart = visit.page.locator("[data-testid=kv-chart][data-key=attention-row]")
    expect(chart).to_be_visible(timeout=WAIT_MS)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_experiments_run_by_themselves_and_nothing_is_cut(visits, language):
    visit = opened(visits, f"?step=6&lang={language}")
    chunk = {"en": "4 × 9: 30 of 36 visible", "zh": "4 × 9：36 格中可见 30 格"}[language]
    masks = visit.page.locator(".st-key-chart-attention-masks_chunks [data-testid=kv-chart]")
    masks.scroll_into_view_if_needed(timeout=3 * WAIT_MS)  # what nobody sees is not drawn
    expect(masks).to_contain_text(chunk, timeout=WAIT_MS)
    strip = visit.page.locator(".st-key-proofs-attention")
    expect(strip.locator("[class*=st-key-proof-holds]")).to_have_count(7, timeout=WAIT_MS)
    main = visit.page.get_by_test_id("stMain")
    assert main.evaluate("m => m.scrollWidth - m.clientWidth") <= 0
    boxes = strip.locator("p").evaluate_all(
        "all => all.map(p => p.getBoundingClientRect()).map(b => [b.left, b.right, b.top, b.bottom])"
    )
    for a, b in combinations(boxes, 2):  # none is written over another
        beside, below = a[1] <= b[0] + 1 or b[1] <= a[0] + 1, a[3] <= b[2] + 1 or b[3] <= a[2] + 1
        assert beside or below
