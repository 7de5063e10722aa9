"""What the player looks like in a real Chromium: fit, alignment, parts of a pass, languages, themes."""

from __future__ import annotations

import itertools
import re

import pytest
from factories import PLAYER_CASES, make_run
from player_kit import chips, painting, say, tip
from playwright.sync_api import expect

from kvviz.bench.browser.harness import PROJECTOR, Visit
from kvviz.core.tokens import label


def boxes(visit: Visit, selector: str) -> list[dict]:
    return [e.bounding_box() for e in visit.page.locator(selector).all() if e.is_visible()]


@pytest.mark.parametrize("case", ["six", "twelve", "thirty", "shared", "long", "one", "none"])
def test_it_fits_980_by_640_with_nothing_cut(watch, case: str) -> None:
    visit = watch(case, step=12, layer=2, head=1)
    for opened in ("all", "layer", "head") if case != "none" else ("all",):
        visit.wait_player(opened=opened)
        frame = visit.player.bounding_box()
        assert frame["width"] == 980
        assert frame["height"] <= 640
        within(visit, frame)
        visit.press("Enter")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_prefill_fits_too(watch, lang: str) -> None:
    visit = watch("twelve", mode="prefill", lang=lang)
    for part in ("", *range(10)):
        visit.wait_player(substep=part)
        frame = visit.player.bounding_box()
        assert (frame["width"], frame["height"]) == (980, 640)
        within(visit, frame)
        visit.press("ArrowRight")


def within(visit: Visit, frame: dict) -> None:
    """No element leaves the player, no text is cut in the line over the picture or in the proofs."""
    found = visit.page.evaluate(
        """() => {
          const root = document.querySelector('.kvp');
          const frame = root.getBoundingClientRect();
          const out = [];
          for (const e of root.querySelectorAll('*')) {
            const style = getComputedStyle(e);
            if (style.visibility === 'hidden' || !e.getClientRects().length) continue;
            const r = e.getBoundingClientRect();
            const out_by = Math.max(frame.left - r.left, r.right - frame.right, r.bottom - frame.bottom);
            if (out_by > 1) out.push(e.className);
          }
          for (const name of ['.kvp-say', '.kvp-phase', '.kvp-card', '.kvp-ctl', '.kvp-pipe'])
            for (const e of root.querySelectorAll(name)) if (e.scrollWidth > e.clientWidth + 1) out.push('cut ' + name);
          return out;
        }"""
    )
    assert found == []
    parts = [boxes(visit, s) for s in (".kvp-head", ".kvp-pipe", ".kvp-main", ".kvp-proof", ".kvp-ctl")]
    order = [p[0] for p in parts]
    for above, below in itertools.pairwise(order):
        assert above["y"] + above["height"] <= below["y"] + 0.5
    for card in boxes(visit, ".kvp-card"):
        assert card["y"] + card["height"] <= order[3]["y"] + 0.5
    assert frame["y"] + frame["height"] >= order[4]["y"] + order[4]["height"]


def test_nothing_jumps_between_steps(watch) -> None:
    visit = watch("six")
    names = (".kvp-stage", ".kvp-card", ".kvp-proof", ".kvp-ctl button", ".kvp-slider", ".kvp-pipe button")

    def places() -> list:
        return [boxes(visit, name) for name in names]

    at_first = places()
    for step in range(1, 20):
        visit.press("ArrowRight")
        visit.wait_player(step=step)
        assert places() == at_first, step


def test_tokens_stand_over_their_columns(watch) -> None:
    visit = watch("six", step=6)
    stage = visit.page.locator(".kvp-stage").bounding_box()
    for position in (0, 5, 14):
        box = visit.page.locator(f".kvp-chip[data-position='{position}']").bounding_box()
        middle = box["x"] + box["width"] / 2 - stage["x"]
        for y in (82 + 13, 380, 420):  # cache, attention, rows computed
            assert re.search(rf"\b{position}\b", tip(visit, middle, y)), (position, y)


