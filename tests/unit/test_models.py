"""The catalogue and loading: built-in models, a hub cache laid out by hand, folders of every wrong kind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from kvviz.engine import Session, load
from kvviz.models import catalog, device, loading
from tests.unit.conftest import refused, write_hub, write_tiny_gpt2


def test_built_in_models_are_what_the_readme_of_the_weights_says(story_gpt2, story_llama):
    g, r = story_gpt2.facts, story_llama.facts
    assert (g.layers, g.width, g.heads, g.kv_heads, g.head_dim) == (6, 256, 8, 8, 32)
    assert (r.layers, r.width, r.heads, r.kv_heads, r.head_dim) == (6, 256, 8, 2, 32)
    assert (g.positions, g.trained_positions, g.max_positions) == ("learned", 1024, 1024)
    assert (r.positions, r.trained_positions, r.max_positions) == ("rotary", 256, 1024)
    assert (g.architecture, r.architecture) == ("GPT2LMHeadModel", "LlamaForCausalLM")
    assert (g.vocab_size, g.eos_id) == (r.vocab_size, r.eos_id) == (4096, 4095)
    assert (g.parameters, r.parameters) == (6_049_792, 5_278_976)
    assert g.weight_bytes == 4 * 6_049_792
    assert not g.random_weights
    for model in (story_gpt2, story_llama):
        entry = catalog.entry(model.facts.name)
        assert (entry.parameters, entry.positions) == (model.facts.parameters, model.facts.positions)
        assert (entry.kind, entry.on_disk, entry.license) == ("builtin", True, "CC0-1.0")
        assert entry.trained_positions == model.facts.trained_positions
        assert entry.size_bytes == (entry.path / "model.safetensors").stat().st_size


def test_machine_facts(story_gpt2):
    machine = story_gpt2.machine
    assert machine.device == "cpu"
    assert machine.torch == torch.__version__
    assert machine.threads == torch.get_num_threads()
    assert machine.device_name


def test_a_cpu_has_no_allocator_figures():
    """A26: n/a, not 0 and no crash."""
    figures = device.allocator(torch.device("cpu"))
    assert (figures.allocated, figures.reserved, figures.peak) == (None, None, None)
    device.synchronize(torch.device("cpu"))
    assert device.pick("cpu") == torch.device("cpu")


def test_allocator_figures_of_a_gpu_have_their_own_names(monkeypatch):
    """The three counters that PyTorch keeps, each under its name."""
    for name, value in (("memory_allocated", 1), ("memory_reserved", 2), ("max_memory_allocated", 3)):
        monkeypatch.setattr(torch.cuda, name, lambda d, value=value: value)
    assert device.allocator(torch.device("cuda:0")) == device.Allocator(allocated=1, reserved=2, peak=3)


def test_default_without_a_hub_cache():
    assert catalog.default_name() == "story-gpt2"
    listed = {e.name: e for e in catalog.entries()}
    assert {"story-gpt2", "story-llama", "gpt2", "distilgpt2", "gpt2-medium", "gpt2-large"} <= listed.keys()
    assert not listed["gpt2"].on_disk
    assert listed["gpt2"].path is None
    assert listed["gpt2"].parameters == 124_439_808
    refusal = refused("not_on_disk", load, "gpt2")
    assert "gpt2 is not on this machine's disk" in str(refusal)


@pytest.mark.parametrize("repository", ["openai-community/gpt2", "gpt2"])
@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME"])
def test_gpt2_from_a_hub_cache(tmp_path, monkeypatch, repository, variable, outside_log):
    """A tiny GPT-2 under GPT-2's names, found as `gpt2`, loaded, the default, and run."""
    cache = tmp_path / "hub"
    monkeypatch.setenv(variable, str(cache if variable == "HF_HUB_CACHE" else tmp_path))
    snapshot = write_hub(cache, repository)
    assert catalog.hub_cache() == cache
    assert catalog.default_name() == "gpt2"
    entry = catalog.entry("gpt2")
    assert (entry.on_disk, entry.path) == (True, snapshot)
    assert entry.size_bytes == (snapshot / "model.safetensors").stat().st_size
    model = load("gpt2", device="cpu")
    assert (model.facts.name, model.facts.layers, model.facts.heads) == ("gpt2", 12, 12)
    assert model.facts.vocab_size == 50257
    run = Session(model, "The capital of France is").advance(20)
    assert run.prompt_ids.tolist() == [464, 3139, 286, 4881, 318]
    assert run.length == 24
    assert all(s.twin.same_token for s in run.steps)
    assert not outside_log.exists() or "huggingface" not in outside_log.read_text()


