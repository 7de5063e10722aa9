"""The weights that are shown, against NumPy and by their own properties."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from kvviz.core.refusal import Refusal
from kvviz.engine import Session, attention, cache_api, masks
from kvviz.engine import feed as passes
from kvviz.models.catalog import BUILTIN
from tests.unit import numpy_models

TALE = "Dorothy and the Tin Woodman"


@pytest.mark.parametrize("name", ["story-gpt2", "story-llama"])
def test_everything_against_numpy(name, story_gpt2, story_llama):
    """Weights, K, V, predictions and chosen token of a run, from a forward pass written out by hand."""
    model = {"story-gpt2": story_gpt2, "story-llama": story_llama}[name]
    run = Session(model, TALE).advance(6)
    fed = run.ids[:-1].tolist()
    seen = getattr(numpy_models, name.removeprefix("story-"))(BUILTIN / name, fed)
    best = seen.logits.argmax(-1)
    assert best[8:].tolist() == run.new_ids.tolist()
    assert best[:9].tolist() == run.steps[0].predictions.tolist()
    for layer in range(6):
        for head in range(8):
            for position in range(14):
                row = run.attention_row(layer, head, position)
                np.testing.assert_allclose(row, seen.attention[layer][head, position, : position + 1], atol=1e-3)
        for head in range(model.facts.kv_heads):
            np.testing.assert_allclose(run.keys(layer, head, 5), seen.keys[layer][head], atol=2e-2, rtol=1e-3)
            np.testing.assert_allclose(run.values(layer, head, 5), seen.values[layer][head], atol=2e-2, rtol=1e-3)
    shifted = seen.logits - seen.logits.max(-1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    for step in run.steps:
        row = probabilities[step.length_after - 1]
        np.testing.assert_allclose(step.top_probs, row[step.top_ids], rtol=2e-3)
        np.testing.assert_allclose(step.chosen_prob, row[step.chosen], rtol=2e-3)


def test_masks():
    assert masks.causal(3, 3)[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert masks.causal(1, 5)[0, 0].int().tolist() == [[1, 1, 1, 1, 1]]
    chunk = masks.causal(4, 9)[0, 0]  # A21: the second chunk of 5 + 4 + 3
    assert chunk.shape == (4, 9)
    assert chunk.sum(-1).tolist() == [6, 7, 8, 9]
    assert masks.causal(4, 4).sum() == 10  # 10 visible of 16
    for Tq, T in ((0, 3), (4, 3)):
        with pytest.raises(ValueError, match="cannot be the last"):
            masks.causal(Tq, T)


def test_weights_are_causal_and_whole(story):
    """A28: 9 tokens, every layer and head, in the model's own precision."""
    ids = story.encode(TALE)
    attention.install(story)
    done = passes.run_pass(story, ids, 0, None, listen=True)
    assert [c.layer for c in done.layers] == list(range(6))
    for capture in done.layers:
        assert capture.q.shape == (1, 8, 9, 32)
        assert capture.k.shape == capture.v.shape == (1, story.facts.kv_heads, 9, 32)
        assert capture.mask.shape == (1, 1, 9, 9)
        w = attention.weights(capture)
        assert w.shape == (8, 9, 9)
        assert w.dtype == torch.float32
        assert (w.triu(1) == 0).all()  # exactly
        assert (w.sum(-1) - 1).abs().max() <= 1e-5
        assert torch.equal(w[:, 0], torch.eye(9)[0].expand(8, 9))


def test_captured_shapes_of_a_decode_step(tiny_gpt2):
    """D02: at step 3 of five prompt tokens Q has one row, K and V have eight."""
    ids, cache = [464, 3139, 286, 4881, 318], cache_api.new_cache()
    attention.install(tiny_gpt2)
    for n, (fed, start) in enumerate([(ids, 0), ([1], 5), ([2], 6), ([3], 7)]):
        done = passes.run_pass(tiny_gpt2, fed, start, cache, listen=True)
        if n == 3:
            assert [tuple(c.q.shape) for c in done.layers] == [(1, 12, 1, 2)] * 12
            assert [tuple(c.k.shape) for c in done.layers] == [(1, 12, 8, 2)] * 12


