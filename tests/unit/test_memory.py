"""What a model needs in memory against what there is, before it is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from kvviz.core import lessons
from kvviz.engine import load
from kvviz.models import catalog, loading, memory
from tests.unit.conftest import refused

MIB = 2**20


def folder(path: Path, files: dict[str, dict[str, torch.Tensor]], **config) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    for name, tensors in files.items():
        save_file(tensors, path / name)
    if "model.safetensors" not in files:
        index = {"weight_map": {t: name for name, tensors in files.items() for t in tensors}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def test_values_are_counted_in_the_headers(story, tmp_path):
    """As many as the loaded module has, whatever the file stores them in (float16 here)."""
    entry = catalog.entry(story.facts.name)
    assert memory.parameters(entry.path) == story.facts.parameters == entry.parameters


def test_shards_and_stored_formats(tmp_path):
    half, whole = torch.zeros(10, 4, dtype=torch.bfloat16), torch.zeros(3, 5)
    files = {"model-1-of-2.safetensors": {"a": half}, "model-2-of-2.safetensors": {"b": whole, "c": torch.zeros(7)}}
    assert memory.parameters(folder(tmp_path / "m", files, model_type="llama")) == 40 + 15 + 7


def test_what_old_files_carry_besides_weights_does_not_count(tmp_path):
    """GPT-2's published file holds a triangle of ones in every layer, GPT-NeoX's the same as bytes."""
    tensors = {
        "wte.weight": torch.zeros(6, 4),
        "lm_head.weight": torch.zeros(6, 4),
        "h.0.attn.bias": torch.ones(1, 1, 8, 8),
        "layers.0.attention.bias": torch.ones(1, 1, 8, 8, dtype=torch.bool),
        "h.0.ln_1.bias": torch.zeros(4),
    }
    files = {"model.safetensors": tensors}
    assert memory.parameters(folder(tmp_path / "gpt2", files, model_type="gpt2")) == 24 + 4
    assert memory.parameters(folder(tmp_path / "own", files, model_type="llama")) == 24 + 24 + 4  # a matrix of its own
    assert memory.parameters(folder(tmp_path / "tied", files, model_type="llama", tie_word_embeddings=True)) == 28


def test_needed_is_the_weights_in_the_format_asked_for_and_a_margin():
    entry = catalog.entry("gpt2")  # not on disk: as the hub lists it
    assert memory.needed(entry, "float32", "cuda:0") == 124_439_808 * 4 + 256 * MIB
    assert memory.needed(entry, "bfloat16", "mps") == 124_439_808 * 2 + 256 * MIB
    assert memory.needed(entry, "float32") == 865_746_534  # 1.2 × 497,759,232 + 268,435,456
    assert memory.needed(entry, "int4") is None


def test_a_damaged_header_is_left_to_loading(tmp_path):
    path = folder(tmp_path / "m", {"model.safetensors": {"a": torch.zeros(2)}}, model_type="gpt2")
    for damaged in (b"", b"\xff" * 8, b"\x05\0\0\0\0\0\0\0{", b"\x02\0\0\0\0\0\0\0[]"):
        (path / "model.safetensors").write_bytes(damaged)
        entry = catalog.Entry("m", "m", "folder", None, 0, "learned", 8, "", True, path)
        assert memory.needed(entry) is None
        assert memory.figures(entry, "cpu").fits


def available(monkeypatch, bytes_there: int) -> None:
    """What psutil finds available, of more that is there."""
    there = SimpleNamespace(total=bytes_there + 16_000_000_000, available=bytes_there, free=1)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: there)


def linux(root: Path, groups: str, files: dict[str, dict[str, str]]) -> tuple[Path, Path]:
    """A made-up /proc and /sys/fs/cgroup."""
    proc, cgroups = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(groups)
    cgroups.mkdir()
    for where, contents in files.items():
        (cgroups / where).mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (cgroups / where / name).write_text(text)
    return proc, cgroups


def group2(limit: object, used: int, cached: int) -> dict[str, str]:
    return {
        "memory.max": f"{limit}\n",
        "memory.current": f"{used}\n",
        "memory.stat": f"anon 5\ninactive_file {cached}\n",
    }


def group1(limit: int, used: int, cached: int) -> dict[str, str]:
    return {
        "memory.limit_in_bytes": f"{limit}\n",
        "memory.usage_in_bytes": f"{used}\n",
        "memory.stat": f"inactive_file 1\ntotal_inactive_file {cached}\n",
    }


NO_LIMIT = 9_223_372_036_854_771_712  # version 1's way to say so


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        ("0::/\n", {}, 4096 * MIB),
        ("0::/a/b\n", {"a/b": group2("max", 900, 0)}, 4096 * MIB),
        ("0::/a/b\n", {"a/b": group2(512 * MIB, 300 * MIB, 100 * MIB)}, 312 * MIB),
        ("0::/a/b\n", {"a/b": group2("max", 9, 0), "a": group2(100 * MIB, 60 * MIB, 0)}, 40 * MIB),  # the parent's
        ("0::/\n", {".": group2(64 * MIB, 70 * MIB, 0)}, 0),
        ("4:cpu:/x\n3:memory:/x\n", {"memory/x": group1(512 * MIB, 300 * MIB, 50 * MIB)}, 262 * MIB),
        ("3:memory:/docker/9f\n", {"memory": group1(200 * MIB, 100 * MIB, 0)}, 100 * MIB),  # a path of the host's
        ("3:memory:/x\n0::/\n", {"memory/x": group1(NO_LIMIT, 300, 0)}, 4096 * MIB),
    ],
)
def test_memory_there_on_linux(tmp_path, monkeypatch, groups, files, left):
    available(monkeypatch, 4096 * MIB)
    assert memory._host(*linux(tmp_path, groups, files)) == left


def test_memory_there_on_a_mac_is_what_is_available(tmp_path, monkeypatch):
    """No /proc and no groups: neither all the memory there is nor the pages that nobody uses yet."""
    available(monkeypatch, 3_000_000_000)
    assert memory._host(tmp_path / "proc", tmp_path / "cgroup") == 3_000_000_000


def test_a_system_that_says_nothing_refuses_nothing(tmp_path, monkeypatch):
    def hidden():
        raise FileNotFoundError("/proc/meminfo")

    monkeypatch.setattr(memory.psutil, "virtual_memory", hidden)
    assert memory._host(tmp_path, tmp_path) is None


def test_memory_here_is_known_and_not_all_there_is():
    asked = memory.there("cpu")
    assert asked is not None
    assert 0 < asked < memory.psutil.virtual_memory().total


def test_memory_there_on_a_gpu(monkeypatch):
    """Free for the driver, and what PyTorch keeps of it for nobody."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda d: (1000, 9999))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda d: 300)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda d: 100)
    assert memory.there("cuda:0") == 1200
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 5000)
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 1500)
    assert memory.there("mps") == 3500

    def dead(_):
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", dead)
    assert memory.there("cuda:0") is None


