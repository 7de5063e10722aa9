"""GPT-2 from within the app: the button, the progress, the offer to switch; and a hub that is not there."""

from __future__ import annotations

import re
import socket
import threading

import pytest
from playwright.sync_api import expect
from test_app import LONG_MS, button, own_run

from kvviz.bench.browser.harness import WAIT_MS
from kvviz.core import lessons, storage
from tests.unit.conftest import write_tiny_gpt2
from tests.unit.hub_stand_in import Hub


@pytest.fixture
def hub(tmp_path):
    """Hands out a tiny GPT-2 under OpenAI's name; half of its weights wait for `gate`."""
    write_tiny_gpt2(tmp_path / "tiny", layers=2, heads=2)
    served = Hub("openai-community/gpt2", {p.name: p.read_bytes() for p in (tmp_path / "tiny").iterdir()})
    threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield served
    served.over.set()
    served.gate.set()
    served.shutdown()
    served.server_close()


def near(hub: str) -> dict[str, str]:
    return {"HF_ENDPOINT": hub, "NO_PROXY": "*", "HF_HUB_OFFLINE": "", "KVVIZ_OFFLINE": ""}


def said(section: str, **values: str) -> re.Pattern:
    """The sentence about GPT-2, whatever its other numbers are."""
    text = re.escape(lessons.sections("en", "shell")[section]).replace(r"\{title\}", "OpenAI GPT-2")
    for name, value in values.items():
        text = text.replace(rf"\{{{name}\}}", re.escape(value))
    return re.compile(re.sub(r"\\\{\w+\\\}", r"[\\d,.]+", text))


def test_gpt2_is_fetched_while_the_app_goes_on_and_then_offered(visits, servers, hub):
    half = len(hub.files["model.safetensors"]) // 2
    hub.break_at["model.safetensors"] = half
    offer = re.compile("OpenAI GPT-2, 124 M, 548 MB")
    hub.stall = True  # half of it has come, and no more does
    server = servers(environment=near(hub.address))
    visit, other = visits(url=server.url), visits(url=server.url)
    visit.goto("/decode")
    visit.wait_player(step=1)
    visit.page.get_by_role("button", name=offer).click()
    total = sum(len(content) for content in hub.files.values())
    come = f"{(total - half) / 1e6:,.1f} of {total / 1e6:,.1f} MB"
    expect(visit.page.get_by_text(f"OpenAI GPT-2: {come}").first).to_be_visible(timeout=WAIT_MS)

    visit.press("ArrowRight")  # the app goes on meanwhile
    visit.wait_player(step=2)
    other.goto("/")
    other.wait_player()
    expect(other.page.get_by_text(said("get_fetching")).first).to_be_visible(timeout=WAIT_MS)

    hub.over.set()  # the connection ends there: asked again, it goes on from the half
    expect(visit.page.get_by_text("The connection broke off after").first).to_be_visible(timeout=WAIT_MS)
    hub.asked.clear()
    visit.page.get_by_role("button", name=offer).click()
    switch = visit.page.get_by_role("button", name="Switch to OpenAI GPT-2")
    expect(switch).to_be_visible(timeout=WAIT_MS)
    assert {a.range for a in hub.asked if a.method == "GET" and a.file == "model.safetensors"} == {f"bytes={half}-"}
    expect(visit.page.get_by_placeholder("story-gpt2 (default)")).to_be_attached()  # nobody's model has changed
    switch.click()
    expect(visit.page.get_by_placeholder("gpt2 (default)", exact=True)).to_be_attached(timeout=WAIT_MS)
    expect(switch).to_have_count(0, timeout=WAIT_MS)

    visit.page.locator(".st-key-prompt textarea").press_sequentially("The capital of France is")
    expect(button(visit, "run_button")).to_be_enabled(timeout=LONG_MS)
    button(visit, "run_button").click()
    own_run(visit)
    expect(visit.page.get_by_text(re.compile("^Your run: gpt2"))).to_be_visible()
    player = visit.wait_player(step=1)
    assert player.get_attribute("data-cache-length") == "6"  # five tokens in GPT-2's own vocabulary, and one more
    third = visits(url=server.url)
    third.goto("/")
    third.wait_player()
    expect(third.page.get_by_placeholder("gpt2 (default)", exact=True)).to_be_attached()


@pytest.mark.parametrize("kind", ["refuses", "silent"])
def test_a_hub_that_does_not_answer_is_a_sentence_and_the_app_goes_on(visits, servers, kind):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        if kind == "silent":
            deaf.listen(5)
        server = servers(environment=near(f"http://127.0.0.1:{deaf.getsockname()[1]}"))
        visit = visits(url=server.url)
        visit.goto("/")
        visit.wait_player()
        visit.page.get_by_role("button", name=re.compile("OpenAI GPT-2, 124 M")).click()
        words = "has said nothing for 4 seconds" if kind == "silent" else "cannot be reached from here"
        expect(visit.page.get_by_text(re.compile(words))).to_be_visible(timeout=WAIT_MS)
        other = visits(url=server.url)  # who did not ask is offered it, and told nothing
        other.goto("/")
        other.wait_player()
        expect(other.page.get_by_role("button", name=re.compile("OpenAI GPT-2, 124 M"))).to_be_visible(timeout=WAIT_MS)
        expect(other.page.get_by_text(re.compile(words))).to_have_count(0)
        visit.press("End")
        visit.wait_player(step=len(storage.bundled().steps) - 1)


def test_offline_offers_nothing(visits, servers):
    visit = visits(url=servers(environment=near("http://127.0.0.1:9") | {"KVVIZ_OFFLINE": "1"}).url)
    visit.goto("/")
    visit.wait_player()
    expect(visit.page.locator(".st-key-run_button")).to_be_visible()
    expect(visit.page.get_by_role("button", name=re.compile("OpenAI"))).to_have_count(0)
    visit.goto("/?model=gpt2")
    visit.wait_player()
    expect(visit.page.get_by_text(re.compile("KVVIZ_OFFLINE is set on this machine"))).to_be_visible(timeout=WAIT_MS)
    expect(visit.page.get_by_role("button", name=re.compile("OpenAI"))).to_have_count(0)
