"""The charts of a race say what the race says."""

from __future__ import annotations

import dataclasses

import numpy as np
from paper_race import CPU, MODEL, THREE

from kvviz import lessons
from kvviz.figures import race as figures
from kvviz.records.race import Waits


def test_charts_say_what_the_race_says():
    words = {k.removeprefix("axis_"): v for k, v in lessons.sections("en", "race").items() if k.startswith("axis_")}
    medians = {t.name: list(t.y) for t in figures.per_token(THREE, words=words, dark=False).data if t.name}
    assert medians == {"no cache": [6, 6], "with the cache": [3, 2]}
    clocks = {t.name: list(t.y) for t in figures.clock(THREE, words=words, dark=True).data}
    assert clocks == {"no cache": [10, 16, 22], "with the cache": [10, 13, 15]}
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
