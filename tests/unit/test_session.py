"""Runs of real models: counts, equality with and without a cache, and what happens when a pass fails."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
import torch

from kvviz.core import Sampling
from kvviz.core.refusal import Refusal
from kvviz.engine import Session, cache_api
from kvviz.models.catalog import BUILTIN

FIVE = "Once upon a time"  # five tokens in the built-in vocabulary
TALE = "Dorothy and the Tin Woodman"  # nine: D or othy ·and ·the ·T in ·Wood man


def go(session: Session, n: int) -> Session:
    session.prefill()
    for _ in range(n - 1):
        session.decode_one_token()
    return session


def test_five_and_twenty(story):
    """A08: the last chosen token has no K and V yet, so 5 + 20 - 1 positions."""
    session = go(Session(story, FIVE), 20)
    run = session.run
    assert (run.P, len(run.new_ids), len(run.ids)) == (5, 20, 25)
    assert run.length == 24
    assert sum(s.rows for s in run.steps) == 24
    assert sum(s.twin.rows for s in run.steps) == 290
    per_token = {"story-gpt2": 12_288, "story-llama": 3_072}[story.facts.name]
    assert run.steps[-1].kv_bytes == 24 * per_token
    assert story.facts.kv_bytes_per_token == per_token
    hkv = {"story-gpt2": 8, "story-llama": 2}[story.facts.name]
    assert run.steps[-1].kv_shape == (6, 2, 1, hkv, 24, 32)
    assert run.steps[-1].kv_tensors == 12
    assert run.compared


def test_one_new_token_leaves_the_prompt_in_the_cache(story_gpt2):
    run = go(Session(story_gpt2, FIVE), 1).run
    assert run.length == 5
    assert len(run.new_ids) == 1


def test_gpt2_small_five_and_twelve(random_small):
    """24 tensors of 49,152 bytes."""
    run = go(Session(random_small, FIVE), 12).run
    assert run.P == 5
    assert run.length == 16
    last = run.steps[-1]
    assert last.kv_tensors == 24
    assert last.kv_shape == (12, 2, 1, 12, 16, 64)
    assert last.kv_bytes == 24 * 49_152 == 1_179_648
    assert sum(s.twin.rows for s in run.steps) == 126
    assert sum(s.rows for s in run.steps) == 16
    assert random_small.facts.parameters == 124_439_808
    assert random_small.facts.random_weights
    assert all(p.verdict == "holds" for s in run.steps for p in s.proofs)


def test_gpt2_small_five_and_twenty(random_small):
    """A08: 24 positions of 73,728 bytes, each its own 2·12·12·64·4."""
    assert random_small.facts.kv_bytes_per_token == 2 * 12 * 12 * 64 * 4 == 73_728
    run = Session(random_small, FIVE, compare=False, capture=False).advance(20)
    assert run.length == 24
    assert run.steps[-1].kv_bytes == 1_769_472


def test_steps_of_a_run(tiny_gpt2):
    """A07, A09: a square once, rows afterwards; one token at the next position goes in."""
    run = go(Session(tiny_gpt2, "Hey, are you conscious?"), 4).run
    assert run.P == 6
    assert [s.attention.shape for s in run.steps] == [(12, 12, 6, 6), (12, 12, 1, 7), (12, 12, 1, 8), (12, 12, 1, 9)]
    assert [s.phase for s in run.steps] == ["prefill", "decode", "decode", "decode"]
    assert [s.ids.shape for s in run.steps] == [(6,), (1,), (1,), (1,)]
    assert [s.positions.tolist() for s in run.steps] == [[0, 1, 2, 3, 4, 5], [6], [7], [8]]
    assert [(s.length_before, s.length_after) for s in run.steps] == [(0, 6), (6, 7), (7, 8), (8, 9)]
    assert [s.ids[0] for s in run.steps[1:]] == [s.chosen for s in run.steps[:-1]]
    assert run.steps[1].kv_shape == (12, 2, 1, 12, 7, 2)
    assert run.steps[0].predictions.shape == run.steps[0].prediction_probs.shape == (6,)
    assert run.steps[1].predictions is None


def test_attention_of_generated_tokens(tiny_gpt2):
    """D10: P = 6, N = 5. Generated token 3 is a query one pass after it was chosen; the last never was."""
    run = go(Session(tiny_gpt2, "Hey, are you conscious?"), 5).run
    row = run.attention_row(0, 0, position=6 + 3 - 1)
    assert row.shape == (9,)
    np.testing.assert_allclose(row.astype(float).sum(), 1, atol=3e-3)
    with pytest.raises(IndexError, match="position 10 has not been fed"):
        run.attention_row(0, 0, position=10)


def test_equal_over_two_hundred_tokens(story):
    session = go(Session(story, TALE), 200)
    run, twins = session.run, [s.twin for s in session.run.steps]
    assert all(t.same_token and t.chosen == s.chosen for t, s in zip(twins, run.steps, strict=True))
    assert max(t.max_abs_dlogit for t in twins) <= 1e-3
    assert max(t.max_abs_dlogit for t in twins) > 0  # two different computations, or the proof proves nothing
    assert all(p.verdict == "holds" for s in run.steps for p in s.proofs)
    assert [p.name for p in run.steps[-1].proofs] == ["tokens", "logits", "same_kv", "length", "bytes"]


def test_the_twin_alone_chooses_the_same_tokens(story):
    cached = go(Session(story, TALE, compare=False), 40).run
    session = Session(story, TALE)
    alone = list(session.generate_without_cache(40))
    assert [s.chosen for s in alone] == cached.new_ids.tolist()
    assert [s.rows for s in alone] == list(range(9, 49))
    assert alone[-1].kv_bytes == alone[-1].kv_tensors == alone[-1].length_after == 0
    assert alone[-1].attention.shape == (6, 8, 48, 48)
    assert not session.run.steps  # its own records, not the session's


@pytest.mark.parametrize("model", ["story-gpt2", "story-llama"])
def test_a_run_against_generate(model, story_gpt2, story_llama):
    """transformers' own loop, cache and eager attention, from the same weights."""
    from transformers import AutoModelForCausalLM

    mine = {"story-gpt2": story_gpt2, "story-llama": story_llama}[model]
    other = AutoModelForCausalLM.from_pretrained(BUILTIN / model, dtype=torch.float32, attn_implementation="eager")
    run = go(Session(mine, TALE), 30).run
    out = other.eval().generate(
        torch.tensor([run.prompt_ids.tolist()]),
        attention_mask=torch.ones(1, 9, dtype=torch.long),
        max_new_tokens=30,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_attentions=True,
        return_dict_in_generate=True,
    )
    assert out.sequences[0].tolist() == run.ids.tolist()
    for step, layers in zip(run.steps, out.attentions, strict=True):
        for mine_weights, theirs in zip(step.attention, layers, strict=True):
            assert theirs.shape == (1, *mine_weights.shape)
            np.testing.assert_allclose(mine_weights, theirs[0].detach().numpy(), atol=1e-3)