def test_a_model_that_cannot_fit_is_refused_before_it_is_read(monkeypatch):
    def never(*_, **__):
        raise AssertionError("the weights were read")

    monkeypatch.setattr(memory, "there", lambda name: 200 * MIB)
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", never)
    monkeypatch.setattr(loading, "_loaded", type(loading._loaded)())
    refusal = refused("no_memory_for_model", load, "story-gpt2", device="cpu", dtype="float16")
    assert refusal.values == {
        "model": "story-gpt2",
        "dtype": "float16",
        "needed": "0.26 GiB",  # 1.2 × 12,099,584 + 268,435,456 bytes
        "there": "0.20 GiB",
        "device": "cpu",
    }
    for language in lessons.LANGUAGES:
        said = lessons.text(language, "refusals", refusal.code, **refusal.shown())
        assert all(words in said for words in ("0.26 GiB", "0.20 GiB"))
        assert not any(words in said for words in ("bfloat16", "KVVIZ"))  # neither would help


@pytest.mark.parametrize(
    ("free", "does", "dtype", "code", "advice"),
    [  # gpt2 in float32: 0.71 GiB on a GPU, 0.81 GiB in the host's memory; in bfloat16 0.48 and 0.53 GiB
        ({"cuda:0": 600, "cpu": 700}, True, "float32", "no_memory_dtype", {"half": "0.48 GiB"}),
        ({"cuda:0": 600, "cpu": 700}, False, "float32", "no_memory_for_model", {}),  # a GPU that can't do it
        ({"cuda:0": 400, "cpu": 700}, True, "float16", "no_memory_device", {"other": "cpu"}),
        ({"cuda:0": 300, "cpu": 900}, True, "float32", "no_memory_device", {"other": "cpu"}),
        ({"cuda:0": 300, "cpu": 900}, True, "bfloat16", "no_memory_device", {"other": "cpu"}),
        ({"cuda:0": 600, "cpu": 900}, True, "float32", "no_memory_either", {"half": "0.48 GiB", "other": "cpu"}),
        ({"cuda:0": 9000, "cpu": 300}, True, "float32", "no_memory_for_model", {}),  # all weights pass through there
        ({"cuda:0": 9000, "cpu": 600}, True, "float32", "no_memory_dtype", {"half": "0.53 GiB"}),
    ],
)
def test_advice_is_given_where_it_would_help(monkeypatch, free, does, dtype, code, advice):
    monkeypatch.setattr(memory, "there", lambda name: free[name] * MIB)
    monkeypatch.setattr(memory.device, "available", lambda: ("cuda:0", "cpu"))
    monkeypatch.setattr(memory.device, "dtypes", lambda where: ("float32", *["bfloat16"] * does))
    values = refused(code, memory.check, catalog.entry("gpt2"), "cuda:0", dtype).values
    assert {name: values[name] for name in ("half", "other") if name in values} == advice
    for language in lessons.LANGUAGES:
        said = lessons.text(language, "refusals", code, **values)
        assert ("KVVIZ_DTYPE=bfloat16" in said, "KVVIZ_DEVICE=cpu" in said) == ("half" in advice, "other" in advice)