def test_new_and_generated_tokens_differ_without_colour(watch) -> None:
    visit = watch("six", step=6)
    radius = "e => parseFloat(getComputedStyle(e).borderTopLeftRadius)"
    chip = visit.page.locator
    assert (
        chip(".kvp-chip[data-position='3']").evaluate(radius)
        < 6
        < chip(".kvp-chip[data-position='10']").evaluate(radius)
    )
    assert visit.page.locator(".kvp-chip.new:not([hidden])").count() == 1
    shadow = "e => getComputedStyle(e).boxShadow"
    assert chip(".kvp-chip[data-position='14']").evaluate(shadow) != "none"
    assert chip(".kvp-chip[data-position='13']").evaluate(shadow) == "none"
    assert chip(".kvp-chip.next").evaluate("e => getComputedStyle(e).borderTopStyle") == "dashed"


def test_each_part_of_a_pass_says_its_numbers(watch) -> None:
    run = make_run(**PLAYER_CASES["shared"])
    visit = watch("shared", step=6, layer=3, head=5)
    seen = []
    for part in range(9):
        visit.press("Shift+ArrowRight")
        visit.wait_player(substep=part, step=6)
        expect(visit.page.locator(".kvp-say")).not_to_have_text("fetching…")
        seen.append(say(visit))
        assert visit.page.locator(".kvp-pipe button[aria-pressed=true]").count() == 1
    assert len(set(seen)) == 9
    weights = run.attention_row(3, 5, 14).astype(float)
    key = int(weights.argmax())
    assert f"at {key}" in seen[5] and f"{100 * weights[key]:.1f}%" in seen[5]
    q, k = run.queries(3, 5, 6)[14].astype(float), run.keys(3, 1, 6).astype(float)
    scores = k @ q / 32**0.5
    assert f"{scores[key]:.3g}".replace("-", "−") in seen[3]
    assert "14" in seen[2] and "15" in seen[2]
    assert f"{100 * run.steps[6].top_probs[0]:.1f}%" in seen[7]
    visit.press("Shift+ArrowRight")
    visit.wait_player(step=7, substep=0)
    visit.press("Escape")
    visit.wait_player(step=7, substep="")
    visit.page.get_by_role("button", name="softmax").click()
    visit.wait_player(substep=5)


def test_prefill_walks_from_scores_to_what_is_kept(watch) -> None:
    visit = watch("six", mode="prefill", layer=2, head=3)
    visit.wait_player(step=0, substep="", cache_length=9)
    visit.press("ArrowLeft")
    visit.wait_player(substep="")
    pictures = [painting(visit)]
    for part in range(10):
        visit.press("ArrowRight")
        visit.wait_player(substep=part, step=0)
        if part == 3:
            expect(visit.page.locator(".kvp-say")).not_to_have_text("fetching…")
        pictures.append(painting(visit))
    assert len(set(pictures)) == 11
    assert "110,592" in say(visit)  # 2·6·8·32·9·4
    visit.press("ArrowRight")
    visit.wait_player(substep=9)
    visit.press("Home", "n")
    visit.wait_player(substep="", steps=68)


def test_prefills_square_tells_scores_of_hidden_pairs_too(watch) -> None:
    run = make_run(**PLAYER_CASES["six"])
    visit = watch("six", mode="prefill", layer=2, head=3, substep=5)
    visit.page.wait_for_timeout(300)
    top = 82 + 20 * 6 + 12
    height = min(498 - top - 52 - 8, 300)
    row = min(height / 9, 64)
    first = top + height - 9 * row
    hidden = tip(visit, 92 + 6.5 * 64, first + 2.5 * row)  # query 2, key 6
    assert "Q at 2" in hidden and "K at 6" in hidden and "causal mask" in hidden
    seen = tip(visit, 92 + 2.5 * 64, first + 6.5 * row).split("\n")
    weight = float(run.attention_row(2, 3, 6)[2])
    assert float(seen[-1].split()[-1]) == pytest.approx(weight, rel=6e-3)


def test_times_wait_for_sixteen_passes(watch) -> None:
    visit = watch("six", step=15)
    card = visit.page.locator(".kvp-card").nth(1)
    assert "measuring, 15 of 16" in card.inner_text()
    visit.press("ArrowRight")
    visit.wait_player(step=16)
    run = make_run(**PLAYER_CASES["six"])
    with_cache = sorted(s.ms for s in run.steps[1:17])
    without = sorted(s.twin.ms for s in run.steps[1:17])
    text = card.inner_text()
    assert f"{(with_cache[7] + with_cache[8]) / 2:.1f} ms with cache" in text
    assert f"{(without[7] + without[8]) / 2:.1f} ms without" in text


