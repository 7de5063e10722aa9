"""The map of an edited token: exact zeros by themselves, numbers that fit, sentences that agree."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.core import lessons
from kvviz.features.permission.figure import permission as figures
from kvviz.features.permission.measure import permission

TALE = "Dorothy and the Tin Woodman"  # nine: D or othy ·and ·the ·T in ·Wood man
WORDS = {k.removeprefix("axis_"): v for k, v in lessons.sections("en", "permission").items() if k.startswith("axis_")}


def compare(model, position=3, text=" or", how="replace"):
    (found,) = permission.compare(model, TALE, position, text, how)
    return found


def test_the_map_shows_exact_zeros_by_themselves(story_gpt2):
    found = compare(story_gpt2)
    drawn = figures.change_map(found, words=WORDS, dark=False, masked=True)
    zeros, heat, signs = drawn.data[:3]
    assert zeros.name == "exactly 0" and zeros.showlegend
    assert np.isnan(heat.z[:, :3]).all() and np.isnan(heat.z[0, 4:]).all()
    assert np.isfinite(heat.z[1:, 3:]).all()
    assert heat.z[2, 4] == pytest.approx(np.log10(found.masked.dk[2, 4]))
    assert list(signs.text[:4]) == ["0", "0", "0", figures.short(found.masked.dk[0, 3])]
    # a stretch of three cells in each of six layers, and the rest of layer 0
    assert len(zeros.x) == 6 * 7
    opened = figures.change_map(found, words=WORDS, dark=False, masked=False)
    assert np.isfinite(opened.data[1].z[1:]).all()
    assert "→ ·or" in drawn.layout.xaxis2.ticktext[3]


@pytest.mark.parametrize(("v", "cell", "sentence"), [
    (0.0, ".00", "0"), (12.34, "12", "12.3"), (9.96, "10", "9.96"), (0.9976, "1.0", "0.998"), (0.344, ".34", "0.344"),
    (0.00314, "3e-3", "0.00314"), (3.1e-5, "3e-5", "3.1e-5"),
])  # fmt: skip
def test_numbers_in_cells_and_sentences(v, cell, sentence):
    assert figures.written(v) == sentence
    assert v == 0 or figures.short(v) == cell


def test_the_table_and_the_sentences_say_what_the_map_says(story_gpt2):
    found = compare(story_gpt2)
    table = figures.change_map_table(found, words=WORDS, masked=True)
    assert table["0 D"] == [0.0] * 12
    assert table["3 ·and"][0] == float(f"{found.masked.dk[0, 3]:.3g}")
    assert table["tensor"][5:7] == ["|ΔK|", "|ΔV|"]
    values = figures.permission_values(found)
    assert (values["case"], values["before_cells"], values["zeros_on"]) == ("middle", "36", "36")
    assert values["zeros_off"] == "6"  # layer 0, K and V
    assert values["changed_on"] == "62"  # 2 · (1 + 5 · 6)
    assert values["q_bytes"] == "86,016"  # 6 · 8 · 32 · 14 · 4
    assert values["cached_bytes"] == "172,032"
    cases = [figures.permission_values(compare(story_gpt2, at))["case"] for at in (0, 8)]
    assert cases == ["first", "last"]


def test_long_prompts_are_drawn_without_signs(story_gpt2):
    (found,) = permission.compare(story_gpt2, TALE * 6, 20, " or")
    drawn = figures.change_map(found, words=WORDS, dark=False, masked=True)
    assert drawn.data[0].fillpattern.shape == "."
    assert not any(t.mode == "text" for t in drawn.data if t.type == "scatter")
    assert 20 in drawn.layout.xaxis2.tickvals
