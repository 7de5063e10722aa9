"""Folders that kvviz declines: each with a sentence that names what is in the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import transformers

from kvviz.engine import Session, load
from kvviz.models import catalog
from tests.unit.conftest import refused, write_tiny_gpt2
from tests.unit.families import FAMILIES, write


@pytest.fixture
def folder(tmp_path):
    """A tiny GPT-2 that loads, ready to be spoiled."""
    write_tiny_gpt2(tmp_path / "spoiled", layers=1, heads=2, width=4)
    return tmp_path / "spoiled"


def configured(folder: Path, **changes: object) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def says(folder: Path, code: str, *named: str) -> None:
    """Loading is refused, by `code`, in a sentence that names each of `named`."""
    sentence = str(refused(code, load, catalog.name_owner_folder(folder, default=False), device="cpu"))
    for name in named:
        assert name in sentence


SMALL = {"vocab_size": 100, "hidden_size": 40}  # the weights at hand would do for it
OTHERS = {  # transformers' config class -> architecture, what it is refused as, the name in the sentence
    "BertConfig": ("BertModel", "not_a_decoder", "BertModel"),
    "RobertaConfig": ("RobertaForMaskedLM", "not_a_decoder", "RobertaForMaskedLM"),
    "T5Config": ("T5ForConditionalGeneration", "not_a_decoder", "T5ForConditionalGeneration"),
    "BartConfig": ("BartForCausalLM", "not_a_decoder", "BartForCausalLM"),
    "WhisperConfig": ("WhisperForConditionalGeneration", "not_a_decoder", "Whisper"),
    "BloomConfig": ("BloomForCausalLM", "not_supported", "bloom"),
    "MptConfig": ("MptForCausalLM", "not_supported", "mpt"),
    "GPTNeoConfig": ("GPTNeoForCausalLM", "not_supported", "gpt_neo"),
    "XGLMConfig": ("XGLMForCausalLM", "not_supported", "xglm"),
    "MambaConfig": ("MambaForCausalLM", "recurrent", "MambaForCausalLM"),
    "Mamba2Config": ("Mamba2ForCausalLM", "recurrent", "Mamba2ForCausalLM"),
    "RecurrentGemmaConfig": ("RecurrentGemmaForCausalLM", "recurrent", "RecurrentGemmaForCausalLM"),
    "JambaConfig": ("JambaForCausalLM", "recurrent", "JambaForCausalLM"),
    "FalconH1Config": ("FalconH1ForCausalLM", "recurrent", "FalconH1ForCausalLM"),
    "Qwen3NextConfig": ("Qwen3NextForCausalLM", "recurrent", "Qwen3NextForCausalLM"),
    "Llama4TextConfig": ("Llama4ForCausalLM", "not_supported", "llama4"),
}


@pytest.mark.parametrize("config_class", OTHERS)
def test_families_that_hold_no_plain_cache(folder, config_class):
    architecture, code, named = OTHERS[config_class]
    config = getattr(transformers, config_class)().to_dict() | {"architectures": [architecture]} | SMALL
    (folder / "config.json").write_text(json.dumps(config, default=str))
    says(folder, code, named)


@pytest.mark.parametrize("config_class", ["MambaConfig", "RecurrentGemmaConfig", "FalconH1Config"])
def test_recurrent_families_that_the_list_does_not_know(folder, config_class, monkeypatch):
    """transformers marks them, whatever they are called."""
    monkeypatch.setattr(catalog, "_RECURRENT", set())
    config = getattr(transformers, config_class)().to_dict()
    for key in ("layer_types", "layers_block_type", "block_types"):
        config.pop(key, None)
    config |= {"architectures": [config_class.replace("Config", "ForCausalLM")], "rope_theta": 10000.0} | SMALL
    (folder / "config.json").write_text(json.dumps(config, default=str))
    says(folder, "recurrent", str(folder))


def test_falcon_with_alibi(folder):
    """Its config has angles too; the switch says that they are not used."""
    config = transformers.FalconConfig(alibi=True).to_dict() | {"architectures": ["FalconForCausalLM"]}
    assert config.get("rope_parameters") or config.get("rope_theta")
    (folder / "config.json").write_text(json.dumps(config, default=str))
    says(folder, "not_supported", "falcon")


def test_a_scale_of_its_own_in_every_layer(folder):
    """GPT-2 can divide a layer's scores by its number too; the pictures know one scale for all layers."""
    says(configured(folder, scale_attn_by_inverse_layer_idx=True), "not_supported", "scale_attn_by_inverse_layer_idx")


def test_layers_named_one_by_one(tmp_path):
    """One linear or chunked layer among others is enough."""
    folder = write(tmp_path / "mixed", FAMILIES["qwen3"].config_class, FAMILIES["qwen3"].config)
    says(configured(folder, layer_types=["full_attention", "linear_attention"]), "recurrent", "Qwen3ForCausalLM")
    says(configured(folder, layer_types=["full_attention", "chunked_attention"]), "not_supported", "qwen3")
    assert load(catalog.name_owner_folder(configured(folder, layer_types=["full_attention"] * 2))).facts.layers == 2


