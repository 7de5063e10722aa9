"""What heads look at, against numbers worked out by hand, and what the engine measures of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from factories import make_run

from kvviz.features.attention.record.heads import FROM, HABITS, NAMED, bits, head_facts, ranking, strongest


def by_hand(rows: list[list[float]]):
    """A run of one layer and head with exactly these attention rows: prefill of all but the last, then one step."""
    P = len(rows) - 1
    run = make_run(1, 1, head_dim=4, P=P, N=2)
    square = np.zeros((1, 1, P, P), dtype=np.float16)
    for i, row in enumerate(rows[:P]):
        square[0, 0, i, : i + 1] = row
    last = np.array(rows[-1], dtype=np.float16)[None, None, None]
    steps = (dataclasses.replace(run.steps[0], attention=square), dataclasses.replace(run.steps[1], attention=last))
    return dataclasses.replace(run, steps=steps)


ROWS = [[1.0], [0.5, 0.5], [0.25, 0.5, 0.25], [0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.0, 0.25, 0.25]]


def test_shares_and_entropy_are_means_over_the_queries_from_position_two():
    facts = head_facts(by_hand(ROWS), 1)
    assert facts.queries == 3
    assert facts.previous[0, 0] == pytest.approx((0.5 + 1.0 + 0.25) / 3)
    assert facts.first[0, 0] == pytest.approx((0.25 + 0.0 + 0.5) / 3)
    assert facts.itself[0, 0] == pytest.approx((0.25 + 0.0 + 0.25) / 3)
    # 1.5 bits for (1/4, 1/2, 1/4), 0 for all on one key, 1.5 for (1/2, 1/4, 1/4)
    assert facts.entropy[0, 0] == pytest.approx((1.5 + 0 + 1.5) / 3)
    assert facts.entropy_most == pytest.approx((np.log2(3) + 2 + np.log2(5)) / 3)


def test_only_the_rows_up_to_the_step_count():
    facts = head_facts(by_hand(ROWS), 0)
    assert facts.queries == 2
    assert facts.previous[0, 0] == pytest.approx(0.75)


def test_nothing_is_claimed_of_a_text_too_short_to_tell():
    facts = head_facts(make_run(2, 3, head_dim=4, P=FROM, N=1), 0)
    assert facts.queries == 0
    assert np.isnan(facts.previous).all()
    assert strongest(facts.previous) is None
    assert head_facts(make_run(1, 1, head_dim=8, P=1, N=1), 0).queries == 0


def test_entropy_of_an_even_spread_and_of_a_certainty():
    assert bits(np.full((1, 8), 1 / 8)).tolist() == [3.0]
    assert float(bits(np.array([0.0, 1.0, 0.0]))) == 0


def test_the_strongest_is_named_only_above_the_threshold():
    scores = np.array([[0.1, 0.2], [NAMED + 0.01, 0.3]])
    assert strongest(scores)[:3] == (1, 0, NAMED + 0.01) and strongest(scores).named
    assert not strongest(scores - 0.02).named
    assert not strongest(np.array([[NAMED]])).named  # not above it
    assert strongest(scores, lowest=True)[:3] == (0, 0, 0.1) and strongest(scores, lowest=True).named


def test_ranking_puts_the_strongest_first_and_what_is_missing_last():
    scores = np.array([[0.1, np.nan], [0.9, 0.1]])
    assert ranking(scores) == [(1, 0), (0, 0), (1, 1), (0, 1)]
    assert ranking(scores, lowest=True) == [(0, 0), (1, 1), (1, 0), (0, 1)]


def test_every_habit_of_a_real_model_has_a_head(story):
    from kvviz.engine import Session

    run = Session(story, "Dorothy and the Tin Woodman").advance(8)
    facts = head_facts(run, 7)
    for name in HABITS[:4]:
        values = getattr(facts, name)
        assert values.shape == (6, 8) and np.isfinite(values).all()
    # By hand for one head: the mean of three kinds of entries of its rows.
    rows = [run.attention_row(2, 2, i).astype(float) for i in range(2, 16)]
    assert facts.previous[2, 2] == pytest.approx(np.mean([r[-2] for r in rows]))
    assert facts.first[2, 2] == pytest.approx(np.mean([r[0] for r in rows]))
    assert facts.itself[2, 2] == pytest.approx(np.mean([r[-1] for r in rows]))


def test_induction_scores_the_token_after_the_same_token_before(story_gpt2, monkeypatch):
    """Weights replaced by ones that are known: all on the key at query - n + 1 scores 1, even spread its own mean."""
    import torch

    from kvviz.engine import attention
    from kvviz.features.attention.measure import heads

    n = 5

    def looks_back(c):
        T = c.k.shape[2]
        w = torch.zeros(c.q.shape[1], T, T)
        for i in range(T):
            w[0, i, max(0, i - n + 1)] = 1  # head 0: an induction head
            w[1, i, : i + 1] = 1 / (i + 1)  # head 1: spreads evenly
            w[2, i, max(0, i - n)] = 1  # head 2: looks at the same token, not at the one after it
        return w

    monkeypatch.setattr(attention, "weights", looks_back)
    found = heads.induction(story_gpt2, tokens=n, sequences=2)
    assert found.score[:, 0].tolist() == [1.0] * 6
    assert found.score[:, 1] == pytest.approx(found.chance)
    assert found.chance == pytest.approx((1 / 6 + 1 / 7 + 1 / 8 + 1 / 9 + 1 / 10) / 5)
    assert found.score[:, 2].tolist() == [0.0] * 6


def test_random_tokens_are_different_words_and_the_same_for_a_seed(story_gpt2):
    from kvviz.features.attention.measure import heads

    def drawn(seed):
        return heads._random_tokens(story_gpt2, np.random.default_rng(seed), 24)

    once = drawn(0)
    assert len(set(once)) == 24 and once == drawn(0) != drawn(1)
    assert all(story_gpt2.piece(t)[:1] == b" " and story_gpt2.piece(t)[1:].isalpha() for t in once)


def test_no_induction_to_speak_of_in_the_built_in_models(story):
    """What the models' README says of them. A head that is one scores near 1."""
    from kvviz.features.attention.measure import heads

    found = heads.induction(story)
    assert found.score.shape == (6, 8)
    assert 0 < found.score.max() < NAMED


def test_checks_hold_on_a_model_and_fail_without_the_mask(story, monkeypatch):
    import torch

    from kvviz.engine import attention
    from kvviz.features.attention.measure import heads

    ids = story.encode("Once upon a time there was a king")
    checks = {c.name: c for c in heads.checks(story, ids)}
    assert {n: c.verdict for n, c in checks.items()} == dict.fromkeys(("rows", "future", "kernel"), "holds")
    assert checks["future"].value == 0.0
    whole = attention.weights

    def opened(c):
        return whole(dataclasses.replace(c, mask=torch.ones_like(c.mask)))

    monkeypatch.setattr(attention, "weights", opened)
    checks = {c.name: c for c in heads.checks(story, ids)}
    assert checks["future"].verdict == "fails" and checks["future"].value > 0.01
    assert checks["kernel"].verdict == "fails"
