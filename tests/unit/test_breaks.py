"""A cache used wrongly: what was fed is written down, and the logits are those of plain transformers and of NumPy
given the same fault."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from kvviz.engine import Session
from kvviz.features.permission.measure import breaks
from kvviz.features.permission.record.breaks import KINDS
from kvviz.models.catalog import BUILTIN
from tests.unit.conftest import refused
from tests.unit.numpy_models import gpt2, llama

TALE = "Dorothy and the Tin Woodman"  # nine tokens


@pytest.fixture(scope="module", params=["story-gpt2", "story-llama"])
def found(request):
    from kvviz.engine import load

    *_, last = breaks.all_kinds(load(request.param, device="cpu"), TALE, 4)
    return last


@cache
def plain(name: str):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(BUILTIN / name, dtype=torch.float32, attn_implementation="eager").eval()


def logits(name: str, ids, positions, visible=None) -> np.ndarray:
    """(V,) of the last row, by transformers' own attention and no cache. `visible` (T, T) bool, default causal."""
    T = len(ids)
    seen = torch.ones(T, T, dtype=torch.bool).tril() if visible is None else torch.tensor(visible)
    added = torch.zeros(1, 1, T, T).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        out = plain(name)(
            input_ids=torch.tensor([list(ids)]),
            position_ids=torch.tensor([list(positions)]),
            attention_mask=added,
            use_cache=False,
        )
    return out.logits[0, -1].double().numpy()


def apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max())


def test_used_rightly_it_stays_within_the_tolerance(found, request):
    assert (found.right.dlogit <= 1e-3).all()
    assert found.right.ids == found.right.right_ids
    for i, step in enumerate(found.right.steps):
        assert (step.positions[-1], step.held, step.visible) == (8 + i, 0 if i == 0 else 8 + i, 9 + i)
        assert step.right_position == 8 + i


def test_the_right_text_is_that_of_a_run(found):
    from kvviz.engine import load

    run = Session(load(found.model.name, device="cpu"), TALE).advance(4)
    assert found.right.right_ids == tuple(run.new_ids.tolist())
    assert set(found.broken) == set(KINDS)


def test_fed_twice(found):
    ids, first = found.prompt_ids.tolist(), found.broken["twice"].steps[0].chosen
    steps = found.broken["twice"].steps
    assert (steps[0].dlogit, steps[1].fed, steps[1].positions) == (0.0, (first, first), (9, 10))
    assert [s.positions[-1] - s.right_position for s in steps] == [0, 1, 1, 1]
    name, T = found.model.name, len(ids)
    wrong = logits(name, [*ids, first, first], range(T + 2))
    right = logits(name, [*ids, first], range(T + 1))
    assert steps[1].dlogit == pytest.approx(apart(wrong, right), abs=1e-3)
    assert steps[1].chosen == wrong.argmax()


def test_a_cache_that_was_not_cleared_is_a_longer_text(found):
    """Numbers from NumPy, which knows neither caches nor positions that are given."""
    read = {"story-gpt2": gpt2, "story-llama": llama}[found.model.name]
    lane, folder = found.broken["stale"], BUILTIN / found.model.name
    ids = found.prompt_ids.tolist()
    wrong, right = read(folder, [*lane.other_ids, *ids]).logits[-1], read(folder, ids).logits[-1]
    assert lane.steps[0].dlogit == pytest.approx(apart(wrong, right), abs=2e-3)
    assert lane.steps[0].held == len(lane.other_ids) == 9
    assert lane.steps[0].positions == tuple(range(9, 18))
    assert lane.steps[0].chosen == wrong.argmax()


def test_a_mask_over_the_new_token_alone(found):
    """The token sees itself only: as if it were fed by itself at its position."""
    ids, steps, name = found.prompt_ids.tolist(), found.broken["narrow"].steps, found.model.name
    assert [s.visible for s in steps] == [9, 1, 1, 1]
    assert [s.held for s in steps] == [0, 9, 10, 11]
    alone = logits(name, [steps[0].chosen], [9])
    right = logits(name, [*ids, steps[0].chosen], range(10))
    assert steps[1].dlogit == pytest.approx(apart(alone, right), abs=1e-3)
    assert steps[1].chosen == alone.argmax()


def test_a_position_off_by_one(found):
    ids, steps, name = found.prompt_ids.tolist(), found.broken["shifted"].steps, found.model.name
    assert [s.positions[-1] - s.right_position for s in steps] == [0, 1, 1, 1]
    wrong = logits(name, [*ids, steps[0].chosen], [*range(9), 10])
    right = logits(name, [*ids, steps[0].chosen], range(10))
    assert steps[1].dlogit == pytest.approx(apart(wrong, right), abs=1e-3)


def test_a_second_turn_from_zero(found):
    lane, name = found.broken["restart"], found.model.name
    first, second = lane.text_ids[:13], lane.other_ids
    assert first == (*found.prompt_ids.tolist(), *found.right.ids[:4])
    assert second == tuple(found.prompt_ids.tolist())
    assert (lane.steps[0].held, lane.steps[0].positions) == (13, tuple(range(9)))
    assert [s.positions[-1] for s in lane.steps] == [8, 9, 10, 11]
    wrong = logits(name, [*first, *second], [*range(13), *range(9)])
    right = logits(name, [*first, *second], range(22))
    assert lane.steps[0].dlogit == pytest.approx(apart(wrong, right), abs=1e-3)
    assert lane.steps[0].right_choice == right.argmax()


def test_every_fault_can_be_measured(found):
    for kind in KINDS:
        assert found.broken[kind].dlogit.max() > 0.1, kind


def test_no_room_is_a_sentence(story_gpt2):
    long = "the " * 600
    assert len(story_gpt2.encode(long)) > 500
    refused("second_turn_too_long", lambda: next(breaks.all_kinds(story_gpt2, long)))
    refused("empty_prompt", lambda: next(breaks.all_kinds(story_gpt2, "")))


def test_kinds_come_one_after_the_other(story_gpt2):
    assert [list(b.broken) for b in breaks.all_kinds(story_gpt2, TALE, 2)] == [
        list(KINDS[:n]) for n in range(len(KINDS) + 1)
    ]
