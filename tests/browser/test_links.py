"""The address bar: what a link opens, what Back and reload bring back, and that playing leaves no history."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import expect
from test_app import LONG_MS, button, own_run

from kvviz.bench.browser.harness import WAIT_MS, Visit
from kvviz.core import lessons

PROMPT = "Dorothy and the Tin Woodman"
LINK = "/decode?prompt=Dorothy+and+the+Tin+Woodman&new=12&step=3&layer=2&head=5"


def query(visit: Visit) -> dict[str, str]:
    return {k: v[-1] for k, v in parse_qs(urlsplit(visit.page.url).query).items()}


def prompt(visit: Visit) -> str:
    return visit.page.locator(".st-key-prompt textarea").input_value()


def to_page(visit: Visit, name: str) -> None:
    visit.page.get_by_test_id("stTopNavLink").filter(has_text=name).click()
    path = "" if name == "Home" else name.lower()  # the first page stands at the root
    expect(visit.page).to_have_url(re.compile(rf"^http://[^/]+/{path}(\?|$)"), timeout=WAIT_MS)
    visit.settled()


def address_says(visit: Visit, step: int) -> None:
    expect(visit.page).to_have_url(re.compile(rf"[?&]step={step}(&|$)"), timeout=WAIT_MS)


def test_a_link_opens_its_run_at_its_place(visit):
    visit.goto(LINK)
    own_run(visit)
    visit.wait_player(step=3, layer=2, head=5, cache_length=12)
    assert prompt(visit) == PROMPT
    visit.wait_player(steps=12)
    visit.press("End")
    visit.wait_player(step=11)


def test_back_brings_back_page_prompt_and_step(visit):
    """C14: a link at step 3, Next twice, another page, and back."""
    visit.goto(LINK)
    own_run(visit)
    visit.wait_player(step=3)
    visit.press("ArrowRight", "ArrowRight")
    visit.wait_player(step=5)
    address_says(visit, 5)
    entries = visit.page.evaluate("history.length")
    to_page(visit, "Prefill")
    visit.wait_player(step=0)
    address_says(visit, 5)
    to_page(visit, "Home")
    visit.wait_player(step=5)
    assert visit.page.evaluate("history.length") == entries + 2, "stepping made history"
    for page, step in (("prefill", 0), ("decode", 5)):
        visit.page.go_back()
        expect(visit.page).to_have_url(re.compile(f"/{page}"), timeout=WAIT_MS)
        visit.wait_player(step=step, layer=2, head=5)
        assert prompt(visit) == PROMPT
        assert query(visit)["prompt"] == PROMPT


def test_a_page_change_right_after_a_step_takes_the_step_along(visit):
    visit.goto("/decode?step=3")
    visit.wait_player(step=3)
    visit.press("ArrowRight", "]")
    visit.page.get_by_test_id("stTopNavLink").filter(has_text="Home").click()  # before the player has come to rest
    expect(visit.page.get_by_role("heading", level=1)).to_have_text(lessons.text("en", "home", "title"))
    visit.wait_player(step=4, head=3)


def test_back_to_another_prompt_shows_its_run(visit):
    """C14: the address before held another prompt; Back shows that one's run again, not the newer one's."""
    visit.goto("/decode?prompt=The+king&new=3&step=1")
    own_run(visit)
    visit.wait_player(step=1)
    to_page(visit, "Home")
    field, text = (
        visit.page.locator(".st-key-prompt textarea"),
        visit.running_text,
    )
    field.fill("The king said")
    field.press("Control+Enter")
    expect(visit.page).to_have_url(re.compile("said"), timeout=WAIT_MS)
    visit.settled()
    button(visit, "run_button").click()
    expect(text).to_contain_text("The king said", timeout=LONG_MS)
    own_run(visit)
    visit.page.go_back()
    expect(visit.page).to_have_url(re.compile("/decode"), timeout=WAIT_MS)
    expect(field).to_have_value("The king", timeout=WAIT_MS)
    expect(text).not_to_contain_text("The king said", timeout=LONG_MS)
    own_run(visit)


def test_reload_comes_back_to_prompt_settings_and_step(visit):
    """C13: what a dropped session leaves behind is in the address."""
    visit.goto(LINK)
    own_run(visit)
    visit.wait_player(step=3, steps=12)
    visit.press("End")
    visit.wait_player(step=11)
    visit.press("n", "n")
    visit.wait_player(step=13)
    address_says(visit, 13)
    visit.page.reload()
    own_run(visit)
    visit.wait_player(step=13, layer=2, head=5, cache_length=22)
    assert prompt(visit) == PROMPT
    assert visit.page.locator(".st-key-new input").input_value() == "12"


def test_the_copied_link_opens_the_same_place_elsewhere(visits):
    """The link was copied on an English machine in the light; it is opened on a Chinese one in the dark."""
    here = visits()
    here.goto(LINK + "&temperature=0.8&seed=5")
    own_run(here)
    here.wait_player(step=3)
    here.press("ArrowRight")
    here.wait_player(step=4)
    button(here, "link_popover").first.click()
    code = here.page.get_by_test_id("stPopoverBody").get_by_test_id("stCode")
    expect(code).to_contain_text("step=4", timeout=WAIT_MS)
    link = code.inner_text().strip()
    there = visits(locale="zh-CN", color_scheme="dark")
    there.page.goto(link)
    own_run(there)  # in English, for the link says so
    there.wait_player(step=4, layer=2, head=5)
    texts = [v.running_text.inner_text() for v in (here, there)]
    assert texts[0] == texts[1]
    assert set(query(there)) >= {"prompt", "temperature", "seed", "new", "step", "layer", "head"}


def test_a_hostile_link_is_answered_in_sentences(visit):
    """One box names what can't be used. A place in the run of a model that is refused is no place in another run."""
    visit.goto("/decode?model=/etc/passwd&step=999&layer=x&head=17&temperature=hot&lang=%3Cb%3E")
    visit.wait_player(step=1, layer=3, head=2)
    box = visit.page.get_by_test_id("stAlert")
    expect(box).to_have_count(1)
    notes = box.get_by_role("listitem").all_inner_texts()
    for named in ("/etc/passwd", "layer", "temperature", "<b>"):
        assert sum(named in n for n in notes) == 1
    assert not any("999" in n or "17" in n for n in notes)
    visit.goto("/decode?step=999&head=17")
    visit.wait_player(step=71, layer=3, head=7)
    notes = box.get_by_role("listitem").all_inner_texts()
    assert any("999" in n and "71" in n for n in notes) and any("17" in n and "7" in n for n in notes)
    assert len(notes) == 2


def test_text_of_a_link_is_text(visit):
    """B08–B10: nothing in a prompt is markup, in the page or in its run."""
    raw = "<b>bold</b><script>document.title='pwned'</script> $x$ *y* :smile: [z](w) <|endoftext|>"
    visit.page.goto(
        visit.url + "/decode?new=3&prompt=" + raw.replace("$", "%24").replace("<", "%3C").replace("&", "%26")
    )
    own_run(visit)
    assert prompt(visit) == raw
    main = visit.page.get_by_test_id("stMain")
    expect(visit.running_text).to_contain_text(raw, timeout=WAIT_MS)
    assert main.locator("script, .katex, a[href='w']").count() == 0
    assert visit.page.title() == "kvviz" or "pwned" not in visit.page.title()
