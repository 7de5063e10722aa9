"""C13: the connection drops in the middle of a run. What was there can still be stepped; then it comes back whole."""

from __future__ import annotations

import re

from playwright.sync_api import WebSocketRoute, expect
from test_app import LONG_MS, button

from kvviz.bench.browser.harness import WAIT_MS
from kvviz.engine import Session, load

PROMPT = "Once upon a time"
TOKENS = 120


class Line:
    """The page's connection to its server, which can be cut and given back."""

    def __init__(self, page) -> None:
        self.cut_off = False
        self.open: list[WebSocketRoute] = []
        page.route_web_socket(re.compile("/_stcore/stream"), self._connect)

    def _connect(self, here: WebSocketRoute) -> None:
        if self.cut_off:
            here.close()
            return
        there = here.connect_to_server()
        self.open += [here, there]

    def cut(self) -> None:
        self.cut_off = True
        for end in self.open:
            end.close()
        self.open.clear()

    def give_back(self) -> None:
        self.cut_off = False


def test_a_run_under_way_survives_a_dropped_connection(visit):
    line = Line(visit.page)
    visit.goto(f"/decode?model=story-gpt2&prompt={PROMPT.replace(' ', '+')}&new={TOKENS}&step=3")
    visit.wait_player(step=3, cache_length=8)  # the first passes are there, the others are being made
    line.cut()
    visit.page.wait_for_timeout(1_000)
    visit.press("ArrowRight", "]")  # what the browser holds can be stepped without a server
    visit.wait_player(step=4, cache_length=9, head=3)
    visit.page.wait_for_timeout(20_000)
    visit.wait_player(step=4, cache_length=9, head=3)
    line.give_back()

    expect(button(visit, "stop_button")).to_be_disabled(timeout=LONG_MS)  # done, or stopped: at rest in any case
    expect(visit.page.get_by_text(re.compile("^Your run: story-gpt2"))).to_be_visible(timeout=LONG_MS)
    visit.wait_player(step=4, cache_length=9, head=3)
    visit.wait_player(steps=TOKENS)
    run = Session(load("story-gpt2", device="cpu"), PROMPT, compare=False, capture=False).advance(TOKENS)
    visit.press("End")
    visit.wait_player(step=TOKENS - 1, cache_length=len(run.prompt_ids) + TOKENS - 1)
    said = b"".join(run.pieces[i] for i in [*run.prompt_ids.tolist(), *(s.chosen for s in run.steps)]).decode()
    expect(visit.running_text).to_contain_text(" ".join(said.split())[-60:], timeout=WAIT_MS)
    visit.errors.clear()  # the browser says that its connection was lost
