"""Families of models from a folder, each against transformers' own eager attention, masks and cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.engine import Session, attention, cache_api, load, masks
from kvviz.engine import feed as passes
from kvviz.engine.proofs import EXACT
from kvviz.figures.attention import row_values, square_values
from kvviz.models import catalog, loading
from kvviz.player import message
from kvviz.theory.memory import kv_bytes
from tests.unit.conftest import refused
from tests.unit.families import FAMILIES, write

TALE = "Once upon a time there lived a poor man and his"
WINDOWED = [name for name, f in FAMILIES.items() if f.windows]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Name -> folder, written once."""
    root, made = tmp_path_factory.mktemp("families"), {}

    def folder(name: str):
        if name not in made:
            made[name] = write(root / name, FAMILIES[name].config_class, FAMILIES[name].config)
        return made[name]

    return folder


def read(folder):
    return load(catalog.name_owner_folder(folder, default=False), device="cpu")


def theirs(folder):
    """A second object from the same files, with transformers' eager attention."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_facts_from_paper(name, folders):
    wanted, f = FAMILIES[name], read(folders(name)).facts
    assert (f.layers, f.heads, f.kv_heads, f.head_dim) == (
        wanted.layers, wanted.heads, wanted.kv_heads, wanted.head_dim
    )  # fmt: skip
    assert (f.width, f.vocab_size, f.positions) == (32, 4096, wanted.positions)
    learned = wanted.positions == "learned"
    assert (f.trained_positions, f.max_positions) == ((64, 64) if learned else (256, 1024))
    assert f.parameters == wanted.parameters
    assert catalog.entry(f.name).parameters == wanted.parameters  # known before it is loaded
    assert f.weight_bytes == 4 * wanted.parameters
    assert f.attention_scale == pytest.approx(wanted.scale or wanted.head_dim**-0.5)
    assert f.windows == wanted.windows
    entry = catalog.entry(f.name)
    assert (entry.positions, entry.trained_positions, entry.on_disk) == (f.positions, f.trained_positions, True)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_against_transformers(name, folders):
    """Past every window: tokens, weights and the passes' own proofs, from a second object's eager attention."""
    folder, wanted = folders(name), FAMILIES[name]
    model, other = read(folder), theirs(folder)
    run = Session(model, TALE).advance(16)
    T = run.length
    assert (run.P, T) == (12, 27)
    assert len(set(run.new_ids.tolist())) > 3  # no dull repetition that anything would give
    assert all(s.twin.same_token for s in run.steps)
    assert max(s.twin.max_abs_dlogit for s in run.steps) <= EXACT
    assert all(p.verdict == "holds" for s in run.steps for p in s.proofs)
    for step in run.steps:
        assert step.kv_shape == (wanted.layers, 2, 1, wanted.kv_heads, step.length_after, wanted.head_dim)
        assert step.kv_bytes == 2 * wanted.layers * wanted.kv_heads * wanted.head_dim * step.length_after * 4
        assert step.kv_bytes == kv_bytes(wanted.layers, wanted.kv_heads, wanted.head_dim, step.length_after, 4)
    out = other.generate(
        torch.tensor([run.prompt_ids.tolist()]),
        attention_mask=torch.ones(1, 12, dtype=torch.long),
        max_new_tokens=16,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert out[0].tolist() == run.ids.tolist()
    with torch.no_grad():
        seen = other(torch.tensor([run.ids[:-1].tolist()]), output_attentions=True)
    assert seen.logits[0, 11:].argmax(-1).tolist() == run.new_ids.tolist()
    assert seen.logits[0, :12].argmax(-1).tolist() == run.steps[0].predictions.tolist()
    for layer, square in enumerate(seen.attentions):
        for position in range(T):
            for head in range(wanted.heads):
                row = run.attention_row(layer, head, position)
                np.testing.assert_allclose(row, square[0, head, position, : position + 1].numpy(), atol=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_chunked_prefill_is_prefill(name, folders):
    """A21 for every family: 5 + 4 + 3 give the logits, K and V of 12 at once."""
    model = read(folders(name))
    attention.install(model)
    ids = model.encode(TALE)
    whole, chunks = cache_api.new_cache(), cache_api.new_cache()
    once = passes.run_pass(model, ids, 0, whole, listen=True)
    for start, stop in ((0, 5), (5, 9), (9, 12)):
        part = passes.run_pass(model, ids[start:stop], start, chunks, listen=True)
        assert [c.mask.shape[-2:] for c in part.layers] == [(stop - start, stop)] * model.facts.layers
    assert (once.logits - part.logits).abs().max() <= EXACT
    for layer in range(model.facts.layers):
        for one, other in zip(cache_api.layer(whole, layer), cache_api.layer(chunks, layer), strict=True):
            assert one.shape == other.shape
            assert (one - other).abs().max() <= 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_the_scale_is_the_one_that_layers_use(name, folders):
    model = read(folders(name))
    attention.install(model)
    scales = [c.scale for c in passes.run_pass(model, [1, 2], 0, None, listen=True).layers]
    assert scales == pytest.approx([model.facts.attention_scale] * model.facts.layers)


@pytest.mark.parametrize("name", WINDOWED)
def test_a_window_hides_and_forgets_nothing(name, folders):
    """Storage is not attention: 60 positions stored in every layer, 8 of them seen in a layer with a window."""
    model, windows = read(folders(name)), FAMILIES[name].windows
    session = Session(model, TALE)
    assert session.room == 1024 - 12 + 1  # the window does not end the run
    run = session.advance(49)
    assert run.length == 60
    assert all(p.verdict == "holds" for s in run.steps for p in s.proofs)
    for layer, window in enumerate(windows):
        K, V = cache_api.layer(session._cache, layer)
        assert K.shape == V.shape == (1, model.facts.kv_heads, 60, model.facts.head_dim)
        for position in (3, 7, 8, 11, 12, 30, 59):
            row = run.attention_row(layer, 0, position)
            first = max(0, position - window + 1) if window else 0
            assert model.facts.visible(layer, position) == position + 1 - first
            assert (row[:first] == 0).all()  # exactly
            assert (row[first:] > 0).sum() > (position + 1 - first) // 2
            assert row.astype(np.float32).sum() == pytest.approx(1, abs=3e-3)


def test_hidden_cells_of_a_real_model_from_paper(folders):
    """12 tokens: 12 · 11 / 2 = 66 cells look ahead; through a window of 8, rows 8 to 11 hide 1 + 2 + 3 + 4 more."""
    run = Session(read(folders("qwen2")), TALE).advance(3)
    zeros = [int((run.steps[0].attention[layer, 0] == 0).sum()) for layer in range(4)]
    assert zeros == [66, 66, 76, 76]
    for layer, masked in enumerate(("66", "66", "76", "76")):
        values = square_values(run, 0, layer, 0)
        assert (values["masked"], values["later"], values["cells"]) == (masked, "66", "144")
        assert values["outside"] == ("10" if layer > 1 else "0")
    assert [row_values(run, 2, layer, 0)["unseen"] for layer in range(4)] == [0, 0, 6, 6]  # 14 stored
    header = message.build(run, message.Have(), message.Focus(), {})
    assert b'"windows":[0,0,8,8]' in header


@pytest.mark.parametrize("name", WINDOWED)
@torch.inference_mode()
def test_masks_are_those_of_transformers(name, folders):
    """What each layer of the eager model is handed, written down on its way in."""
    folder, seen = folders(name), {}
    other, model = theirs(folder), read(folder)

    def note(module, _args, kwargs):
        seen[module.layer_idx] = kwargs["attention_mask"]

    for part in other.modules():
        if hasattr(part, "scaling") and hasattr(part, "layer_idx"):
            part.register_forward_pre_hook(note, with_kwargs=True)
    other(torch.tensor([list(range(1, 21))]))
    attention.install(model)
    done = passes.run_pass(model, list(range(1, 21)), 0, None, listen=True)
    assert sorted(seen) == list(range(model.facts.layers))
    for capture in done.layers:
        assert torch.equal(capture.mask[0, 0], seen[capture.layer][0, 0] == 0)


def test_window_masks():
    assert masks.window(4, 4, 2)[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert masks.window(1, 5, 3)[0, 0].int().tolist() == [[0, 0, 1, 1, 1]]
    assert masks.window(2, 5, 3)[0, 0].int().tolist() == [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]
    assert torch.equal(masks.window(4, 9, 9), masks.causal(4, 9))
    with pytest.raises(ValueError, match="nothing is seen"):
        masks.window(1, 5, 0)
    layers = masks.by_layer((0, 3, 0), 2, 5)
    assert layers[0] is layers[2]
    assert torch.equal(layers[0], masks.causal(2, 5))
    kinds = masks.by_kind((0, 3, 0), layers)
    assert kinds["full_attention"] is layers[0]
    assert kinds["sliding_attention"] is layers[1]
    assert masks.by_kind((3, 3), masks.by_layer((3, 3), 2, 5)).shape == (1, 1, 2, 5)


def test_a_mixed_model_that_takes_one_mask_only_ends_at_its_window(tmp_path, monkeypatch):
    """Where a mask for each kind cannot be handed in, nothing may slide: the run ends there."""
    folder = write(tmp_path / "one-mask", FAMILIES["qwen2"].config_class, FAMILIES["qwen2"].config)
    monkeypatch.setattr(loading, "_takes_masks_by_kind", lambda module: False)
    model = read(folder)
    assert (model.facts.windows, model.facts.max_positions) == ((), 8)
    run = Session(model, "Once upon a time").advance(20)
    assert run.length == 8
    assert all(p.verdict == "holds" for s in run.steps for p in s.proofs)


@pytest.mark.parametrize("name", ["mistral", "gemma3"])
def test_a_model_that_slides_otherwise_than_the_facts_say_is_refused(name, folders, monkeypatch):
    """A window that a layer names when it is called, and that its config was not read for."""
    import dataclasses

    model = read(folders(name))
    monkeypatch.setattr(model, "facts", dataclasses.replace(model.facts, windows=()))
    attention.install(model)
    passes.run_pass(model, [1] * 8, 0, None, listen=True)  # up to the window there is no difference
    refused("not_supported", passes.run_pass, model, [1] * 9, 0, None, listen=True)


def test_a_dynamic_scale_of_angles_still_ends_the_run(tmp_path):
    """Past the trained length a dynamic NTK model turns old keys otherwise than when they were stored."""
    config = FAMILIES["llama-mqa"].config | {
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    }
    assert read(write(tmp_path / "ntk", "LlamaConfig", config)).facts.max_positions == 256
    both = {"rope_theta": 10000.0, "rope_type": "default"}
    config = FAMILIES["gemma3"].config | {
        "rope_parameters": {"full_attention": config["rope_parameters"], "sliding_attention": both}
    }
    assert read(write(tmp_path / "ntk3", "Gemma3TextConfig", config)).facts.max_positions == 256


def test_gemma_2_with_its_cap_is_a_sentence(tmp_path):
    config = FAMILIES["gemma2"].config | {"attn_logit_softcapping": 50.0}
    folder = write(tmp_path / "capped", "Gemma2Config", config)
    refusal = refused("not_supported", read, folder)
    assert "gemma2" in str(refusal)
