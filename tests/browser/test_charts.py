"""Charts in a real Chromium: zoom that survives a step, text that stays text, colours that follow the theme."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from kvviz.bench.browser.harness import ROOT, WAIT_MS, Server

APP = ROOT / "tests" / "browser" / "apps" / "charts.py"
LITERAL = [
    "<b>bold</b><script>alert(1)</script>",
    "$x$·and·*y*·:smile:·[z](w)",
    "&amp;",
    "&lt;",
    "#0072b2",
    "%{x}",
    "<br>",
]


@pytest.fixture(scope="module")
def charts_url():
    with Server(app=APP) as server:
        yield server.url


@pytest.fixture
def open_charts(visits, charts_url):
    def opened(query: str, **context):
        visit = visits(url=charts_url, **context)
        visit.goto(f"/?{query}")
        drawn(visit.page)
        return visit

    return opened


def drawn(page, times: int = 1) -> None:
    """Wait until the first chart was painted so often."""
    page.wait_for_function(
        "n => Number(document.querySelector('[data-testid=kv-chart]')?.dataset.drawn) >= n", arg=times
    )


def ranges(page) -> list:
    return page.evaluate(
        """() => { const f = document.querySelector('.js-plotly-plot')._fullLayout;
        return [f.xaxis.range, f.yaxis.range] }"""
    )


def test_zoom_survives_a_step(open_charts):
    """C02: zoom a 24 × 24 square at step 3, press Next, and the view is kept."""
    visit = open_charts("figure=square&tokens=plain&new=24&step=19")
    page = visit.page
    whole = ranges(page)
    assert whole == [[-0.5, 23.5], [23.5, -0.5]]
    area = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    page.mouse.move(area["x"] + 20, area["y"] + 20)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] / 2, steps=5)
    page.mouse.up()
    page.wait_for_function("x => document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range[1] < x", arg=20)
    zoomed = ranges(page)
    assert zoomed != whole
    page.get_by_role("button", name="Next").click()
    drawn(page, 2)
    assert page.evaluate("document.querySelector('.js-plotly-plot').data[1].name") == "attention"
    expect(page.get_by_text("step 20")).to_be_visible()
    assert ranges(page) == zoomed


def test_a_step_redraws_the_same_element(open_charts):
    visit = open_charts("figure=row&step=3")
    visit.page.evaluate("document.querySelector('.js-plotly-plot').mark = 'kept'")
    visit.page.get_by_role("button", name="Next").click()
    drawn(visit.page, 2)
    assert visit.page.evaluate("document.querySelector('.js-plotly-plot').mark") == "kept"
    # Positions 0..4 were the prompt's; after step 4 there are 9.
    assert visit.page.locator(".xaxislayer-above .xtick").count() == 9


def test_markup_in_tokens_is_shown_literally(open_charts):
    """B09, B10: on the axis, in the hover and in the sentence above, and nothing in it runs."""
    visit = open_charts("figure=row,square&tokens=markup&new=1&step=0")
    page = visit.page
    page.on("dialog", lambda d: pytest.fail(f"a script ran: {d.message}"))
    ticks = page.locator(".js-plotly-plot").first.locator(".xtick text").all_text_contents()
    assert ticks == [
        "0 <b>bold</b><s…",
        "1 $x$·and·*y*·:…",
        "2 &amp;",
        "3 &lt;",
        "4 #0072b2",
        "5 %{x}",
        "6 <br>",
        "7 ·who",
        "8 ⏎⏎",
    ]
    # Nothing became an element: a literal label is one text node, without bold parts or line breaks.
    assert page.locator(".xtick text tspan, .xtick text a").count() == 0
    for position, shown in enumerate(LITERAL):
        hover(page, position)
        label = page.locator(".hoverlayer .hovertext").first
        expect(label).to_contain_text(shown)
        assert label.locator("tspan[style*=bold], a").count() == 0


def hover(page, position: int) -> None:
    """Put the mouse where the first chart draws this position's bar."""
    x, y = page.evaluate(
        """i => { const g = document.querySelector('.js-plotly-plot'), f = g._fullLayout, b = g.getBoundingClientRect();
        return [b.left + f.xaxis._offset + f.xaxis.d2p(i), b.top + f.yaxis._offset + f.yaxis.d2p(0.001) - 1] }""",
        position,
    )
    page.mouse.move(x + 15, y)
    page.mouse.move(x, y)