def test_proofs_hold_fail_or_are_not_made(watch) -> None:
    visit = watch("six", step=6)
    items = visit.page.locator(".kvp-proof-item:not([hidden])")
    assert [i.get_attribute("data-state") for i in items.all()] == ["holds"] * 4
    text = visit.page.locator(".kvp-proof").inner_text()
    assert "7 of 7 tokens" in text and "184,320 bytes = formula" in text and "fp32, tolerance 1e-3" in text
    alone = watch("alone", step=6)
    states = [i.get_attribute("data-state") for i in alone.page.locator(".kvp-proof-item:not([hidden])").all()]
    assert states == ["none", "holds", "holds"]
    assert "not compared" in alone.page.locator(".kvp-proof").inner_text()
    bad = watch("fails", step=3)
    assert bad.page.locator(".kvp-proof-item.fails").count() == 0
    bad.press("ArrowRight")
    bad.wait_player(step=4)
    expect(bad.page.locator(".kvp-proof-item.fails")).to_have_count(1)
    said = bad.page.locator(".kvp-proof-item.fails").inner_text()
    run = make_run(**PLAYER_CASES["six"])
    step = run.steps[4]
    a, b = (label(run.pieces[int(i)]) for i in (step.chosen, step.top_ids[1]))
    assert "step 4" in said and a in said and b in said and "0.25" in said
    far = watch("logits", step=4)
    said = far.page.locator(".kvp-proof-item.fails").inner_text()
    assert f"both chose {a} at step 4" in said and "0.25 (tolerance 1e-3)" in said
    soft = watch("rounding", step=9)
    assert "expected rounding" in soft.page.locator(".kvp-proof-item.rounding").inner_text()
    below = boxes(soft, ".kvp-ctl")[0]["y"]
    lines = [b["y"] + b["height"] for b in boxes(soft, ".kvp-proof-item:not([hidden])")]
    assert len({round(b["y"]) for b in boxes(soft, ".kvp-proof-item:not([hidden])")}) == 2  # it tells of a fork
    assert max(lines) <= below - 3


def test_query_heads_share_kv_heads(watch) -> None:
    visit = watch("shared", step=6, layer=1, head=6)
    shapes = visit.page.locator(".kvp-shape").all_inner_texts()
    assert shapes == ["Q (1, 8, 1, 32)", "K (1, 2, 15, 32)", "V (1, 2, 15, 32)"]
    visit.press("Enter")
    visit.wait_player(opened="layer")
    assert "8 query heads share 2 KV heads" in say(visit)
    assert "KV head 1" in tip(visit, 92 + 20, 82 + 78 + 10)
    below = tip(visit, 92 + 20, 82 + 78 + 78 - 12)  # the strip of the last query head
    assert "Q head 7" in below