def test_sampling_against_generate(story_gpt2):
    """The same seed draws the same tokens as transformers' own sampling."""
    from transformers import AutoModelForCausalLM

    other = AutoModelForCausalLM.from_pretrained(BUILTIN / "story-gpt2", dtype=torch.float32)
    run = go(Session(story_gpt2, TALE, Sampling(temperature=0.8, top_k=20, top_p=0.9, seed=7)), 30).run
    with torch.random.fork_rng():
        torch.manual_seed(7)
        out = other.eval().generate(
            torch.tensor([run.prompt_ids.tolist()]),
            attention_mask=torch.ones(1, 9, dtype=torch.long),
            max_new_tokens=30,
            do_sample=True,
            temperature=0.8,
            top_k=20,
            top_p=0.9,
            eos_token_id=None,
            pad_token_id=0,
        )
    assert out[0].tolist() == run.ids.tolist()


def test_sampled_runs_agree_with_their_twin(story):
    run = go(Session(story, TALE, Sampling(temperature=0.9, top_k=20, seed=3)), 60).run
    assert all(s.twin.same_token for s in run.steps)
    again = go(Session(story, TALE, Sampling(temperature=0.9, top_k=20, seed=3), compare=False), 60).run
    assert again.new_ids.tolist() == run.new_ids.tolist()  # comparing draws nothing from the run's generator
    other = go(Session(story, TALE, Sampling(temperature=0.9, top_k=20, seed=4), compare=False), 60).run
    assert other.new_ids.tolist() != run.new_ids.tolist()


def test_the_second_run_of_a_prompt_is_the_first(story_gpt2):
    """A10: nothing of a run lives on in the next, nor do records change while the cache grows."""
    session = Session(story_gpt2, FIVE)
    session.advance(4)
    third = session.run.steps[3]
    before = {n: np.array(a) for n, a in vars(third).items() if isinstance(a, np.ndarray)}
    session.advance(11)
    assert third.length_after == 8
    assert session.run.steps[10].length_after == 15
    assert session.run.steps[3].kv_shape[4] == 8
    assert all(np.array_equal(before[n], getattr(third, n)) for n in before)
    second = Session(story_gpt2, FIVE).advance(11)
    assert second.key != session.run.key
    assert second.length == 15
    for one, two in zip(session.run.steps, second.steps, strict=True):
        for name, value in vars(one).items():
            if name not in ("ms", "twin"):
                assert np.array_equal(value, getattr(two, name)), name