def test_the_main_commit_is_taken_and_an_incomplete_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = write_hub(tmp_path, "openai-community/gpt2", "b" * 40)
    other = snapshot.parent / ("a" * 40)
    shutil.copytree(snapshot, other)
    assert catalog.hub_snapshot("gpt2") == snapshot  # refs/main, not the first by name
    (snapshot / "model.safetensors").unlink()  # an interrupted download
    assert catalog.hub_snapshot("gpt2") == other
    (other / "merges.txt").unlink()
    assert catalog.hub_snapshot("gpt2") is None
    assert catalog.default_name() == "story-gpt2"


def test_shards_must_all_be_there(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "1.st", "b": "2.st"}}))
    (tmp_path / "1.st").touch()
    assert catalog.weight_files(tmp_path) == []
    (tmp_path / "2.st").touch()
    assert catalog.weight_files(tmp_path) == [tmp_path / "1.st", tmp_path / "2.st"]
    (tmp_path / "model.safetensors.index.json").write_text("{")
    assert catalog.weight_files(tmp_path) == []


def test_the_owner_names_a_folder(tiny_folder, monkeypatch):
    monkeypatch.setenv("KVVIZ_MODEL", str(tiny_folder))
    assert catalog.default_name() == "tiny-gpt2"
    entry = catalog.entry("tiny-gpt2")
    assert (entry.kind, entry.path, entry.on_disk) == ("folder", tiny_folder, True)
    assert (entry.positions, entry.trained_positions) == ("learned", 1024)
    monkeypatch.setenv("KVVIZ_MODEL", "story-llama")  # a name of the catalogue does as well
    assert catalog.default_name() == "story-llama"
    assert catalog.name_owner_folder("story-gpt2") == "story-gpt2"
    assert catalog.default_name() == "story-gpt2"  # said in the program goes before the variable


def test_a_folder_cannot_take_a_name_that_is_taken(tmp_path):
    write_tiny_gpt2(tmp_path / "gpt2", layers=1, heads=2, width=4)
    write_tiny_gpt2(tmp_path / "more" / "gpt2", layers=1, heads=2, width=4)
    assert catalog.name_owner_folder(tmp_path / "gpt2", default=False) == "gpt2-2"
    assert catalog.name_owner_folder(tmp_path / "more" / "gpt2", default=False) == "gpt2-3"
    assert catalog.name_owner_folder(tmp_path / "gpt2", default=False) == "gpt2-2"  # the same folder again
    assert not catalog.entry("gpt2").on_disk


def test_a_link_names_models_never_folders(tiny_folder):
    for name in (str(tiny_folder), "../story-gpt2", "/etc", "", "story-gpt2/", "openai-community/gpt2"):
        refused("unknown_model", load, name)


def test_folders_of_every_wrong_kind(tmp_path):
    def folder(name: str, **config: object) -> Path:
        write_tiny_gpt2(tmp_path / name, layers=1, heads=2, width=4)
        file = tmp_path / name / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | config))
        return tmp_path / name

    def says(path: Path, code: str) -> None:
        refused(code, catalog.inspect_folder, path)
        name = catalog.name_owner_folder(path, default=False)
        assert not catalog.entry(name).on_disk
        assert str(path) in str(refused(code, load, name))

    says(tmp_path / "nowhere", "folder_missing")
    (tmp_path / "empty").mkdir()
    says(tmp_path / "empty", "folder_no_config")
    broken = folder("broken")
    (broken / "config.json").write_text("{not json")
    says(broken, "folder_no_config")
    (broken / "config.json").write_text("[1]")
    says(broken, "folder_no_config")
    says(folder("remote", auto_map={"AutoModel": "modeling.Evil"}), "folder_remote_code")
    says(folder("bert", architectures=["BertForMaskedLM"], model_type="bert"), "not_a_decoder")
    says(folder("bert-head", architectures=["BertLMHeadModel"], model_type="bert"), "not_a_decoder")
    says(folder("t5", architectures=["T5ForConditionalGeneration"], is_encoder_decoder=True), "not_a_decoder")
    says(folder("nothing", architectures=None), "not_a_decoder")
    bare = folder("bare")
    (bare / "model.safetensors").unlink()
    says(bare, "folder_no_weights")
    (bare / "pytorch_model.bin").touch()
    says(bare, "folder_pickled")
    mute = folder("mute")
    (mute / "vocab.json").unlink()
    says(mute, "folder_no_tokenizer")


def test_families_kvviz_does_not_show(tmp_path):
    write_tiny_gpt2(tmp_path / "m", layers=1, heads=2, width=4)
    file = tmp_path / "m" / "config.json"
    config = json.loads(file.read_text()) | {"architectures": ["BloomForCausalLM"], "model_type": "bloom"}
    file.write_text(json.dumps(config))
    refused("not_supported", catalog.inspect_folder, tmp_path / "m")  # ALiBi: neither learned nor rotary


