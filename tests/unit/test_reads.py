"""Where K and V lie: three layouts of the same rows, whose attention is the same; bytes by hand."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from kvviz.core.refusal import Refusal
from kvviz.features.ladder.measure import reads as engine
from kvviz.features.race.record import Spread
from kvviz.models import memory

TEXT = "Once upon a time"


@pytest.mark.parametrize("name", ["story_gpt2", "story_llama"])
@pytest.mark.parametrize("T", [1, 16, 37])
def test_layouts_hold_the_same_and_are_read_in_turn(name, T, request):
    model = request.getfixturevalue(name)
    found = list(engine.reads(model, TEXT, T, repeats=3, clock=lambda: 0.0))
    last = found[-1]
    assert [r.layout for r in last.layouts] == ["contiguous", "view", "blocks"]
    assert all(len(r.times) == 3 and (r.times > 0).all() for r in last.layouts)
    assert [len(r.gathers) for r in last.layouts] == [0, 0, 3]
    assert last.layouts[0].gather_ms.count == 0 and last.layouts[2].ms == Spread.of(last.layouts[2].times)
    assert last.max_abs <= 1e-6 and last.state == "done" and not model.lock.taken
    token = {"story_gpt2": 12_288, "story_llama": 3_072}[name]
    assert [r.read for r in last.layouts] == [T * token] * 3
    # blocks of 16: 1, 1 and 3 of them are read and written by the gathering, before attention reads T rows
    gathered = {1: 16, 16: 16, 37: 48}[T]
    assert [r.moved for r in last.layouts] == [T * token, T * token, (T + 2 * gathered) * token]
    assert (last.room, last.block) == (2 * T, 16)


def test_a_layout_gives_back_its_rows_and_lies_as_it_says():
    rows = torch.arange(2 * 21 * 4, dtype=torch.float32).view(1, 2, 21, 4)  # (1, Hkv, T, D)
    made = {kind.name: kind(rows, 40) for kind in engine.LAYOUTS}
    for layout in made.values():
        assert torch.equal(layout.rows(), rows)
    assert made["contiguous"].rows().is_contiguous() and made["contiguous"].rows().data_ptr() != rows.data_ptr()
    assert made["view"].rows().stride() == (2 * 40 * 4, 40 * 4, 4, 1)  # a gap of 19 rows after each head's
    blocks = made["blocks"]
    assert blocks.pool.shape == (2, 2, 16, 4) and sorted(blocks.table.tolist()) == [0, 1]
    many = engine._Blocks(rows.repeat(1, 1, 8, 1), 200)  # 168 positions: 11 blocks, not in order
    assert many.table.tolist() != list(range(11)) and sorted(many.table.tolist()) == list(range(11))


def test_results_that_differ_are_measured(story_gpt2, monkeypatch):
    """Each V of the blocks is larger by one: so is every weighted mean of them."""
    rows = engine._Blocks.rows
    calls = []

    def off(layout):
        calls.append(layout)
        return rows(layout) + (len(calls) % 2 == 0)  # K and V in turn

    monkeypatch.setattr(engine._Blocks, "rows", off)
    *_, last = engine.reads(story_gpt2, TEXT, 20, repeats=1)
    assert last.max_abs == pytest.approx(1, abs=1e-5)


def test_it_stops_between_readings(story_gpt2):
    stop, found = threading.Event(), []
    for so_far in engine.reads(story_gpt2, TEXT, 8, repeats=500, stop=stop, clock=iter(range(10**6)).__next__):
        found.append(so_far)
        if len(found) == 2:
            stop.set()
    assert [f.state for f in found] == ["running", "running", "stopped"]
    assert [len(r.times) for r in found[-1].layouts] == [2, 2, 2] and np.isfinite(found[-1].max_abs)


def test_refusals(story_gpt2, monkeypatch):
    for text, T, code in (("", 5, "empty_prompt"), ("Once", 1025, "too_long")):
        with pytest.raises(Refusal) as refused:
            next(engine.reads(story_gpt2, text, T))
        assert refused.value.code == code
    # 5 · 8 + 16 positions and the margin
    monkeypatch.setattr(memory, "there", lambda name: 56 * 12_288 + memory.MARGIN - 1)
    with pytest.raises(Refusal) as refused:
        next(engine.reads(story_gpt2, TEXT, 8))
    assert refused.value.code == "no_room_for_lanes"
    monkeypatch.setattr(memory, "there", lambda name: 56 * 12_288 + memory.MARGIN)
    assert next(engine.reads(story_gpt2, TEXT, 8, repeats=1)).state == "done"