def test_a_gemma_that_looks_both_ways(tmp_path):
    family = FAMILIES["gemma3"]
    folder = write(tmp_path / "both-ways", family.config_class, family.config)
    says(configured(folder, use_bidirectional_attention=True), "not_a_decoder", "gemma3", str(folder))


def test_attention_sinks_are_not_left_out(tmp_path):
    """gpt-oss adds a learned score to every row: weights without it would be wrong, so none are shown."""
    config = {
        "vocab_size": 4096, "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 1,
        "max_position_embeddings": 256, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }  # fmt: skip
    folder = write(tmp_path / "sinks", "GptOssConfig", config)
    model = load(catalog.name_owner_folder(folder, default=False), device="cpu")
    assert "GptOss" in str(refused("not_supported", Session(model, "a").prefill))


NONSENSE = {
    "n_layer": [0, -3, 10**9, "six", 2.5, True],
    "n_head": [0, "two", 10**12],
    "n_embd": [-4, [4]],
    "vocab_size": [0, {}],
    "n_positions": [-1, "many"],
    "sliding_window": [0, -8, "all"],
}


@pytest.mark.parametrize("key", NONSENSE)
def test_numbers_that_no_model_has(folder, key):
    right = (folder / "config.json").read_text()
    for value in NONSENSE[key]:
        says(configured(folder, **{key: value}), "folder_bad_number", str(folder), key, json.dumps(value))
        (folder / "config.json").write_text(right)
    assert load(catalog.name_owner_folder(folder, default=False)).facts.layers == 1


def test_numbers_that_do_not_go_together(folder, tmp_path):
    says(configured(folder, n_head=3), "load_failed", "spoiled")  # 4 in 3 heads
    family = FAMILIES["mistral"]
    other = write(tmp_path / "groups", family.config_class, family.config)
    says(configured(other, num_key_value_heads=3), "folder_bad_number", "num_key_value_heads", "3 (4 heads)")


def test_sizes_that_the_weights_are_too_few_for(folder):
    """Nothing of that size may be built to find out: 100 layers of 8,000 would be 300 GB of random numbers."""
    large = configured(folder, n_layer=100, n_embd=8_000)
    assert "6,802,056,000" in str(refused("weights_too_small", catalog.inspect_folder, large))
    held = (folder / "model.safetensors").stat().st_size
    says(configured(folder, n_layer=1, n_embd=4, vocab_size=held // 4), "weights_too_small", f"{held:,} bytes")


def test_shards_missing_and_cut(tmp_path):
    family = FAMILIES["llama-mha"]
    folder = write(tmp_path / "shards", family.config_class, family.config)
    name = catalog.name_owner_folder(folder, default=False)
    whole = load(name, device="cpu")
    whole.module.save_pretrained(folder, max_shard_size="300KB")
    (folder / "model.safetensors").unlink()
    shards = catalog.weight_files(folder)
    assert len(shards) > 1
    kept = shards[1].read_bytes()
    shards[1].write_bytes(kept[: len(kept) // 2])
    moved = folder.rename(tmp_path / "again")  # under another name, or the loaded one would be handed out
    says(moved, "load_failed", "again")
    (moved / shards[1].name).unlink()
    says(moved, "folder_no_weights", str(moved))
    (moved / shards[1].name).write_bytes(kept)
    again = load(catalog.name_owner_folder(moved, default=False), device="cpu")
    assert again.facts.parameters == whole.facts.parameters
    index = moved / "model.safetensors.index.json"
    elsewhere = moved.parent / shards[0].name
    elsewhere.write_bytes((moved / shards[0].name).read_bytes())
    for name in (f"../{elsewhere.name}", str(elsewhere), "", 5, None):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        refused("folder_no_weights", catalog.inspect_folder, moved)


def test_a_weight_file_of_something_else(folder):
    for content in (b"not safetensors at all", b"\xff" * 64, (2**40).to_bytes(8, "little") + b"{}", bytes(8)):
        (folder / "model.safetensors").write_bytes(content + bytes(1_000_000))
        says(folder, "load_failed", "spoiled")
    (folder / "model.safetensors").write_bytes(b"")
    says(folder, "weights_too_small", "0 bytes")


def test_a_tokenizer_that_cannot_be_read(folder):
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    says(folder, "folder_no_tokenizer", str(folder))
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>")  # SentencePiece's own file alone
    says(folder, "folder_no_tokenizer", str(folder))
    for content in ("", "{", "[]", '{"version": "1.0"}', '{"model": {"type": "Magic"}}'):
        (folder / "tokenizer.json").write_text(content)
        says(folder, "load_failed", "spoiled")
    shutil.copy(catalog.BUILTIN / "story-gpt2" / "tokenizer.json", folder)
    assert load(catalog.name_owner_folder(folder, default=False)).encode("a")


def test_a_config_that_cannot_be_read(folder):
    for content in (b"", b"{", b"\xff\xfe\x00", b"null", b'"text"', b"[" * 100_000):
        (folder / "config.json").write_bytes(content)
        says(folder, "folder_no_config", str(folder))