def test_missing_weights_are_not_made_up(tmp_path):
    from safetensors.torch import load_file, save_file

    write_tiny_gpt2(tmp_path / "holes", layers=2, heads=2, width=4)
    file = tmp_path / "holes" / "model.safetensors"
    weights = load_file(file)
    weights.pop("h.1.attn.c_attn.weight")
    save_file(weights, file, metadata={"format": "pt"})
    name = catalog.name_owner_folder(tmp_path / "holes", default=False)
    assert refused("weights_incomplete", load, name).values["missing"] == 1


def test_damaged_files_are_a_sentence(tmp_path):
    write_tiny_gpt2(tmp_path / "cut", layers=1, heads=2, width=4)
    file = tmp_path / "cut" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])  # an interrupted copy
    name = catalog.name_owner_folder(tmp_path / "cut", default=False)
    refused("load_failed", load, name)
    file.write_bytes(whole)
    (tmp_path / "cut" / "merges.txt").write_text("#version: 0.2\nx y z w\n")
    refused("load_failed", load, name)
    write_tiny_gpt2(tmp_path / "cut", layers=1, heads=2, width=4)
    assert load(name).facts.layers == 1


def test_weights_of_another_size_are_a_sentence(tmp_path):
    write_tiny_gpt2(tmp_path / "other-size", layers=1, heads=2, width=4)
    file = tmp_path / "other-size" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"n_embd": 8}))
    refused("load_failed", load, catalog.name_owner_folder(tmp_path / "other-size", default=False))


def test_five_sessions_at_once_load_once(tmp_path, monkeypatch):
    """C08."""
    write_tiny_gpt2(tmp_path / "shared", layers=2, heads=2, width=4)
    name = catalog.name_owner_folder(tmp_path / "shared", default=False)
    real, calls, gate = loading.AutoModelForCausalLM.from_pretrained, [], threading.Barrier(5)

    def counted(*args, **kwargs):
        calls.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", counted)
    models: list[object] = []

    def ask() -> None:
        gate.wait()
        models.append(load(name, device="cpu"))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(calls) == 1
    assert len(models) == 5
    assert len({id(m) for m in models}) == 1
    assert load(name, device="cpu") is models[0]


def test_a_failed_load_is_tried_again(tmp_path, monkeypatch):
    write_tiny_gpt2(tmp_path / "late", layers=1, heads=2, width=4)
    name = catalog.name_owner_folder(tmp_path / "late", default=False)

    def fail(*args, **kwargs):
        raise OSError("disk on fire")

    with monkeypatch.context() as patch:
        patch.setattr(loading.AutoModelForCausalLM, "from_pretrained", fail)
        refusal = refused("load_failed", load, name, device="cpu")
        assert refusal.values == {"model": "late", "reason": "disk on fire"}
    assert load(name, device="cpu").facts.layers == 1


def test_only_a_few_models_are_kept(tmp_path):
    names = []
    for i in range(loading.KEEP + 2):
        write_tiny_gpt2(tmp_path / f"m{i}", layers=1, heads=2, width=4)
        names.append(catalog.name_owner_folder(tmp_path / f"m{i}", default=False))
    first = load(names[0], device="cpu")
    for name in names[1:]:
        load(name, device="cpu")
    assert len(loading._loaded) <= loading.KEEP
    assert load(names[0], device="cpu") is not first  # read again
    assert Session(first, "a").prefill().length_after == 1  # who still holds it goes on


def test_a_family_that_ignores_the_registry_is_refused(tmp_path, monkeypatch):
    """A06: no weights is a sentence, never an empty picture or an IndexError."""
    write_tiny_gpt2(tmp_path / "own-way", layers=2, heads=2, width=4)
    model = load(catalog.name_owner_folder(tmp_path / "own-way", default=False), device="cpu")
    module = model.module
    monkeypatch.setattr(type(module), "set_attn_implementation", lambda self, name: None)
    refused("not_supported", Session(model, "a").prefill)
    monkeypatch.undo()
    assert Session(model, "a").prefill().attention.shape == (2, 2, 1, 1)


def test_weights_are_there_after_other_uses_of_the_model(story_gpt2):
    """A06: again after sessions without capture used the same model."""
    Session(story_gpt2, "Once upon a time", capture=False).advance(3)
    step = Session(story_gpt2, "Once upon a time").prefill()
    assert step.attention.shape == (6, 8, 5, 5)
    assert np.isfinite(step.attention).all()


def test_the_catalogue_needs_no_torch():
    code = (
        "import sys; from kvviz.models import catalog; import kvviz.core.storage, kvviz.theory.memory;"
        "kvviz.core.storage.bundled(); assert catalog.default_name() == 'story-gpt2'; catalog.entries();"
        "loaded = {'torch', 'transformers', 'streamlit', 'tokenizers', 'huggingface_hub'} & sys.modules.keys();"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_the_engine_needs_no_streamlit():
    code = (
        "import sys; sys.modules['streamlit'] = None; import kvviz.engine, kvviz.engine.recording, kvviz.cli;"
        "kvviz.engine.Session(kvviz.engine.load('story-gpt2'), 'a').prefill()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