def test_weights_for_a_gpu_pass_through_the_hosts_memory(monkeypatch):
    entry = catalog.entry("story-gpt2")
    monkeypatch.setattr(memory.device, "available", lambda: ("cuda:0", "cpu"))
    monkeypatch.setattr(memory, "there", {"cuda:0": 10**12, "cpu": 10**6}.__getitem__)
    assert refused("no_memory_for_model", memory.check, entry, "cuda:0", "float32").values["device"] == "cpu"
    monkeypatch.setattr(memory, "there", {"cuda:0": 10**6, "cpu": 10**12}.__getitem__)
    assert refused("no_memory_device", memory.check, entry, "cuda:0", "float32").values["device"] == "cuda:0"
    monkeypatch.setattr(memory, "there", lambda name: None)  # not known: no reason to refuse
    memory.check(entry, "cuda:0", "float32")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate")])
def test_memory_that_runs_out_while_loading(monkeypatch, error):
    def out(*_, **__):
        raise error

    monkeypatch.setattr(loading, "_loaded", type(loading._loaded)())
    with monkeypatch.context() as patch:
        patch.setattr(loading.AutoModelForCausalLM, "from_pretrained", out)
        refused("no_memory_after_all_dtype", load, "story-gpt2", device="cpu")
        refused("no_memory_after_all", load, "story-gpt2", device="cpu", dtype="bfloat16")
    assert load("story-gpt2", device="cpu").facts.layers == 6


def test_the_figures_are_there_before_torch(root):
    for device, right in (
        ("cpu", "found.device == 'cpu' and found.needed == 297474457 and found.there > 0"),  # 1.2·4·6,049,792 + 2^28
        ("cuda", "(found.device, found.there, found.fits) == ('cuda', None, True)"),
    ):
        code = (
            "import sys; from kvviz.models import catalog, memory\n"
            "found = memory.figures(catalog.entry('story-gpt2'))\n"
            f"assert {right}, found\n"
            "assert not {'torch', 'transformers'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], cwd=root, check=True, env={**os.environ, "KVVIZ_DEVICE": device})
