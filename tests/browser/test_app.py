"""The app as a learner meets it: first screen, keys, a run of their own, Stop, and no word to the outside."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from kvviz.bench.browser.harness import ROOT, WAIT_MS, Visit
from kvviz.core import lessons

LONG_MS = 240_000  # for a model to come up beside other work; never a claim about speed
PAGES = ("home", "prefill", "decode")
PROMPT = "Dorothy and the Tin Woodman"  # 9 tokens of story-gpt2


def button(visit: Visit, key: str) -> Locator:
    return visit.page.locator(f".st-key-{key} button")


def own_run(visit: Visit) -> None:
    """Waits until the page shows the learner's own run, and the worker rests."""
    expect(visit.page.get_by_text(re.compile("^Your run: "))).to_be_visible(timeout=LONG_MS)
    expect(button(visit, "stop_button")).to_be_disabled(timeout=LONG_MS)
    visit.settled()


def run_prompt(visit: Visit, prompt: str = PROMPT) -> None:
    visit.page.locator(".st-key-prompt textarea").press_sequentially(prompt)
    expect(button(visit, "run_button")).to_be_enabled(timeout=LONG_MS)
    button(visit, "run_button").click()
    own_run(visit)


@pytest.mark.parametrize("language", lessons.LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_the_first_screen_holds_title_player_and_try_this(visits, name, language):
    visit = visits(locale={"en": "en-US", "zh": "zh-CN"}[language])
    visit.goto("/" if name == "home" else f"/{name}")
    player = visit.wait_player().bounding_box()
    title = visit.page.get_by_role("heading", level=1)
    expect(title).to_have_text(lessons.text(language, name, "title"))
    top = title.bounding_box()
    assert 0 <= top["y"] and top["height"] < 80, "the title takes one line"
    assert player["y"] + player["height"] <= 900
    assert player["width"] >= 976
    for each in visit.page.locator("[class*=st-key-try-] button").all():
        box = each.bounding_box()
        assert box["y"] + box["height"] <= 900
        assert each.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    assert visit.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_sidebar_cuts_no_word(visits):
    for locale in ("en-US", "zh-CN"):
        visit = visits(locale=locale)
        visit.goto("/")
        visit.wait_player()
        cut = visit.page.get_by_test_id("stSidebar").evaluate(
            """bar => [...bar.querySelectorAll('button p, label p, [data-testid=stCaptionContainer] p')]
            .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""
        )
        assert cut == []
        content = visit.page.get_by_test_id("stSidebarContent")
        assert content.evaluate("bar => bar.scrollHeight - bar.clientHeight") == 0, "all of it fits 900 pixels"


@pytest.mark.parametrize("name", ["Examples", "Copy link"])
def test_the_first_click_after_typing_counts(visit, name):
    """The prompt is taken over as the click begins, and the page is drawn again before it ends."""
    visit.goto("/decode")
    visit.wait_player()
    visit.page.locator(".st-key-prompt textarea").press_sequentially("Once")
    expect(button(visit, "run_button")).to_be_enabled(timeout=LONG_MS)
    visit.page.locator(".st-key-prompt textarea").fill("")
    visit.page.locator(".st-key-prompt textarea").press("Control+Enter")
    expect(button(visit, "run_button")).to_be_disabled()
    visit.settled()
    visit.page.locator(".st-key-prompt textarea").fill("Once upon")
    visit.page.get_by_role("button", name=name).hover()
    visit.page.mouse.down()
    expect(visit.page.get_by_text(lessons.text("en", "shell", "reason_empty"))).to_have_count(0)
    visit.page.mouse.up()
    expect(visit.page.get_by_test_id("stPopoverBody")).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_dark_pages_are_dark_and_readable(visits, name):
    visit = visits(color_scheme="dark")
    visit.goto("/" if name == "home" else f"/{name}")
    visit.wait_player()
    ground, ink = visit.page.get_by_role("heading", level=1).evaluate(
        "e => [getComputedStyle(document.querySelector('.stApp')).backgroundColor, getComputedStyle(e).color]"
    )
    assert ground == "rgb(15, 18, 22)"
    assert ink == "rgb(232, 234, 238)"


def test_keys_step_without_the_server(visit):
    visit.goto("/decode?step=2&layer=3&head=2")
    visit.wait_player(step=2)
    visit.press("ArrowRight", "ArrowRight", "ArrowDown", "]")
    visit.wait_player(step=4, layer=4, head=3, cache_length=13)
    visit.press("Home")
    visit.wait_player(step=0, cache_length=9)
    visit.press("End")
    visit.wait_player(step=71, cache_length=80)


def test_what_is_below_follows_the_step(visit):
    visit.goto("/decode?step=2")
    visit.wait_player(step=2)
    expect(visit.page.get_by_text("(1, 8, 11, 32)").last).to_be_attached(timeout=WAIT_MS)
    visit.press("ArrowRight")
    text = visit.running_text
    expect(text).to_contain_text("Dorothy and the Tin Woodman and the Tin", timeout=WAIT_MS)


def test_keys_typed_into_the_prompt_stay_there(visit):
    visit.goto("/decode?step=2")
    visit.wait_player(step=2)
    visit.page.locator(".st-key-prompt textarea").press_sequentially("n?[] ")
    visit.wait_player(step=2)
    assert visit.page.locator(".st-key-prompt textarea").input_value() == "n?[] "


def test_a_run_of_ones_own_and_five_quick_presses(visit):
    """C20 and D01: type, Run, and N five times as fast as the keyboard can is exactly five passes."""
    visit.goto("/decode")
    visit.wait_player()
    run_prompt(visit)
    visit.wait_player(step=1, cache_length=10, steps=24)  # Decode begins at its first pass
    visit.press("End")
    visit.wait_player(step=23, cache_length=32)  # P + N - 1 = 9 + 24 - 1
    visit.press("n", "n", "n", "n", "n")
    visit.wait_player(step=28, cache_length=37)
    visit.settled()
    assert visit.shown() == {"step": 28, "cache_length": 37, "layer": 3, "head": 2}


def test_run_during_a_run_and_stop(visit):
    """C20: Stop leaves whole passes, and the run goes on from there."""
    visit.goto("/decode?new=600")
    visit.wait_player()
    visit.page.locator(".st-key-prompt textarea").press_sequentially(PROMPT)
    expect(button(visit, "run_button")).to_be_enabled(timeout=LONG_MS)
    button(visit, "run_button").click()
    expect(button(visit, "run_button")).to_be_disabled(timeout=LONG_MS)
    expect(visit.page.get_by_text(re.compile("^Your run: "))).to_be_visible(timeout=LONG_MS)
    button(visit, "stop_button").click()
    own_run(visit)
    visit.press("End")
    visit.settled()
    shown = visit.shown()
    assert 0 <= shown["step"] < 599
    assert shown["cache_length"] == 9 + shown["step"]
    visit.press("n")
    visit.wait_player(step=shown["step"] + 1, cache_length=shown["cache_length"] + 1)


def test_an_example_fills_the_prompt_and_goes_to_its_place(visit):
    visit.goto("/")
    visit.wait_player()
    button(visit, "example-home-0").click()
    own_run(visit)
    visit.wait_player(step=6, layer=3, head=2, cache_length=15)
    assert visit.page.locator(".st-key-prompt textarea").input_value() == PROMPT
    assert "prompt=Dorothy" in visit.page.url


def test_try_this_works_twice(visit):
    visit.goto("/decode")
    visit.wait_player()
    for _ in range(2):
        button(visit, "try-decode-open_head").click()
        visit.wait_player(step=6, layer=3, head=2)
        visit.press("Escape", "Escape", "End")
        visit.wait_player(step=71)
        visit.settled()


def test_embedded_in_another_page(visits):
    """C16: in a frame of 900 × 600 there is no navigation but what the page holds."""
    visit = visits(viewport={"width": 900, "height": 600})
    visit.goto("/decode?embed=true&step=2")
    visit.wait_player(step=2)
    box = visit.player.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 900
    visit.settled()  # the links stand at the foot of the page: nothing may push them while they are clicked
    visit.page.get_by_test_id("stPageLink").first.locator("a").click()
    expect(visit.page).to_have_url(re.compile("/prefill"), timeout=WAIT_MS)
    visit.wait_player(step=0)
    assert "embed=true" in visit.page.url


def test_a_page_may_be_the_first_thing_a_server_is_asked_for(servers, visits):
    """Streamlit would run pages/decode.py by itself, without app.py."""
    visit = visits(url=servers().url)
    visit.goto("/decode?step=3")
    visit.wait_player(step=3)
    expect(visit.page.get_by_test_id("stSidebar")).to_be_visible()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text(lessons.text("en", "decode", "title"))


def test_the_folder_the_owner_names_is_the_default(servers, visits):
    folder = ROOT / "kvviz" / "models" / "builtin" / "story-llama"
    visit = visits(url=servers(arguments=("--model", str(folder))).url)
    visit.goto("/?prompt=Once&new=2")
    expect(visit.page.get_by_text(re.compile(r"^Your run: story-llama-2 \(float32\)"))).to_be_visible(timeout=LONG_MS)


def test_larger_type_for_a_projector(visits):
    visit = visits(viewport={"width": 1920, "height": 1080})
    visit.goto("/decode?step=3&presenter=true")
    visit.wait_player(step=3)
    size = visit.page.evaluate("getComputedStyle(document.documentElement).fontSize")
    assert size == "20px"
    box = visit.player.bounding_box()
    assert box["y"] + box["height"] <= 1080
