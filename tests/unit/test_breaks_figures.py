"""The chart and tables of a cache used wrongly."""

from __future__ import annotations

import pytest

from kvviz.core import lessons
from kvviz.features.permission.figure import breaks as figures
from kvviz.features.permission.measure import breaks
from kvviz.features.permission.record.breaks import KINDS

TALE = "Dorothy and the Tin Woodman"  # nine tokens
WORDS = {k.removeprefix("axis_"): v for k, v in lessons.sections("en", "permission").items() if k.startswith("axis_")}


@pytest.fixture(scope="module", params=["story-gpt2", "story-llama"])
def found(request):
    from kvviz.engine import load

    *_, last = breaks.all_kinds(load(request.param, device="cpu"), TALE, 4)
    return last


def test_the_chart_shows_both_lanes(found):
    drawn = figures.wrong_by_step(found, words=WORDS, dark=False, kind="twice")
    broken, right = drawn.data
    assert broken.y[0] == figures.FLOOR and broken.customdata[0] == "0"
    assert broken.marker.symbol[0] == "triangle-up-open" and broken.marker.symbol[1] == "triangle-up"
    assert list(broken.y[1:]) == list(found.broken["twice"].dlogit[1:])
    assert max(right.y) <= 1e-3


def test_the_table_tells_what_was_fed_from_what_is_right(found):
    table = figures.wrong_by_step_table(found, words=WORDS, kind="stale")
    assert table["positions given"][:2] == ["9 – 17", "18"]
    assert table["right position (last)"][:2] == [8, 9]
    assert (table["held before"][0], table["right length before"][0]) == (9, 0)
    assert (table["held before"][1], table["right length before"][1]) == (18, 9)
    restart = figures.wrong_by_step_table(found, words=WORDS, kind="restart")
    assert (restart["held before"][0], restart["right length before"][0]) == (13, 13)
    narrow = figures.wrong_by_step_table(found, words=WORDS, kind="narrow")
    assert narrow["keys seen"] == [9, 1, 1, 1]


def test_what_was_written_is_shown_as_it_is(found):
    texts = figures.texts(found, "narrow")
    assert texts["right"].startswith("·and·the")
    names = {k: k for k in ("right", *KINDS)}
    table = figures.breaks_table(found, words=WORDS, names=names)
    assert table["fault"] == ["right", *KINDS]
    assert table["same tokens"][0] == "4 / 4"
    values = figures.breaks_values(found, "stale")
    assert (values["first_position"], values["position"], values["right_first"], values["right_position"]) == (
        "9", "17", "0", "8",
    )  # fmt: skip