def test_records_are_copies(story_gpt2):
    session = go(Session(story_gpt2, FIVE), 3)
    step = session.run.steps[-1]
    k = step.k.copy()
    with torch.inference_mode():
        for tensor in cache_api.tensors(session._cache):
            tensor.fill_(7)
    assert np.array_equal(step.k, k)
    with pytest.raises(ValueError, match="read-only"):
        step.k[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        step.chosen = 1


def test_records_put_together_are_the_cache(story):
    session = go(Session(story, TALE), 12)
    run = session.run
    for layer in range(6):
        K, V = cache_api.layer(session._cache, layer)
        for head in range(K.shape[1]):
            np.testing.assert_array_equal(run.keys(layer, head, 11), K[0, head].half().numpy())
            np.testing.assert_array_equal(run.values(layer, head, 11), V[0, head].half().numpy())


def test_predictions_are_those_of_shorter_prompts(story):
    """Position i's prediction is what the model would say to the first i + 1 tokens alone."""
    ids = story.encode(TALE)
    first = Session(story, TALE).prefill()
    assert first.predictions[-1] == first.chosen
    assert first.prediction_probs[-1] == pytest.approx(first.chosen_prob, rel=1e-4)
    assert first.positions.tolist() == list(range(9))
    for n in (1, 4, 8):
        text = b"".join(story.piece(i) for i in ids[:n]).decode()
        assert story.encode(text) == ids[:n]
        alone = Session(story, text).prefill()
        assert alone.chosen == first.predictions[n - 1]
        assert alone.chosen_prob == pytest.approx(float(first.prediction_probs[n - 1]), rel=1e-3)


def test_candidates(story_gpt2):
    step = Session(story_gpt2, TALE).prefill()
    assert len(step.top_ids) == len(step.top_probs) == 10
    assert step.top_ids[0] == step.chosen
    assert step.top_probs[0] == pytest.approx(step.chosen_prob)
    assert (np.diff(step.top_probs) <= 0).all()
    assert 0 < step.top_probs.sum() < 1


def test_compare_can_be_switched_between_steps(story_gpt2):
    session = Session(story_gpt2, TALE, compare=False)
    assert session.prefill().twin is None
    assert not session.run.compared
    session.compare = True
    step = session.decode_one_token()
    assert step.twin.same_token
    assert step.twin.rows == 10
    assert not session.run.compared  # not every pass has its twin
    session.compare = False
    assert [p.name for p in session.decode_one_token().proofs] == ["length", "bytes"]
    reference = Session(story_gpt2, TALE).advance(3)
    assert session.run.new_ids.tolist() == reference.new_ids.tolist()


def test_without_capture_only_the_arrays_are_missing(story_gpt2):
    full = go(Session(story_gpt2, TALE), 5).run
    bare = go(Session(story_gpt2, TALE, capture=False), 5).run
    assert bare.new_ids.tolist() == full.new_ids.tolist()
    assert bare.steps[4].kv_bytes == full.steps[4].kv_bytes
    assert bare.steps[4].attention.size == bare.steps[4].k.size == 0
    assert bare.steps[4].twin.same_token
    assert bare.nbytes < 2000 < full.nbytes


def test_end_of_text_is_marked_and_passed(story_gpt2, monkeypatch):
    run = go(Session(story_gpt2, TALE), 3).run
    ended = dataclasses.replace(story_gpt2.facts, eos_id=int(run.new_ids[1]))
    monkeypatch.setattr(story_gpt2, "facts", ended)
    again = go(Session(story_gpt2, TALE), 6).run
    assert [s.is_end for s in again.steps[:3]] == [False, True, False]
    assert len(again.steps) == 6


def test_a_prompt_that_spells_end_of_text_runs_on(story_gpt2):
    """B08: several literal tokens, and the run does not stop for them."""
    run = go(Session(story_gpt2, "Hello<|endoftext|>world"), 3).run
    assert 4095 not in run.prompt_ids
    assert len(run.steps) == 3


@pytest.mark.parametrize("prompt", [" ", "\n", "hello ", "\t\tx"])
def test_blank_prompts_are_prompts(tiny_gpt2, prompt):
    """B11, B13: nothing is stripped, and one blank is one token."""
    ids = {" ": [220], "\n": [198], "hello ": [31373, 220], "\t\tx": [197, 197, 87]}[prompt]
    run = go(Session(tiny_gpt2, prompt), 2).run
    assert run.prompt_ids.tolist() == ids
    assert run.length == len(ids) + 1


def test_sampling_out_of_range_is_refused(story_gpt2):
    nan = float("nan")
    for bad in ({"temperature": -1}, {"temperature": nan}, {"temperature": 1e-40}, {"top_p": 0}, {"top_k": -1}):
        with pytest.raises(Refusal) as refusal:
            Session(story_gpt2, "a", Sampling(**{"temperature": 1.0, **bad}))
        assert refusal.value.code == "bad_sampling"
        assert refusal.value.values["setting"] in bad
    for seed in (-1, 2**63):
        with pytest.raises(Refusal, match="seed"):
            Session(story_gpt2, "a", Sampling(temperature=1.0, seed=seed))


def test_advance_stops_between_tokens_and_goes_on(story_gpt2):
    session, asked = Session(story_gpt2, TALE), []

    def after_five() -> bool:
        asked.append(len(session.run.steps))
        return len(session.run.steps) == 5

    assert len(session.advance(50, stop=after_five).steps) == 5
    assert asked == [0, 1, 2, 3, 4, 5]
    assert len(session.advance(5).steps) == 5  # an absolute target: nothing left to do
    assert session.advance(12).new_ids.tolist() == Session(story_gpt2, TALE).advance(12).new_ids.tolist()


def test_five_hurried_threads_make_exactly_five_steps(story_gpt2):
    from concurrent.futures import ThreadPoolExecutor

    session = Session(story_gpt2, TALE)
    session.prefill()
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda _: session.decode_one_token(), range(5)))
    assert session.run.length == 14
    assert [s.index for s in session.run.steps] == [0, 1, 2, 3, 4, 5]
    assert session.run.new_ids.tolist() == Session(story_gpt2, TALE).advance(6).new_ids.tolist()


