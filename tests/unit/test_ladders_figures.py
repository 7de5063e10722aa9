"""Ladders beside each other, and how K and V lie in memory, on numbers written down by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from figure_json import array
from paper_ladder import ladder

from kvviz.core import lessons
from kvviz.features.ladder.figure import ladders as said
from kvviz.features.ladder.record.ladder import Ladder, Read, Reads
from tests.unit.test_ladder_figures import HOSTILE, TOKEN, WORDS, drawn, flat, three_passes


def other_device(title: str = "H") -> Ladder:
    """Half the lanes, in half precision too, on another device; quicker."""
    machine = dataclasses.replace(ladder([flat("none", "sdpa", [1.0])]).machine, device_name="Test GPU")
    lanes = [flat("concatenated", "sdpa", [1.0, 2.0, 3.0]), flat("concatenated", "sdpa", [0.5], dtype="bfloat16")]
    return dataclasses.replace(ladder(lanes), key="other", machine=machine, title=title)


def test_ladders_stand_beside_each_other():
    here = ladder([flat("none", "sdpa", [6.0]), flat("concatenated", "sdpa", [4.0])])
    both = [("here", here), ("there", other_device())]
    figure = drawn(said.beside, both)
    one, two = (t for t in figure["data"] if t["type"] == "bar")
    _, numbers = (t for t in figure["data"] if t["type"] == "scatter")
    assert numbers["text"] == ["2.00", "0.50"] and array(numbers["y"]).tolist() == [3, 0.5]  # over the quartiles
    assert numbers["offsetgroup"] == two["offsetgroup"] != one["offsetgroup"]
    assert (one["name"], two["name"]) == ("here", "there")
    assert one["x"] == ["no cache, SDPA, fp32", "concatenated, SDPA, fp32"] and array(one["y"]).tolist() == [6, 4]
    assert two["x"] == ["concatenated, SDPA, fp32", "concatenated, SDPA, bf16"] and array(two["y"]).tolist() == [2, 0.5]
    assert array(two["error_y"]["array"]).tolist() == [1, 0]
    assert one["marker"]["color"] != two["marker"]["color"]
    assert one["marker"]["pattern"]["shape"] != two["marker"]["pattern"]["shape"]
    table = said.beside_table(both, words=WORDS)
    assert table["device"] == ["Test CPU", "Test CPU", "Test GPU", "Test GPU"]
    assert table["tokens, batch"] == ["5 + 20, B = 1"] * 4
    assert table["later token, TPOT (ms)"] == [6, 4, 2, 0.5]
    assert table["floor (ms)"] == [49.41, 49.52, 49.52, None]  # no rates in half precision
    values = said.beside_values(both, WORDS)
    assert values == {"ladders": 2, "same": True, "title": "there", "lane": "concatenated, SDPA, bf16", "ms": "0.50"}
    longer = dataclasses.replace(here, P=9)
    assert said.beside_values([("here", here), ("there", longer)], WORDS)["same"] is False


def test_a_hostile_title_is_drawn_literally():
    bar = drawn(said.beside, [(HOSTILE, ladder([flat("none", "sdpa", [6.0])]))])["data"][0]
    assert bar["name"] == "&lt;b&gt;&#36;x&#36; `a|b` ![](x) %{x}"
    assert "<b>" not in bar["name"] + bar["hovertemplate"] and "$" not in bar["name"] + bar["hovertemplate"]
    assert bar["hovertemplate"].count("%{") == 2  # the lane and its time; the title's own is text
    assert said.beside_table([(HOSTILE, other_device())], words=WORDS)["result"] == [HOSTILE] * 2  # a table is literal


def reads(blocks: list[float], one: list[float] | None = None) -> Reads:
    """512 positions of 73,728 bytes: 36 MiB read; the blocks' are read and written once more to be gathered."""
    read = 512 * TOKEN
    base = ladder([flat("none", "sdpa", [1.0])])
    layouts = (
        Read("contiguous", np.array(one or [4.0] * len(blocks)), np.zeros(0), read, read),
        Read("view", np.full(len(blocks), 5.0), np.zeros(0), read, read),
        Read("blocks", np.array(blocks), np.full(len(blocks), 3.0), read, 3 * read),
    )
    return Reads("reads", base.model, base.machine, 512, 1024, 16, 25, layouts, 2e-7)


@pytest.mark.parametrize(
    ("blocks", "case"),
    [([8.0] * 15, "measuring"), ([8.0] * 16, "dearer"), ([4.0] * 16, "even"), ([3.9] * 8 + [9.0] * 8, "even")],
)
def test_whether_gathering_is_to_be_seen(blocks, case):
    assert said.reads_values(reads(blocks))["case"] == case


def test_reading_is_drawn_as_it_was_measured():
    found = reads([8.0] * 16)
    values = said.reads_values(found)
    assert [values[n] for n in ("T", "one", "view", "blocks", "gather", "times")] == [
        "512", "4.00", "5.00", "8.00", "3.00", "2.00",
    ]  # fmt: skip
    assert (values["read"], values["moved"]) == ("36.0 MiB", "108 MiB")
    whole, gather = (t for t in drawn(said.reads, found)["data"] if t["type"] == "bar")
    assert array(whole["x"]).tolist() == [4, 5, 8] and array(gather["x"]).tolist() == [0, 0, 3]
    assert whole["y"] == ["one tensor", "view of a buffer", "blocks of 16, gathered"]
    table = said.reads_table(found, words=WORDS)
    assert table["one query (ms)"][2] == "8.000 (8.000 – 8.000)" and table["of it gathering (ms)"][0] == "–"
    assert table["read (bytes)"] == [37_748_736] * 3 and table["moved in all (bytes)"][2] == 113_246_208


@pytest.mark.parametrize("name", ["time", "clock", "tokens", "bytes", "plan", "beside", "reads"])
def test_pictures_are_told_in_words(name):
    values = said.ladder_values(three_passes(), WORDS)
    if name == "beside":
        values = said.beside_values([("a", three_passes()), ("b", other_device())], WORDS)
    elif name == "reads":
        values = said.reads_values(reads([8.0] * 16))
    for language in lessons.LANGUAGES:
        for part in ("how", "alt"):
            assert "{" not in lessons.text(language, "ladder", f"{name}_{part}", **values)
