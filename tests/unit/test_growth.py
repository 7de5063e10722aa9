"""The work of a generation with and without a cache: counted on tensors, and the same by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from factories import make_run
from torch.utils.flop_counter import FlopCounterMode

from kvviz.engine import Session
from kvviz.features.problem import measure as growth
from kvviz.features.problem.record import of_run
from kvviz.theory import work

FIVE = "Once upon a time"  # five tokens in the built-in vocabulary


def last(steps):
    *_, found = steps
    return found


def test_five_and_twenty(story):
    """D04: 290 rows against 24, 4,870 scores against 310, of which the causal mask leaves 2,580 and 300."""
    found = last(growth.generate(story, FIVE, 20))
    assert (found.P, found.n, found.new) == (5, 20, 20)
    assert (found.without.rows.sum(), found.kept.rows.sum()) == (290, 24)
    assert (found.without.scores.sum(), found.kept.scores.sum()) == (4_870, 310)
    assert (found.without.visible.sum(), found.kept.visible.sum()) == (2_580, 300)
    per_token = {"story-gpt2": 12_288, "story-llama": 3_072}[story.facts.name]
    assert (found.without.written.sum(), found.kept.written.sum()) == (290 * per_token, 24 * per_token)
    assert list(found.kept.rows) == [5] + [1] * 19
    assert list(found.without.rows) == list(range(5, 25))
    assert {c.name: c.verdict for c in found.checks} == dict.fromkeys(
        ("equal", "rows", "rows_kept", "scores", "scores_kept"), "holds"
    )


def test_four_and_thirty(story_gpt2):
    found = last(growth.generate(story_gpt2, FIVE, 30, 4))
    assert (found.without.rows.sum(), found.kept.rows.sum()) == (555, 33)


def test_the_tokens_are_those_of_a_run(story):
    run = Session(story, FIVE).advance(6)
    found = last(growth.generate(story, FIVE, 6))
    assert found.ids.tolist() == run.new_ids.tolist()
    again = of_run(run)
    for lane in ("without", "kept"):
        for name in ("rows", "scores", "visible", "written"):
            assert (getattr(getattr(again, lane), name) == getattr(getattr(found, lane), name)).all(), (lane, name)
    assert [c.verdict for c in again.checks] == ["holds"]


def test_it_grows_a_pass_at_a_time(story_gpt2):
    seen = [(g.n, g.new, int(g.without.rows.sum())) for g in growth.generate(story_gpt2, FIVE, 3)]
    assert seen == [(1, 3, 5), (2, 3, 11), (3, 3, 18)]


def test_a_count_that_is_not_the_formulas_fails(story_gpt2, monkeypatch):
    monkeypatch.setattr(work, "rows_without_cache", lambda P, N: 17)
    found = last(growth.generate(story_gpt2, FIVE, 3))
    assert {c.name for c in found.checks if c.verdict == "fails"} == {"rows"}
    assert next((c.value, c.limit) for c in found.checks if c.name == "rows") == (18, 17)


def test_causal_scores_by_hand():
    """With a cache each pair of key and earlier query once: 1 + … + 24. Without: 15 + 21 + … + 300."""
    assert work.causal_scores_with_cache(5, 20) == 300
    assert work.causal_scores_without_cache(5, 20) == 2_580
    assert [work.causal(t) for t in (1, 4, 9)] == [1, 10, 45]
    assert work.causal_scores_without_cache(2000, 2000) / work.causal_scores_without_cache(1000, 1000) == pytest.approx(
        8, rel=1e-2
    )


def test_operations_are_those_that_torch_counts(story):
    """torch counts the matrix products that it is asked for; with attention in plain products none escapes it."""
    from transformers import AutoModelForCausalLM

    from kvviz.models.catalog import BUILTIN

    module = AutoModelForCausalLM.from_pretrained(
        BUILTIN / story.facts.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids = torch.tensor([story.encode("Dorothy and the Tin Woodman")])
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        module(input_ids=ids, use_cache=False, logits_to_keep=1)
    m, P = story.facts, ids.shape[1]
    counted = work.flops(
        P,
        P * P,
        1,
        matrix_values=growth.matrix_values(story),
        heads=m.heads,
        head_dim=m.head_dim,
        layers=m.layers,
        output_values=m.vocab_size * m.width,
    )
    # transformers 5.17 multiplies out Llama's rotary angles, D/2 frequencies by P positions; 5.24 has no product there
    angles = 2 * (m.head_dim // 2) * P if m.positions == "rotary" else 0
    assert counter.get_total_flops() - counted in (0, angles)


def test_windows_leave_what_the_widest_layer_sees():
    narrow = of_run(make_run(P=12, N=3, windows=(8, 8, 8, 8, 8, 8)))
    # rows 0..7 see 1..8 keys, later ones 8
    assert list(narrow.without.visible) == [36 + 8 * 4, 36 + 8 * 5, 36 + 8 * 6]
    assert list(narrow.kept.visible) == [68, 8, 8]
    some = of_run(make_run(P=12, N=3, windows=(8, 8, 0, 8, 8, 0)))
    assert list(some.kept.visible) == [78, 13, 14]


def test_a_run_without_twins_is_not_called_checked():
    assert of_run(make_run(compared=False)).checks == ()
    assert list(of_run(make_run(P=9, N=4, compared=False)).without.rows) == [9, 10, 11, 12]


def test_first_passes_of_a_longer_run():
    found = of_run(make_run(P=9, N=20), 5)
    assert (found.n, found.new) == (5, 5)
    assert list(found.upto(2).without.rows) == [9, 10]
    assert found.upto(2).new == 5


def test_counts_are_whole_numbers():
    found = of_run(make_run(P=5, N=4))
    assert all(getattr(found.kept, n).dtype == np.int64 for n in ("rows", "scores", "visible", "written"))
