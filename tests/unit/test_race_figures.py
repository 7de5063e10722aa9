"""The charts of a race say what the race says."""

from __future__ import annotations

import dataclasses

import numpy as np
from paper_race import CPU, MODEL, THREE, paper_race

from kvviz.core import lessons
from kvviz.features.race import figure as figures
from kvviz.features.race.record import Waits


def written(trace) -> list[str]:
    return [said.strip() for said in trace.text or () if said.strip()]


def test_the_number_at_the_end_of_a_line_is_that_lines_last_value():
    """20 later passes: no cache 1 … 20 ms, whose last sixteen are 5 … 20, median 12.5; with the cache 2 ms, but for
    the last two of 50, and the median of sixteen is 2 all the same."""
    words = {k.removeprefix("axis_"): v for k, v in lessons.sections("en", "race").items() if k.startswith("axis_")}
    race = paper_race([[9.0, *range(1, 21)]] * 3, [[9.0, *[2.0] * 18, 50.0, 50.0]] * 3)
    drawn = figures.per_token(race, words=words, dark=False)
    lines = {t.name: t for t in drawn.data if t.name}
    ends = {name: (t.x[-1], t.y[-1], written(t)) for name, t in lines.items()}
    assert ends == {"no cache": (25, 12.5, ["12.5 ms"]), "with the cache": (25, 2, ["2.00 ms"])}
    assert list(lines["no cache"].y) == [8.5, 9.5, 10.5, 11.5, 12.5]
    assert "median of last 16" in drawn.layout.yaxis.title.text


def test_charts_say_what_the_race_says():
    words = {k.removeprefix("axis_"): v for k, v in lessons.sections("en", "race").items() if k.startswith("axis_")}
    medians = {t.name: list(t.y) for t in figures.per_token(THREE, words=words, dark=False).data if t.name}
    assert medians == {"no cache": [6, 6], "with the cache": [3, 2]}
    assert not any(written(t) for t in figures.per_token(THREE, words=words, dark=False).data)  # two passes are few
    clocks = {t.name: list(t.y) for t in figures.clock(THREE, words=words, dark=True).data}
    assert clocks == {"no cache": [10, 16, 22], "with the cache": [10, 14, 16]}
    bars = figures.rows(THREE, words=words, dark=False)
    assert [list(t.y) for t in bars.data] == [[5, 1, 1], [0, 5, 6]]
    assert figures.per_token_table(THREE, words=words)["no cache, median (ms)"] == [6, 6]
    found = Waits("w", (10, 800), np.array([[4.0, 4.0, 4.0], [80.0, 88.0, 84.0]]), np.full((2, 3, 2), 3.0), MODEL, CPU)
    values = figures.waits_values(found)
    assert (values["case"], values["times"], values["later_times"]) == ("grows", "21.0", "1.0")
    flat = dataclasses.replace(found, ttft_ms=np.full((2, 3), 4.0))
    assert figures.waits_values(flat)["case"] == "flat"
    bars = {t.name: list(t.y) for t in figures.waits(found, words=words, dark=False).data}
    assert bars == {"first token (TTFT)": [4, 84], "a later token (TPOT)": [3, 3]}
