"""A ladder's file: exact both ways, and a sentence for whatever else somebody opens."""

from __future__ import annotations

import copy
import dataclasses
import json
import math

import numpy as np
import pytest
from paper_ladder import KNOWN, ladder, lane

from kvviz.core.refusal import Refusal
from kvviz.features.ladder.record import file as ladder_file
from kvviz.features.ladder.record.file import from_json, read, to_json
from kvviz.features.ladder.record.ladder import Ladder
from kvviz.features.race.record import Allocator


def climbed() -> Ladder:
    """Two lanes, two repeats of three passes, the second one stopped in the middle."""
    nan = math.nan
    return ladder(
        [lane("none", "sdpa", [[3.25, 1.5, 0.1], [1 / 3, nan, nan]]),
         lane("preallocated", "sdpa", [[3.0, 1.0, 1.0], [nan, nan, nan]], dtype="bfloat16", compiled=True,
              allocate_ms=0.75, held=np.array([7, 8, 9]), chosen=np.array([4, -1, 6]))],
        N=3, batch=2, state="stopped", generate=np.array([1.25]), other_rates={"bfloat16": KNOWN},
        allocator=Allocator(5, 6, None), title="一张图 & <b>",
    )  # fmt: skip


def test_a_file_gives_back_what_it_was_made_of():
    made = climbed()
    found = read(json.dumps(to_json(made), allow_nan=False).encode())
    for field in dataclasses.fields(Ladder):
        if field.name not in ("rungs", "generate"):
            assert getattr(found, field.name) == getattr(made, field.name), field.name
    assert found.generate.tolist() == [1.25]
    for one, other in zip(found.rungs, made.rungs, strict=True):
        for field in dataclasses.fields(other):
            mine, wanted = getattr(one, field.name), getattr(other, field.name)
            np.testing.assert_array_equal(mine, wanted, err_msg=field.name)
            assert np.asarray(mine).dtype == np.asarray(wanted).dtype and np.shape(mine) == np.shape(wanted)
    assert found.rungs[0].ms[1].tolist()[0] == 1 / 3  # to the last bit
    assert to_json(found) == to_json(made)


def test_a_file_of_the_bench_holds_it_too():
    data = {"machine": {}, "rounds": 5, "ladder": to_json(climbed())}
    assert from_json(data).key == "paper"
    assert read(b"\xef\xbb\xbf" + json.dumps(data).encode()).title == "一张图 & <b>"


OTHER_FILES = [
    *(b"", b"\xff\xfe", b"no", b"[]", b"{}", b"null", b"3", b'{"ladder": 3}', b'{"ladder": {}}'),
    *(b'{"format": "kvviz run"}', b'{"format": NaN}', b'{"ladder": {"ladder": {}}}'),
    *(b"[" * 200_000, b'{"format": ' + b"9" * 5000 + b"}"),
]


@pytest.mark.parametrize("data", OTHER_FILES, ids=range(14))
def test_another_file_is_called_that(data):
    with pytest.raises(Refusal) as refused:
        read(data)
    assert refused.value.code == "not_a_ladder" and "bench" in str(refused.value)


def test_too_big_and_too_new():
    with pytest.raises(Refusal) as refused:
        read(b" " * (ladder_file.LARGEST + 1))
    assert refused.value.code == "ladder_too_big" and "10,000,001" in str(refused.value)
    with pytest.raises(Refusal) as refused:
        from_json(to_json(climbed()) | {"version": 2})
    assert refused.value.code == "ladder_version" and "2" in str(refused.value)


def changed(where: list, value: object) -> dict:
    """The file with one value replaced."""
    data = copy.deepcopy(to_json(climbed()))
    at = data
    for step in where[:-1]:
        at = at[step]
    at[where[-1]] = value
    return data


