"""The one module that knows transformers' caches, on whichever version is installed."""

from __future__ import annotations

import re
import warnings

import pytest
import torch

from kvviz.engine import attention, cache_api, masks


def feed(model, cache, ids, start):
    positions = torch.arange(start, start + len(ids))[None]
    mask = masks.causal(len(ids), start + len(ids))
    with torch.inference_mode():
        return cache_api.forward(model.module, torch.tensor([ids]), positions, mask, cache)


def test_length_grows_by_exactly_one_a_step(story):
    """A13: also where forward would take a cache under the other name and ignore it."""
    attention.install(story)
    cache = cache_api.new_cache()
    assert cache_api.length(cache) == 0
    lengths = []
    for step, (ids, start) in enumerate([([5, 6, 7], 0), ([8], 3), ([9], 4), ([10], 5)]):
        logits = feed(story, cache, ids, start)
        assert logits.shape == (1, 1, 4096), step
        lengths.append(cache_api.length(cache))
    assert lengths == [3, 4, 5, 6]
    assert all(type(n) is int for n in lengths)
    assert cache_api.shape(cache) == (6, 2, 1, story.facts.kv_heads, 6, 32)
    assert len(cache_api.tensors(cache)) == 12
    assert cache_api.nbytes(cache) == 6 * story.facts.kv_bytes_per_token


def test_bytes_are_those_of_the_storages(story_gpt2):
    """A view of a larger storage holds all of it."""
    attention.install(story_gpt2)
    cache = cache_api.new_cache()
    feed(story_gpt2, cache, [1, 2, 3, 4], 0)
    assert cache_api.nbytes(cache) == 4 * 12_288
    held = cache.layers[0]
    held.keys, held.values = held.keys[:, :, :2], held.values[:, :, :2]
    assert cache_api.nbytes(cache) == 4 * 12_288
    with pytest.raises(RuntimeError, match=r"different lengths: \[2, 4\]"):
        cache_api.length(cache)
    with pytest.raises(RuntimeError, match="different shapes"):
        cache_api.shape(cache)
    cache_api.cut_back(cache, 2)
    assert cache_api.length(cache) == 2
    cache_api.cut_back(cache, 1)
    assert cache_api.nbytes(cache) == 12_288


def test_cutting_back_keeps_the_first_positions(story_gpt2):
    attention.install(story_gpt2)
    cache = cache_api.new_cache()
    feed(story_gpt2, cache, [1, 2, 3, 4, 5], 0)
    before = [t.clone() for t in cache_api.tensors(cache)]
    cache_api.cut_back(cache, 3)
    for kept, was in zip(cache_api.tensors(cache), before, strict=True):
        assert torch.equal(kept, was[:, :, :3])
    cache_api.cut_back(cache, 9)  # nothing to cut
    assert cache_api.length(cache) == 3


def test_nothing_is_kept_without_a_cache(story_gpt2):
    attention.install(story_gpt2)
    cache = cache_api.new_cache()
    feed(story_gpt2, cache, [1, 2], 0)
    feed(story_gpt2, None, [1, 2, 3], 0)
    assert cache_api.length(cache) == 2


def test_the_name_of_the_argument_is_one_that_forward_has():
    import inspect

    from transformers import GPT2LMHeadModel, LlamaForCausalLM

    for cls in (GPT2LMHeadModel, LlamaForCausalLM):
        assert cache_api.argument_name(cls) in inspect.signature(cls.forward).parameters
    with pytest.raises(TypeError, match="takes no cache"):
        cache_api.argument_name(torch.nn.Linear)


def test_the_argument_is_not_deprecated(story):
    attention.install(story)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        feed(story, cache_api.new_cache(), [1, 2], 0)


def test_no_other_module_touches_cache_classes(root):
    """A13: old names nowhere, cache classes and their argument in one place (cache designs aside)."""
    old = re.compile(
        r"\.key_cache|\.value_cache|to_legacy_cache|from_legacy_cache|\bpast_key_values\b|past_key_value\b"
    )
    classes = re.compile(r"\b(DynamicCache|StaticCache|cache_utils|EncoderDecoderCache|get_seq_length)\b|\.crop\(")
    reads_text = set((root / "kvviz/features/source/record").glob("*.py"))
    imports = re.compile(r"^\s*(import|from)\s+(torch|transformers)\b|import_module|__import__", re.MULTILINE)
    for file in sorted((root / "kvviz").rglob("*.py")):
        if file.name == "cache_api.py" or file.parent.name == "caches":
            continue
        text = file.read_text(encoding="utf-8")
        if file in reads_text:
            assert not imports.search(text), file  # it shows lines that others wrote, and can call none of them
            continue
        assert not old.search(text), file
        assert not classes.search(text), file
    adaptor = (root / "kvviz/engine/cache_api.py").read_text(encoding="utf-8")
    assert not re.search(r"\.key_cache|legacy_cache", adaptor)