def test_two_sessions_on_one_model_do_not_disturb_each_other(story_gpt2):
    wanted = [Session(story_gpt2, p).advance(8).new_ids.tolist() for p in (TALE, FIVE)]
    one, two = Session(story_gpt2, TALE), Session(story_gpt2, FIVE)
    for n in range(1, 9):
        one.advance(n)
        two.advance(n)
    assert [one.run.new_ids.tolist(), two.run.new_ids.tolist()] == wanted


def test_order_of_calls(story_gpt2):
    session = Session(story_gpt2, TALE)
    with pytest.raises(RuntimeError, match="prefill comes first"):
        session.decode_one_token()
    session.prefill()
    with pytest.raises(RuntimeError, match="new session"):
        session.prefill()


def test_no_deprecated_call(story):
    """A13: what transformers is about to remove must not be in use."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = Session(story, TALE)
        lengths = [s.length_after for s in session.advance(5).steps]
    assert lengths == [9, 10, 11, 12, 13]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.9, 0, 1.0, 5)], ids=["greedy", "sampled"])
def test_passes_taken_back_are_as_if_they_had_never_been(story, sampling):
    straight, back = (Session(story, "The king", sampling, compare=False) for _ in range(2))
    wanted = straight.advance(9)
    back.advance(7)
    kept = back.rewind(4)
    assert len(kept.steps) == 4 and kept.length == back.run.length == kept.P + 3
    back.compare = True
    got = back.advance(9)
    assert got.new_ids.tolist() == wanted.new_ids.tolist()
    assert [s.kv_shape for s in got.steps] == [s.kv_shape for s in wanted.steps]
    assert [s.kv_bytes for s in got.steps] == [s.kv_bytes for s in wanted.steps]
    assert [s.twin is not None for s in got.steps] == [False] * 4 + [True] * 5
    for a, b in zip(got.steps, wanted.steps, strict=True):
        assert np.abs(a.k.astype(float) - b.k).max() <= 1e-2  # float16 of a record
    assert all(s.twin.max_abs_dlogit <= 1e-3 for s in got.steps[4:])


def test_prefill_and_old_passes_can_not_be_taken_back(story):
    session = Session(story, "The king", compare=False)
    session.advance(40)
    with pytest.raises(ValueError, match="40 of 40"):
        session.rewind(0)
    with pytest.raises(ValueError, match="33 of 40"):
        session.rewind(7)
    assert session.rewind(45) is session.run
    assert len(session.run.steps) == 40