def test_the_sentence_shows_a_token_as_it_is(open_charts):
    visit = open_charts("figure=predictions&tokens=markup&new=1&step=0")
    text = visit.page.get_by_text("Prefill predicts 9 times and keeps one").inner_text()
    assert "⏎⏎" in text
    assert visit.page.locator("[data-testid=stMarkdown] .katex, [data-testid=stMarkdown] strong").count() == 0


def test_equal_tokens_keep_their_own_places(open_charts):
    """B01, B16: 'the the the the' gives 4 × 4 cells, 4 ticks an axis, and a table whose headers differ."""
    visit = open_charts("figure=square&tokens=repeated&new=1&step=0")
    page = visit.page
    assert page.locator(".xtick").count() == page.locator(".ytick").count() == 4
    assert page.evaluate("document.querySelector('.js-plotly-plot').calcdata[1][0].z.length") == 4
    page.get_by_text("The numbers").click()
    expect(page.get_by_test_id("stDataFrame")).to_be_visible()


def test_colours_follow_the_theme_without_asking_python(open_charts):
    """C19: the palette's own colours in both themes; a token that reads like a colour stays as it is."""
    visit = open_charts("figure=row&tokens=markup&new=1&step=0", color_scheme="dark")
    page = visit.page
    look = """() => { const g = document.querySelector('.js-plotly-plot');
        return [g._fullLayout.paper_bgcolor, g.data[0].marker.color] }"""
    assert page.evaluate(look) == ["#0f1216", "#56b4e9"]
    page.emulate_media(color_scheme="light")
    page.wait_for_function("document.querySelector('[data-testid=kv-chart]').dataset.theme === 'light'")
    assert page.evaluate(look) == ["#ffffff", "#0072b2"]
    assert "4 #0072b2" in page.locator(".xtick text").all_text_contents()


def test_a_chart_speaks_to_those_who_do_not_see_it(open_charts):
    visit = open_charts("figure=rows&new=20&step=19")
    chart = visit.page.get_by_role("img", name="So far 24 with the cache and 290 without")
    expect(chart).to_be_visible()
    expect(visit.page.get_by_text("So far it is 24 rows against 290")).to_be_visible()


@pytest.mark.parametrize(("title", "start"), [("Save as PNG", b"\x89PNG"), ("Save as SVG", b"<svg")])
def test_a_picture_can_be_saved(open_charts, tmp_path, title, start):
    visit = open_charts("figure=rows&step=3")
    visit.page.locator(".js-plotly-plot").hover()
    with visit.page.expect_download() as caught:
        visit.page.locator(f".modebar-btn[data-title='{title}']").click()
    saved = tmp_path / "picture"
    caught.value.save_as(saved)
    assert caught.value.suggested_filename.startswith("kvviz-0-rows.")
    assert saved.read_bytes().startswith(start)


def test_one_figure_twice(open_charts):
    """C04: the same layer and head side by side."""
    visit = open_charts("figure=square,square&step=3")
    expect(visit.page.get_by_test_id("kv-chart")).to_have_count(2)


def test_every_chart_in_chinese_at_a_single_step(open_charts):
    """C05: one new token is enough for every figure."""
    visit = open_charts("new=1&step=0", locale="zh-CN")
    charts = visit.page.get_by_test_id("kv-chart")
    expect(charts).to_have_count(8)
    for chart in charts.all():  # each is drawn once it comes near the window
        chart.scroll_into_view_if_needed()
        expect(chart).to_have_attribute("data-drawn", "1", timeout=WAIT_MS)
    expect(visit.page.get_by_text("怎么看这张图").first).to_be_visible()
    expect(visit.page.get_by_text("测量中：已有 0 个解码步，需要 16 个", exact=True)).to_be_visible()


def test_a_chart_that_is_half_in_view_is_drawn(visit):
    """Who jumps to what stands below a chart sees its lower half first."""
    visit.goto("/decode?step=6")
    visit.wait_player(step=6)
    below = visit.page.locator(".st-key-code")
    below.wait_for(timeout=WAIT_MS)
    visit.settled()
    last = visit.page.get_by_test_id("kv-chart").last
    assert last.get_attribute("data-drawn") is None
    below.scroll_into_view_if_needed()
    expect(last).to_have_attribute("data-drawn", "1", timeout=WAIT_MS)
    box = last.bounding_box()
    assert box["y"] < 0 < box["y"] + box["height"]