RUNG = ["rungs", 0]
NONSENSE = [
    (["N"], 2),  # fewer than the passes there are
    (["N"], True),
    (["N"], 3.0),
    (["N"], 10**9),
    (["P"], 0),
    (["P"], 1023),  # 1,025 positions of 1,024
    (["batch"], 0),
    (["batch"], 10**30),
    (["repeats"], 1),  # there are two
    (["repeats"], "2"),
    (["key"], 7),
    (["title"], "x" * 201),
    (["title"], "\ud800"),
    (["state"], "over"),
    (["state"], ["done"]),
    (["generate"], [1.0, 1.0, 1.0]),  # more than repeats
    (["generate"], [-1.0]),
    (["generate"], [None]),
    (["generate"], None),
    (["matrix_values"], -1),
    (["rungs"], []),
    (["rungs"], {}),
    (["rungs"], None),
    (["rates", "bandwidth", "low"], 2e10),  # above the median
    (["rates", "bandwidth", "median"], 0),
    (["rates", "bandwidth", "count"], 0),
    (["rates", "bandwidth"], [1, 2, 3]),
    (["rates"], 5),
    (["other_rates"], {"int4": None}),
    (["other_rates"], []),
    (["allocator", "peak"], -5),
    (["allocator"], []),
    (["model", "name"], "x" * 201),
    (["model", "layers"], 0),
    (["model", "heads"], 1.5),
    (["model", "head_dim"], 0),
    (["model", "dtype"], "float16"),  # of four bytes a value
    (["model", "max_positions"], 3),
    (["model"], None),
    (["machine", "device"], None),
    (["machine", "threads"], 0),
    ([*RUNG, "cache"], "paged"),
    ([*RUNG, "cache"], ["none"]),
    ([*RUNG, "kernel"], "flash"),
    ([*RUNG, "dtype"], "float64"),
    ([*RUNG, "dtype"], []),
    ([*RUNG, "compiled"], 0),
    ([*RUNG, "N"], 4),
    ([*RUNG, "ms", 0, 1], -0.5),
    ([*RUNG, "ms", 0, 1], 0),
    ([*RUNG, "ms", 0, 1], None),  # a hole in the first repeat
    ([*RUNG, "ms", 0, 1], "1.5"),
    ([*RUNG, "ms", 0, 1], True),
    ([*RUNG, "ms", 0, 1], 1e300),
    ([*RUNG, "ms", 0, 1], math.inf),
    ([*RUNG, "ms", 1], [1.0]),  # ragged
    ([*RUNG, "ms"], [[3.25, 1.5, 0.1]]),  # one repeat, the other lane has two
    ([*RUNG, "ms"], []),
    ([*RUNG, "ms"], 3),
    ([*RUNG, "held"], [0, 0]),
    ([*RUNG, "held", 0], -1),
    ([*RUNG, "chosen", 0], -2),
    ([*RUNG, "chosen", 0], 50_257),
    ([*RUNG, "chosen", 0], 1.0),
    ([*RUNG, "warm_up"], [-1.0]),
    ([*RUNG, "ready_ms"], -1.0),
    ([*RUNG, "allocate_ms"], "long"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "value"), NONSENSE, ids=str)
def test_nonsense_is_refused_with_a_sentence(where, value):
    with pytest.raises(Refusal) as refused:
        from_json(changed(where, value))
    assert refused.value.code == "ladder_damaged", refused.value.code
    assert refused.value.values["part"].split(".")[0] in {str(where[0]), "values", "model", "P", "rungs"}
    assert "contradicts" in str(refused.value)


def test_what_is_missing_or_unknown_or_too_many_is_refused():
    whole = to_json(climbed())
    wrong = [{k: v for k, v in whole.items() if k != name} for name in whole if name not in ("format", "version")]
    wrong += [whole | {"more": 1}, whole | {"rungs": whole["rungs"] * 2}, whole | {"rungs": [3]}]
    wrong += [whole | {"rungs": [{k: v for k, v in whole["rungs"][0].items() if k != "held"}]}]
    many = [whole["rungs"][0] | {"cache": c, "kernel": k, "dtype": d, "compiled": x}
            for c in ("none", "concatenated", "preallocated") for k in ("eager", "sdpa")
            for d in ("float32", "float16", "bfloat16") for x in (False, True)]  # fmt: skip
    assert len(from_json(whole | {"rungs": many[:24]}).rungs) == 24
    wrong += [whole | {"rungs": many[:25]}]
    for data in wrong:
        with pytest.raises(Refusal) as refused:
            from_json(data)
        assert refused.value.code == "ladder_damaged"


def test_done_means_that_a_repeat_is_through():
    begun = ladder([lane("none", "sdpa", [[1.0, 1.0]], N=3)], N=3, state="running")
    assert from_json(to_json(begun)).n == 2
    with pytest.raises(Refusal) as refused:
        from_json(to_json(begun) | {"state": "done"})
    assert refused.value.values["part"] == "state"


def test_a_table_for_reading():
    """By hand: floors as in test_ladder; 10 GB/s move 495,234,048 bytes in 49.52 ms. One pass of 499 ms moves a mean of
    19 by 400 / 19 = 21.05, and no median."""
    grown = lane("concatenated", "sdpa", [[9.0] + [99.0] * 18 + [499.0]] * 2, held=np.arange(5, 25) * 73_728)
    half = lane("preallocated", "sdpa", [[9.0] + [50.0] * 19] * 2, dtype="bfloat16")
    found = ladder([lane("none", "eager", [[9.0] + [200.0] * 19] * 2), grown, half], generate=np.array([98.0, 100.0]))
    said, blank, *table = ladder_file.to_markdown(found).splitlines()
    assert said.startswith("gpt2, float32, 5 + 20 tokens, batch 1; Test CPU, 2 threads, torch 2.13.0") and not blank
    assert said.endswith("medians of 2 rounds, quartiles in brackets.")
    assert table[2:] == [
        "| none, eager | 9.0 (9.0 – 9.0) | 200.0 (200.0 – 200.0) | 200.0 (200.0 – 200.0) |  |  |  |",
        "| concatenated, sdpa | 9.0 (9.0 – 9.0) | 99.0 (99.0 – 99.0) | 120.1 (120.1 – 120.1) "
        "| 2.00 | 50 % | 1,769,472 |",
        "| preallocated, sdpa, bfloat16 | 9.0 (9.0 – 9.0) | 50.0 (50.0 – 50.0) | 50.0 (50.0 – 50.0) |  |  |  |",
        "| transformers' `generate` | | | 99.0 (98.5 – 99.5) | | | |",
    ]
    assert {line.count("|") for line in table} == {8}
