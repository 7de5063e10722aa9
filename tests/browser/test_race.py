"""A real race of story-gpt2 in a real browser: to the end, replayed, stopped, and looked at."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from playwright.sync_api import Locator, expect

from kvviz.bench.browser.harness import Visit

LONG_MS = 240_000  # a race on a machine that runs other tests beside it; never a claim about speed
QUERY = "?race_N=8&race_repeats=3"  # 21 passes a lane after the first token


def opened(visits, path: str = f"/race{QUERY}", **context: object) -> Visit:
    visit = visits(**context)
    visit.goto("/")  # the first page a server shows decides that app.py does the navigation
    visit.goto(path)
    expect(lanes(visit)).to_have_attribute("data-state", "idle", timeout=LONG_MS)
    # Streamlit looks for its own end points below the page's path first.
    visit.errors[:] = [e for e in visit.errors if "404" not in e]
    return visit


def lanes(visit: Visit) -> Locator:
    return visit.page.get_by_test_id("kv-race")


def press(visit: Visit, key: str) -> None:
    visit.page.locator(f".st-key-{key} button").click()


def shown(visit: Visit, lane: str) -> list[str]:
    """Tokens on screen in a lane."""
    return lanes(visit).locator(f".kvr-{lane} .kvr-chip:not([hidden])").all_inner_texts()


def facts(visit: Visit, lane: str) -> dict[str, str]:
    rows = lanes(visit).locator(f".kvr-{lane} .kvr-fact")
    return dict(zip(rows.locator("span").all_inner_texts(), rows.locator("b").all_inner_texts(), strict=True))


def uncut(visit: Visit) -> list[str]:
    """Parts of the lanes whose text does not fit them."""
    return lanes(visit).evaluate(
        """root => [...root.querySelectorAll('.kvr-card, .kvr-fact, .kvr-ratio, .kvr-say, .kvr-proof, .kvr-foot')]
        .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1)
        .map(e => `${e.className}: ${e.textContent}`)"""
    )


def test_a_race_runs_to_its_end(visits, tmp_path):
    visit = opened(visits)
    press(visit, "race_start")
    expect(lanes(visit)).to_have_attribute("data-state", "done", timeout=LONG_MS)
    expect(lanes(visit)).to_have_attribute("data-replay", "ended")
    expect(lanes(visit)).to_have_count(1)
    assert len(shown(visit, "uncached")) == 8
    assert shown(visit, "uncached") == shown(visit, "cached")
    # 9 + 8: without the cache 9 + 10 + … + 16 rows, with it 9 + 7; 12,288 bytes a position
    without, with_ = facts(visit, "uncached"), facts(visit, "cached")
    assert (without["rows computed"], with_["rows computed"]) == ("100", "16")
    assert (without["K and V held"], with_["K and V held"]) == ("0 bytes", "196,608 bytes")
    assert lanes(visit).locator(".kvr-count").all_inner_texts() == ["16", "1"]
    said = lanes(visit).locator(".kvr-say").inner_text()
    assert "8 tokens on" in said
    assert "100" in said and "16" in said
    strip = lanes(visit).locator(".kvr-proof").inner_text()
    assert "8 of 8 tokens given the same prefix" in strip
    assert "196,608 bytes = formula" in strip
    assert re.fullmatch(r"\d+(\.\d+)?×", lanes(visit).locator(".kvr-ratio b").inner_text())
    assert uncut(visit) == []
    expect(visit.page.get_by_test_id("kv-chart")).to_have_count(3, timeout=LONG_MS)
    visit.shot(tmp_path / "race.png")


def test_the_replay_shows_one_lane_first(visits):
    visit = opened(visits, reduced_motion="no-preference")
    press(visit, "race_start")
    expect(lanes(visit)).to_have_attribute("data-replay", "running", timeout=LONG_MS)
    expect(lanes(visit).locator(".kvr-phase")).to_have_text("Replay")
    expect(lanes(visit)).to_have_attribute("data-replay", "ended", timeout=LONG_MS)
    assert len(shown(visit, "uncached")) == len(shown(visit, "cached")) == 8
    # Played again: every lane only ever gains tokens, and starts from none.
    seen = lanes(visit).evaluate(
        """root => new Promise(done => {
          const count = lane => root.querySelectorAll(`.kvr-${lane} .kvr-chip:not([hidden])`).length;
          const seen = [];
          root.querySelector('.kvr-foot button').click();
          const look = () => {
            seen.push([count('uncached'), count('cached')]);
            if (root.dataset.replay === 'running') requestAnimationFrame(look); else done(seen);
          };
          requestAnimationFrame(look);
        })"""
    )
    assert seen[-1] == [8, 8]
    assert any(pair != [8, 8] for pair in seen)
    assert all(b >= a for one, two in pairwise(seen[1:]) for a, b in zip(one, two, strict=True))
    said = lanes(visit).locator(".kvr-foot span").inner_text()
    assert re.fullmatch(r"replay(: \d[\d,]* times (as long as measured|the measured speed)| at measured speed)", said)


def test_nothing_moves_by_itself_for_those_who_ask_for_less(visits):
    visit = opened(visits)  # the harness asks for reduced motion
    visit.page.evaluate(
        """() => { const root = document.querySelector('[data-testid=kv-race]'); window.kvSeen = [];
        new MutationObserver(() => window.kvSeen.push(root.dataset.replay))
          .observe(root, {attributes: true, attributeFilter: ['data-replay']}); }"""
    )
    press(visit, "race_start")
    expect(lanes(visit)).to_have_attribute("data-state", "done", timeout=LONG_MS)
    assert "running" not in visit.page.evaluate("window.kvSeen")


def test_stop_ends_at_a_token_and_the_page_keeps_the_race(visits):
    visit = opened(visits, "/race?race_P=40&race_N=400&race_repeats=3")
    press(visit, "race_start")
    expect(lanes(visit)).to_have_attribute("data-state", "running", timeout=LONG_MS)
    press(visit, "race_stop")
    expect(lanes(visit)).to_have_attribute("data-state", "stopped", timeout=LONG_MS)
    tokens = int(lanes(visit).get_attribute("data-tokens") or 0)
    assert 0 < tokens < 400
    assert facts(visit, "cached")["rows computed"] == f"{40 + tokens - 1:,}"
    assert uncut(visit) == []
    visit.page.get_by_role("link", name="Decode", exact=True).first.click()
    visit.wait_player()
    visit.page.get_by_role("link", name="Race", exact=True).first.click()
    expect(lanes(visit)).to_have_attribute("data-state", "stopped")
    expect(lanes(visit)).to_have_attribute("data-tokens", str(tokens))
    expect(visit.page.get_by_role("spinbutton", name="New tokens (N)")).to_have_value("400")
    expect(visit.page.get_by_role("spinbutton", name="Prompt tokens (P)")).to_have_value("40")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_the_hero_fits_the_first_screen(visits, locale, scheme):
    visit = opened(visits, locale=locale, color_scheme=scheme)
    box = lanes(visit).bounding_box()
    assert box["y"] + box["height"] <= 900
    assert box["width"] >= 970
    assert uncut(visit) == []
    colours = lanes(visit).evaluate(
        """root => ['.kvr-uncached .kvr-name b', '.kvr-note', '.kvr-card span', '.kvr-say']
        .map(s => root.querySelector(s)).filter(Boolean).map(e => getComputedStyle(e).color)"""
    )
    ground = visit.page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    for colour in colours:
        assert contrast(colour, ground) >= 4.5, (colour, ground)


def contrast(a: str, b: str) -> float:
    """WCAG 2.2 contrast of two computed colours."""

    def luminance(colour: str) -> float:
        channels = [int(float(c)) / 255 for c in re.findall(r"[\d.]+", colour)[:3]]
        r, g, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * r + 0.7152 * g + 0.0722 * blue

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)
