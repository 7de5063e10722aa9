"""Memory in a real browser: its charts draw, a control changes the numbers, pasted text stays text."""

from __future__ import annotations

import json

CONFIG = {
    "model_type": "llama",
    "_name_or_path": "<img src=x onerror=window.kvHurt=1>",
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "max_position_embeddings": 8192,
}


def test_the_page_draws_and_answers(visit):
    visit.goto("/memory?memory_model=llama-3-8b&memory_T=8192")
    page = visit.page
    page.wait_for_selector("[data-key=memory-parts][data-drawn]")
    page.get_by_text("1,073,741,824", exact=False).first.wait_for()
    page.locator(".st-key-try-memory-window button").click()
    page.get_by_text("512 MiB", exact=True).first.wait_for()


def test_a_pasted_name_is_text(visit):
    visit.goto("/memory?memory_model=config&memory_T=32768")
    field = visit.page.locator(".st-key-memory_config textarea")
    field.fill(json.dumps(CONFIG))
    field.press("Control+Enter")
    visit.page.get_by_text("10,737,418,240", exact=False).first.wait_for()
    assert visit.page.evaluate("window.kvHurt") is None
    assert visit.page.locator("img[src=x]").count() == 0
    assert "onerror" not in visit.page.url
