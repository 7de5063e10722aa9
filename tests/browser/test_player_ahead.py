"""Passes made ahead of their press, in a real Chromium: shown at once, counted once, told to Python."""

from __future__ import annotations

from player_kit import chips, told

LIMIT = 1_000_000


def test_passes_made_ahead_are_shown_without_asking(watch) -> None:
    visit = watch("shared", step=3, ahead=6)
    visit.wait_player(steps=12)
    before = len(visit.frames)
    shown = visit.page.evaluate(
        """async () => {
          const player = document.querySelector('[data-testid="kv-player"]');
          const steps = [];
          for (let i = 0; i < 3; i++) {
            document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'n', bubbles: true}));
            steps.push([player.dataset.step, player.dataset.steps, player.dataset.cacheLength]);
          }
          return steps;
        }"""
    )
    assert shown == [["12", "13", "21"], ["13", "14", "22"], ["14", "15", "23"]]  # within the press itself
    assert len(visit.frames) == before
    told(visit, "passes 15")  # and Python hears of it
    told(visit, "at 14 0 0 all None")
    asked = chips(visit)
    visit.wait_player(steps=15, step=14)
    again = watch("shared", step=3)
    again.press("n", "n", "n")
    again.wait_player(steps=15, step=14)
    assert chips(again) == asked  # the same passes as when each is asked for


def test_presses_beyond_what_was_made_ahead_count_once_each(watch) -> None:
    visit = watch("shared", step=3, ahead=4, room=40)
    visit.wait_player(steps=12)
    visit.press(*["n"] * 20)
    visit.wait_player(steps=32, step=31, cache_length=40)
    told(visit, "passes 32")
    told(visit, "at 31 0 0 all None")
    visit.page.wait_for_timeout(1_000)
    visit.wait_player(steps=32, step=31)


def test_another_layer_of_a_pass_made_ahead_comes_on_demand(watch) -> None:
    visit = watch("shared", step=3, ahead=4)
    visit.wait_player(steps=12)
    visit.press("n", "n", "ArrowDown", "]")
    visit.wait_player(steps=14, step=13, layer=1, head=1)
    told(visit, "at 13 1 1 all None")