def test_a_missing_mask_is_still_causal(story_gpt2):
    """The fallback of the fallback: transformers hands the function no mask at all."""
    q = torch.randn(1, 8, 5, 32, generator=torch.Generator().manual_seed(0))
    layer = story_gpt2.module.transformer.h[0].attn
    out, _ = attention._attention(layer, q, q, q, None, scaling=0.2)
    first, _ = attention._attention(layer, q[:, :, :1], q[:, :, :1], q[:, :, :1], None, scaling=0.2)
    torch.testing.assert_close(out[:, :1], first)
    last, _ = attention._attention(layer, q[:, :, 4:], q, q, None, scaling=0.2)  # one query sees all five
    torch.testing.assert_close(out[:, 4:], last)


def test_scores_it_would_get_wrong_are_refused(story_gpt2):
    q = torch.zeros(1, 8, 1, 32)
    with pytest.raises(Refusal) as refusal:
        attention._attention(story_gpt2.module.transformer.h[0].attn, q, q, q, None, softcap=30.0)
    assert refusal.value.code == "not_supported"


def test_chunked_prefill_is_prefill(story):
    """A21: 12 tokens in chunks of 5, 4 and 3."""
    ids = story.encode("Once upon a time there lived a poor man and his")[:12]
    assert len(ids) == 12
    attention.install(story)
    whole = passes.run_pass(story, ids, 0, None, listen=False)
    cache = cache_api.new_cache()
    for start, stop in ((0, 5), (5, 9), (9, 12)):
        part = passes.run_pass(story, ids[start:stop], start, cache, listen=False)
    assert cache_api.length(cache) == 12
    assert (whole.logits - part.logits).abs().max() <= 1e-3


def test_listening_ends_with_its_block_and_stays_in_its_thread(story_gpt2):
    from concurrent.futures import ThreadPoolExecutor

    attention.install(story_gpt2)
    with attention.listening() as sink:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(passes.run_pass, story_gpt2, [1, 2], 0, None, listen=False).result()
        assert sink.layers == []
    assert passes.run_pass(story_gpt2, [1, 2], 0, None, listen=False).layers == []


def test_one_row_is_the_last_row_of_the_square(story):
    """A decode step's weights take another way through the code; both must give the same."""
    ids = story.encode(TALE)
    attention.install(story)
    cache = cache_api.new_cache()
    passes.run_pass(story, ids[:-1], 0, cache, listen=False)
    step = passes.run_pass(story, ids[-1:], 8, cache, listen=True)
    shown = attention.to_arrays(step.layers)[0]  # (L, H, 1, T)
    assert shown.shape == (6, 8, 1, 9)
    square = passes.run_pass(story, ids, 0, None, listen=True)
    for row, one, whole in zip(shown, step.layers, square.layers, strict=True):
        np.testing.assert_allclose(row, attention.weights(one).numpy(), atol=5e-4)
        np.testing.assert_allclose(row[:, 0], attention.weights(whole)[:, -1].numpy(), atol=5e-4)
    hidden = step.layers[0].mask.clone()
    hidden[..., 3] = False  # a mask that hides a key in between
    masked = [dataclasses.replace(c, mask=hidden) for c in step.layers]
    shown = attention.to_arrays(masked)[0]
    assert (shown[..., 3] == 0).all()
    for row, one in zip(shown, masked, strict=True):
        np.testing.assert_allclose(row, attention.weights(one).numpy(), atol=5e-4)


def test_float16_copies_do_not_overflow():
    copied = attention.as_half(torch.tensor([1e9, -1e9, 0.5]))
    assert copied.tolist() == [65504.0, -65504.0, 0.5]
    half = torch.ones(2, dtype=torch.float16)
    copied = attention.as_half(half)
    half.zero_()
    assert copied.tolist() == [1.0, 1.0]
