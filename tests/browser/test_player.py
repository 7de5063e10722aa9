"""The player in a real Chromium, on runs made of random numbers: what keys, buttons and messages do."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from factories import PLAYER_CASES, make_run
from player_kit import chips, painting, say, tip, told
from playwright.sync_api import expect

from kvviz.bench.browser.harness import WAIT_MS

LIMIT = 1_000_000


def test_stepping_shows_each_pass_and_tells_python(watch) -> None:
    visit = watch("six")
    visit.wait_player(step=0, steps=68, cache_length=9, layer=0, head=0, opened="all")
    visit.press("ArrowRight", "PageDown", "ArrowRight")
    visit.wait_player(step=3, cache_length=12)
    told(visit, "at 3 0 0 all None")
    assert "12" in say(visit) and "11" in say(visit)
    visit.press("End")
    visit.wait_player(step=67, cache_length=76)
    visit.press("ArrowRight")
    visit.wait_player(step=67)
    visit.press("Home")
    visit.wait_player(step=0, cache_length=9)
    visit.press("ArrowLeft", "PageUp")
    visit.wait_player(step=0, cache_length=9)


def test_scrubbing_back_shows_what_was_true_then(watch) -> None:
    visit = watch("six", step=10)
    visit.wait_player(cache_length=19)
    later = painting(visit), chips(visit), say(visit)
    for _ in range(7):
        visit.press("ArrowLeft")
    visit.wait_player(step=3, cache_length=12)
    assert visit.page.locator(".kvp-big").inner_text() == "147,456 bytes"  # 2·6·8·32·12·4
    for _ in range(7):
        visit.press("ArrowRight")
    visit.wait_player(step=10, cache_length=19)
    assert (painting(visit), chips(visit), say(visit)) == later


def test_layers_and_heads_stop_at_their_ends(watch) -> None:
    visit = watch("shared")
    visit.press("ArrowUp", "[", ",")
    visit.wait_player(layer=0, head=0)
    visit.press(*["ArrowDown"] * 4, "]", ".", "]")
    visit.wait_player(layer=4, head=3)
    visit.press(*["ArrowDown"] * 9, *["]"] * 9)
    visit.wait_player(layer=5, head=7)
    told(visit, "at 0 5 7 all None")


def test_five_quick_presses_give_five_passes(watch) -> None:
    visit = watch("shared", step=3)
    visit.wait_player(steps=12)
    visit.press("n", "n", "N", "n", "n")
    visit.wait_player(steps=17, step=16, cache_length=25)
    told(visit, "passes 17")
    told(visit, "at 16 0 0 all None")
    visit.page.wait_for_timeout(700)
    visit.wait_player(steps=17, step=16)


def test_a_click_on_a_link_silences_the_player_for_a_while(watch) -> None:
    """Its message would run the page that is being left, in the way of the next one."""
    visit = watch("six", step=2)
    told(visit, "at 2 0 0 all None")
    visit.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<a id=out href=#here>out</a>')")
    visit.press("ArrowRight")
    visit.page.evaluate("document.getElementById('out').click()")
    visit.wait_player(step=3)
    visit.page.wait_for_timeout(1_500)  # five times what it waits for otherwise
    told(visit, "at 2 0 0 all None")
    told(visit, "at 3 0 0 all None")  # the page is still there: it is told in the end


def test_n_stops_where_the_room_ends(watch) -> None:
    visit = watch("shared", room=2)
    visit.press("n")
    visit.wait_player(steps=13)
    for _ in range(3):
        visit.press("n")
    expect(visit.page.locator(".kvp-status")).not_to_be_empty()
    visit.page.wait_for_timeout(500)
    assert int(visit.player.get_attribute("data-steps")) <= 14


def test_without_a_model_n_does_nothing(watch) -> None:
    visit = watch("shared", fixed=1)
    visit.press("n")
    expect(visit.page.locator(".kvp-next")).to_be_hidden()
    visit.page.wait_for_timeout(400)
    visit.wait_player(steps=12)


def test_keys_of_somebody_who_types_are_theirs(watch) -> None:
    visit = watch("six", step=2)
    box = visit.page.get_by_label("Typing")
    box.click()
    visit.press("n", "ArrowRight", " ", "?", "End", "Enter")
    expect(box).to_have_value("n ?")
    visit.wait_player(step=2, steps=68, opened="all")
    visit.page.get_by_role("slider", name="Amount").focus()
    visit.press("ArrowRight", "End")
    visit.wait_player(step=2)
    visit.page.evaluate("document.activeElement.blur()")
    visit.press("Control+ArrowRight", "Alt+ArrowRight", "Meta+ArrowRight")
    visit.wait_player(step=2)
    visit.press("ArrowRight")
    visit.wait_player(step=3)


def test_a_button_keeps_its_own_keys_and_the_page_the_rest(watch) -> None:
    visit = watch("six", step=2)
    forward = visit.page.get_by_role("button", name="One step on (→)")
    forward.focus()
    visit.press("Enter")
    visit.wait_player(step=3, opened="all")
    visit.press("ArrowRight")
    visit.wait_player(step=4)
    visit.page.locator(".kvp-slider").focus()
    visit.press("ArrowDown", "ArrowRight")
    visit.wait_player(step=5, layer=1)


def test_opening_a_layer_then_a_head_and_back(watch) -> None:
    visit = watch("six", step=6, layer=3, head=2)
    visit.press("Enter")
    visit.wait_player(opened="layer")
    assert "8" in say(visit)
    visit.press("Enter")
    visit.wait_player(opened="head")
    expect(visit.page.locator(".kvp-side")).to_be_hidden()
    assert chips(visit) == []
    visit.press("]", "ArrowRight")
    visit.wait_player(opened="head", head=3, step=7)
    told(visit, "at 7 3 3 head None")
    visit.press("Escape", "Escape", "Escape")
    visit.wait_player(opened="all", head=3, step=7)
    expect(visit.page.locator(".kvp-side")).to_be_visible()


def test_an_opened_head_shows_the_values_of_the_run(watch) -> None:
    run = make_run(**PLAYER_CASES["six"])
    visit = watch("six", step=6, layer=3, head=2, opened="head")
    expect(visit.page.locator(".kvp-phase")).to_have_text("Layer 3, head 2")
    visit.page.wait_for_timeout(300)
    block = (980 - 112 - 14 - 66 - 122 - 8) / 2
    x, y = 112 + 4.5 * block / 32, 62 + 5.5 * 20  # dimension 4 of position 5
    lines = tip(visit, x, y).split("\n")
    assert number_in(lines[0]) == pytest.approx(float(run.keys(3, 2, 6)[5, 4]), rel=6e-3)
    assert lines[0].startswith("K[5, 4]")
    score, weight = tip(visit, 112 + block + 40, y).split("\n")[1:]
    q, k = run.queries(3, 2, 6)[14].astype(float), run.keys(3, 2, 6)[5].astype(float)
    assert number_in(score) == pytest.approx(float(q @ k / math.sqrt(32)), rel=6e-3)
    assert number_in(weight) == pytest.approx(float(run.attention_row(3, 2, 14)[5]), rel=6e-3)
    x_v = 112 + block + 14 + 66 + 122 + 9.5 * block / 32
    assert number_in(tip(visit, x_v, y).split("\n")[0]) == pytest.approx(float(run.values(3, 2, 6)[5, 9]), rel=6e-3)
    weights = run.attention_row(3, 2, 14).astype(float)
    summed = weights @ run.values(3, 2, 6).astype(float)
    below = 62 + 15 * 20 + 10 + 9
    assert number_in(tip(visit, x_v, below)) == pytest.approx(float(summed[9]), rel=6e-3)


def number_in(line: str) -> float:
    return float(re.findall(r"[−-]?[\d.]+(?:e[−-]?\d+)?$", line.strip())[0].replace("−", "-"))


def test_hovering_tells_norms_and_weights(watch) -> None:
    run = make_run(**PLAYER_CASES["six"])
    visit = watch("six", step=6, layer=3, head=2)
    lines = tip(visit, 92 + 4.5 * 40, 82 + 1.5 * 26).split("\n")  # position 4, layer 1
    assert "layer 1" in lines[0] and "position 4" in lines[0]
    k = np.concatenate([s.k[1] for s in run.steps[:7]], axis=1)[:, 4].astype(float)
    assert float(re.search(r"‖K‖ ([\d.]+)", lines[1])[1]) == pytest.approx(np.linalg.norm(k), rel=6e-3)
    assert lines[2] == "reused: computed in Prefill"
    bars = tip(visit, 92 + 9.5 * 40, 380).split("\n")  # the bar of key 9
    assert "Q at 14" in bars[0] and "K at 9" in bars[0]
    assert number_in(bars[-1]) == pytest.approx(float(run.attention_row(3, 2, 14)[9]), rel=6e-3)


def test_what_the_pointer_tells_follows_the_step(watch) -> None:
    visit = watch("six", step=5)  # 14 positions
    assert tip(visit, 92 + 14.5 * 40, 90) == ""
    assert tip(visit, 92 + 12.5 * 40, 90).split("\n")[2] == "reused: computed in Decode 4"
    visit.press("ArrowLeft")
    visit.wait_player(step=4)
    expect(visit.page.locator(".kvp-tip")).to_contain_text("new in this step")


def test_text_of_tokens_stays_text(watch) -> None:
    visit = watch("markup")
    visit.page.evaluate("() => { window.alert = () => { window.alerted = true; }; }")
    literal = ["<b>", "bold", "</", "b>", "<script>", "alert(1)", "</script>", "·$x$", "·*y*", "·:smile:", "·[z](w)"]
    assert chips(visit) == [*literal, "<i>"]
    visit.press("ArrowRight", "ArrowRight")
    visit.wait_player(step=2)
    assert "{token}" in say(visit)
    visit.press("ArrowRight")
    visit.wait_player(step=3)
    assert "[q](w)" in say(visit)
    visit.press("End")
    visit.wait_player(step=6)
    assert chips(visit)[11:17] == ["<i>", "{token}", "[q](w)", "F0 9F", "99 82", "⏎⏎"]
    assert "🙂" in tip(visit, 92 + 14.5 * 28, 30)
    assert tip(visit, 92 + 0.5 * 28, 30).split("\n")[0] == "<b>"
    assert visit.page.locator(".kvp b, .kvp script, .kvp i i").filter(has_text="bold").count() == 0
    assert visit.page.evaluate("window.alerted") is None


def test_old_positions_fold_and_the_newest_stay_in_view(watch) -> None:
    visit = watch("long", step=20)
    visit.wait_player(cache_length=200)
    shown = chips(visit)
    first = int(re.fullmatch(r"0…(\d+)", shown[0])[1]) + 1
    assert len(shown) == 1 + (200 - first) + 1  # the fold, the visible ones, the next
    assert visit.page.locator(".kvp-chip.next").bounding_box()["x"] < 380 + 744
    assert str(first) in tip(visit, 100, 200)
    before = visit.page.locator(".kvp-chip[data-position='190']").bounding_box()
    visit.press("ArrowRight")
    visit.wait_player(cache_length=201)
    assert visit.page.locator(".kvp-chip[data-position='190']").bounding_box() == before


def test_messages_stay_small_and_nothing_is_asked_twice(watch) -> None:
    visit = watch("thousand", step=3, layer=1, head=3)
    visit.press("Enter", "Enter")
    visit.wait_player(opened="head", cache_length=1003)
    visit.page.wait_for_timeout(1500)
    assert max(len(f) for f in visit.frames) <= LIMIT
    for _ in range(8):
        quiet = len(visit.frames)
        visit.press("ArrowLeft", "ArrowRight", "[", "]")
        visit.page.wait_for_timeout(1000)
        arrays = re.findall(
            rb'"arrays":(\[.*?\]),"caller"', b"".join(f for f in visit.frames[quiet:] if isinstance(f, bytes))
        )
        visit.wait_player(step=3, head=3, opened="head")
        if set(arrays) <= {b"[]"}:  # there and back: all of it is here, so nothing is said, or nothing is sent
            return
    raise AssertionError("what is there is sent again and again")


def test_what_got_lost_is_asked_for(watch) -> None:
    visit = watch("shared", lost=1)
    visit.wait_player(steps=12)
    visit.press("End")
    visit.wait_player(step=11, cache_length=20)
    told(visit, "at 11 0 0 all None")


def test_a_page_change_keeps_the_data_and_frees_the_keys(watch) -> None:
    visit = watch("six", step=4, layer=2)
    visit.press("ArrowRight")
    visit.wait_player(step=5)
    told(visit, "at 5 2 0 all None")
    visit.page.get_by_role("link", name="Other").click()
    expect(visit.page.get_by_text("elsewhere")).to_be_visible()
    visit.page.wait_for_timeout(400)
    key = "new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true, cancelable: true})"
    free = visit.page.evaluate(f"document.body.dispatchEvent({key})")
    assert free
    visit.page.get_by_role("link", name="Player").click()
    visit.wait_player(steps=68, step=5)  # nobody asked for another place
    visit.press("ArrowRight")
    visit.wait_player(step=6, cache_length=15)


def test_the_caller_can_move_the_player(watch) -> None:
    visit = watch("six", step=4)
    visit.press("ArrowRight", "ArrowRight")
    told(visit, "at 6 0 0 all None")
    visit.page.get_by_role("button", name="Move").click()
    visit.wait_player(step=2, layer=1, head=1)
    visit.press("ArrowRight")
    visit.wait_player(step=3)
    told(visit, "at 3 1 1 all None")


def test_playing_goes_on_by_itself_and_the_right_arrow_stops_it(watch) -> None:
    visit = watch("six")
    visit.page.locator(".kvp-speed").select_option("3")
    visit.press(" ")
    expect(visit.page.get_by_role("button", name="Pause")).to_be_visible()
    expect(visit.player).to_have_attribute("data-step", re.compile(r"^([3-9]|\d\d)$"), timeout=WAIT_MS)
    visit.press("ArrowRight")
    expect(visit.page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    stopped = visit.shown()["step"]
    visit.page.wait_for_timeout(600)
    assert visit.shown()["step"] == stopped
    visit.press("ArrowRight")
    visit.wait_player(step=stopped + 1)


def test_playing_past_the_last_pass_asks_the_model(watch) -> None:
    visit = watch("shared", step=10)
    visit.page.locator(".kvp-speed").select_option("3")
    visit.page.get_by_role("button", name="Play", exact=True).click()
    expect(visit.player).to_have_attribute("data-step", re.compile(r"^(1[4-9]|\d{3})$"), timeout=WAIT_MS)
    visit.press(" ")


def test_the_slider_and_the_mouse_do_the_same(watch) -> None:
    visit = watch("six")
    visit.page.locator(".kvp-slider").fill("20")
    visit.wait_player(step=20, cache_length=29)
    visit.page.get_by_role("button", name="One step back (←)").click()
    visit.wait_player(step=19)
    canvas = visit.page.locator(".kvp canvas")
    canvas.click(position={"x": 300, "y": 82 + 2.5 * 26})
    visit.wait_player(layer=2, opened="all")
    canvas.click(position={"x": 300, "y": 82 + 2.5 * 26})
    visit.wait_player(layer=2, opened="layer")
    canvas.click(position={"x": 300, "y": 82 + 4.3 * 156 / 8})
    visit.wait_player(head=4, opened="layer")
    canvas.click(position={"x": 300, "y": 82 + 4.3 * 156 / 8})
    visit.wait_player(head=4, opened="head")
    visit.press("Escape", "Escape")
    visit.wait_player(opened="all")
    canvas.click(position={"x": 300, "y": 380})
    visit.wait_player(opened="head")


def test_a_window_hides_what_it_leaves_stored(watch) -> None:
    """12 tokens through a window of 8: of 144 scores 66 look ahead, and 1 + 2 + 3 + 4 lie outside. Layer 2 sees all."""
    visit = watch("window", mode="prefill", substep=5)
    seen, outside = (112, 214 + 7.5 * 18.7), (112, 214 + 8.5 * 18.7)  # key 0 under the queries at 7 and 8
    assert hue(visit, *seen) == "blue"
    assert hue(visit, *outside) == "grey"
    visit.press("Shift+ArrowLeft")
    visit.wait_player(substep=4)
    assert say(visit).startswith("76 of 144 scores are hidden: 66 look ahead, 10 lie outside the window of 8.")
    assert hue(visit, *outside) == "grey"
    visit.press("ArrowDown", "ArrowDown", "Shift+ArrowRight")
    visit.wait_player(layer=2, substep=5)
    assert hue(visit, *outside) == "blue"
    visit.press("Shift+ArrowLeft")
    assert say(visit).startswith("66 of 144 scores look ahead")


def test_a_later_query_sees_the_newest_of_what_is_stored(watch) -> None:
    """The query at 17 looks back to 10; positions 0 to 9 are in the cache all the same."""
    visit = watch("window", step=6, substep=4)
    assert say(visit) == "Layer 0 sees the newest 8 of 18 positions stored; 10 are stored and not looked at."
    visit.press("ArrowDown", "ArrowDown")
    visit.wait_player(layer=2)
    assert say(visit).startswith("Nothing to hide")
    visit.press("Escape", "ArrowUp", "ArrowUp")
    visit.wait_player(layer=0, substep="")
    assert "sees the newest 8 of 18 K" in say(visit)

    def key(t: int) -> float:  # the middle of its column
        return 92 + (t + 0.5) * 28

    assert tip(visit, key(9), 380).split("\n")[1:] == ["outside this layer's window of 8: still stored, not looked at"]
    assert "weight after softmax" in tip(visit, key(10), 380)
    assert (hue(visit, key(9), 380), hue(visit, key(10), 386)) == ("grey", "blue")
    assert "reused" in tip(visit, key(9), 90)
    assert "weight after softmax" in tip(visit, key(0), 250 + 4 * 7 + 2)  # rows of 4 pixels: the queries at 7 and 8
    assert "outside this layer's window of 8" in tip(visit, key(0), 250 + 4 * 8 + 2)
    assert (hue(visit, key(0), 280), hue(visit, key(0), 284)) == ("blue", "grey")
    assert "hidden by the causal mask" in tip(visit, key(11), 252)
    visit.press("Enter")
    visit.wait_player(opened="layer")
    assert "outside this layer's window of 8" in tip(visit, key(9), 82 + 16)  # head 0's strip, under its K and V
    visit.press("Enter")
    visit.wait_player(opened="head")
    assert "The hatched 10 stay stored." in say(visit)
    score = 112 + (980 - 112 - 14 - 66 - 122 - 8) / 2 + 40
    assert "outside this layer's window of 8" in tip(visit, score, 62 + 9.5 * 17)
    assert "weight after softmax" in tip(visit, score, 62 + 10.5 * 17)
    visit.press("?")
    expect(visit.page.locator(".kvp-marks")).to_contain_text("or outside the layer's window")


def hue(visit, x: float, y: float) -> str:
    """What colour stands around a point of the stage: "blue", "grey", or "none"."""
    return visit.page.evaluate(
        """([x, y]) => {
            const canvas = document.querySelector(".kvp canvas");
            const scale = canvas.width / canvas.getBoundingClientRect().width;
            const side = Math.round(4 * scale), height = Math.round(2 * scale);
            const { data } = canvas.getContext("2d").getImageData(x * scale - side, y * scale - 1, 2 * side, height);
            let ink = 0, colour = 0;
            for (let i = 0; i < data.length; i += 4) {
                ink += data[i + 3];
                colour += (data[i + 3] * (data[i + 2] - data[i])) / 255;
            }
            return !ink ? "none" : colour / ink > 0.1 ? "blue" : "grey";
        }""",
        [x, y],
    )