def test_chinese_is_whole(watch) -> None:
    visit = watch("six", step=6, lang="zh")
    assert visit.page.locator(".kvp-phase").inner_text() == "解码 6"
    text = visit.player.inner_text()
    left = set(re.findall(r"[A-Za-z]{4,}", text)) - {"softmax", "logits", "logit"}
    tokens = {w for c in chips(visit) for w in re.findall(r"[A-Za-z]+", c)}
    bars = {w for c in visit.page.locator(".kvp-tok").all_inner_texts() for w in re.findall(r"[A-Za-z]+", c)}
    assert left - tokens - bars == set()
    visit.press("?")
    assert re.findall(r"[A-Za-z]{4,}", visit.page.locator(".kvp-help dd").all_inner_texts()[0]) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_colour_can_be_read(watch, scheme: str) -> None:
    visit = watch("six", step=6, context={"color_scheme": scheme})
    expect(visit.player).to_have_attribute("data-theme", scheme)
    colours = visit.page.evaluate(
        """() => {
          const root = document.querySelector('.kvp');
          const probe = document.createElement('i');
          root.append(probe);
          const out = {};
          for (const name of ['bg', 'card', 'fg', 'mut', 'qt', 'kt', 'vt', 'wt', 'good', 'amber', 'bad']) {
            probe.style.color = `var(--${name})`;
            out[name] = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
          }
          probe.remove();
          return out;
        }"""
    )
    for text in ("fg", "mut", "qt", "kt", "vt", "wt", "good", "amber", "bad"):
        for ground in ("bg", "card"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


def test_it_follows_the_theme_at_once(watch) -> None:
    visit = watch("six", step=6)
    expect(visit.player).to_have_attribute("data-theme", "light")
    before = painting(visit)
    visit.page.emulate_media(color_scheme="dark")
    expect(visit.player).to_have_attribute("data-theme", "dark")
    visit.wait_player(step=6)
    assert painting(visit) != before


def contrast(a: list[float], b: list[float]) -> float:
    """WCAG 2.2 contrast ratio of two sRGB colours."""

    def luminance(rgb: list[float]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_cards_go_under_a_narrow_grid(watch) -> None:
    visit = watch("six", step=6, embed="true", context={"viewport": {"width": 900, "height": 600}})
    stage, card = boxes(visit, ".kvp-stage")[0], boxes(visit, ".kvp-card")[0]
    assert visit.player.bounding_box()["width"] < 900
    assert card["y"] >= stage["y"] + stage["height"]
    assert visit.page.evaluate(
        "document.querySelector('.kvp').scrollWidth <= document.querySelector('.kvp').clientWidth"
    )


def test_a_projector_gets_larger_type(watch) -> None:
    size = "parseFloat(getComputedStyle(document.querySelector('.kvp-say')).fontSize)"
    laptop = watch("six", step=6).page.evaluate(size)
    wide = watch("six", step=6, context={"viewport": PROJECTOR})
    wider = wide.page.evaluate(size)
    frame = wide.player.bounding_box()
    assert wider > 1.2 * laptop
    assert frame["height"] < 1080 - 64
    presenter = watch("six", step=6, presenter=1).page.evaluate(size)
    assert presenter > 1.1 * laptop


def test_motion_only_for_those_who_like_it(watch) -> None:
    still = watch("six", step=6, layer=3, context={"reduced_motion": "reduce"})
    still.press("Enter")
    at_once = painting(still)
    still.page.wait_for_timeout(400)
    assert painting(still) == at_once
    moving = watch("six", step=6, layer=3, context={"reduced_motion": "no-preference"})
    moving.page.evaluate(
        """() => {
          const canvas = document.querySelector('.kvp canvas');
          window.frames_seen = new Set();
          const look = () => { window.frames_seen.add(canvas.toDataURL()); requestAnimationFrame(look); };
          requestAnimationFrame(look);
        }"""
    )
    moving.press("Enter")
    moving.page.wait_for_timeout(600)
    assert moving.page.evaluate("window.frames_seen.size") > 2
    assert painting(moving) == at_once


def test_the_sheet_of_keys(watch) -> None:
    visit = watch("six", step=3)
    visit.press("?")
    sheet = visit.page.get_by_role("dialog", name="Keys")
    expect(sheet).to_be_visible()
    keys = sheet.locator("kbd").all_inner_texts()
    for key in (
        "→",
        "←",
        "PgDn",
        "PgUp",
        "Space",
        "↑",
        "↓",
        "[",
        "]",
        ",",
        ".",
        "Enter",
        "Esc",
        "Home",
        "End",
        "N",
        "?",
    ):
        assert key in keys
    visit.press("Escape")
    expect(sheet).to_be_hidden()
    visit.wait_player(step=3, opened="all")


def test_those_who_cannot_see_it_are_told(watch) -> None:
    visit = watch("six", step=6, layer=3, head=2)
    canvas = visit.page.get_by_role("img")
    name = canvas.get_attribute("aria-label")
    assert "6 layers by 15 positions, 1 new" in name
    assert visit.page.locator(".kvp-say").get_attribute("aria-live") == "polite"
    unnamed = visit.page.evaluate(
        """() => [...document.querySelectorAll('.kvp button, .kvp input, .kvp select')]
          .filter((e) => !(e.getAttribute('aria-label') || e.textContent).trim()).length"""
    )
    assert unnamed == 0


def test_before_prefill_it_says_what_to_do(watch) -> None:
    visit = watch("none")
    visit.wait_player(step=-1, steps=0, cache_length=0)
    assert "Prompt tokens: 9." in say(visit) and "Press N" in say(visit)
    assert len(chips(visit)) == 9
    visit.press("n")
    visit.wait_player(step=0, steps=1, cache_length=9)
    visit.press("n", "n")
    visit.wait_player(step=2, steps=3, cache_length=11)
