"""SmolLM2 in the catalogue, and what the real model does.

The real one comes from the wheel in the folder that KVVIZ_TEST_WHEEL names, else in .wheels/ of this checkout,
where tests/run puts it. What it converts to is kept in .wheels/ for the next time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from kvviz.core.refusal import Refusal
from kvviz.engine import Session, cache_api, load, masks
from kvviz.engine.feed import run_pass
from kvviz.engine.proofs import EXACT
from kvviz.models import catalog, smollm2
from kvviz.theory.memory import kv_bytes

ROOT = Path(__file__).resolve().parents[2]
CITY = "The largest city of China is"


def test_the_catalogue_knows_it_before_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("KVVIZ_CACHE", str(tmp_path / "cache"))
    entry = catalog.entry("smollm2-135m-instruct")
    assert (entry.kind, entry.on_disk, entry.path) == ("wheel", False, None)
    assert (entry.positions, entry.trained_positions, entry.license) == ("rotary", 8192, "Apache-2.0")
    assert (entry.parameters, entry.size_bytes) == (134_515_008, 269_060_552)
    with pytest.raises(Refusal) as refusal:
        load(entry.name)
    assert refusal.value.code == "not_on_disk"
    assert catalog.default_name() == "story-gpt2"
    assert not (tmp_path / "cache").exists()  # looking makes nothing


def test_its_config():
    c = smollm2.CONFIG
    assert (c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]) == (30, 9, 3, 64)
    assert kv_bytes(30, 3, 64, 1, 2) == 23_040
    assert kv_bytes(30, 3, 64, 1, 4) == 46_080


@pytest.fixture(scope="module")
def model():
    """The real SmolLM2 in fp32, converted by this very code and this transformers, the first time they meet."""
    home = Path(os.environ.get("KVVIZ_TEST_WHEEL") or ROOT / ".wheels")
    file = home / smollm2.WHEEL
    if not file.is_file():
        pytest.skip(
            f"there is no {smollm2.WHEEL} in {home}: tests/run fetches it, or KVVIZ_TEST_WHEEL names its folder"
        )
    code = Path(smollm2.__file__).read_bytes() + transformers.__version__.encode()
    kept = ROOT / ".wheels" / "converted" / f"{transformers.__version__}-{hashlib.sha256(code).hexdigest()[:16]}"
    for old in kept.parent.glob(f"{transformers.__version__}-*"):
        if old != kept:  # by code that has changed since
            shutil.rmtree(old)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVVIZ_CACHE", str(kept))
        smollm2.get(file)
        yield load("smollm2-135m-instruct", device="cpu")


def test_what_was_converted_is_what_the_catalogue_says(model):
    f, entry = model.facts, catalog.entry("smollm2-135m-instruct")
    assert (entry.on_disk, entry.kind) == (True, "wheel")
    assert (f.layers, f.heads, f.kv_heads, f.head_dim, f.width) == (30, 9, 3, 64, 576)
    assert (f.architecture, f.vocab_size, f.eos_id) == ("LlamaForCausalLM", 49_152, 2)
    assert (f.parameters, f.positions, f.trained_positions) == (entry.parameters, "rotary", entry.trained_positions)
    assert entry.size_bytes == (entry.path / "model.safetensors").stat().st_size
    assert f.weight_bytes == 4 * 134_515_008
    assert f.kv_bytes_per_token == 2 * 30 * 3 * 64 * 4 == 46_080


def test_its_vocabulary(model):
    """Digits stand alone, nothing typed is a control token, and every byte comes back."""
    assert model.encode(CITY) == [504, 3995, 2240, 282, 3275, 314]
    assert [model.piece(i) for i in model.encode("1a  3.14 ½")] == [
        b"1", b"a", b"  ", b"3", b".", b"1", b"4", b" ", "½".encode()
    ]  # fmt: skip
    typed = "<|im_start|>user\n中国 上海 😀<|endoftext|>"
    ids = model.encode(typed)
    assert min(ids) > 16  # the 17 control tokens are not among them
    assert b"".join(model.piece(i) for i in ids).decode() == typed
    assert [model.piece(i) for i in (0, 1, 2)] == [b"<|endoftext|>", b"<|im_start|>", b"<|im_end|>"]


def test_it_knows_the_largest_city_of_china(model):
    run = Session(model, CITY, compare=False, capture=False).advance(20)
    assert "Shanghai" in b"".join(model.piece(i) for i in run.new_ids).decode()


def test_forty_tokens_step_by_step(model):
    """Each of 40 passes again without a cache: the same token, logits within tolerance, K and V the same."""
    session = Session(model, CITY)
    run = session.advance(40)
    assert (run.P, len(run.new_ids), run.length) == (6, 40, 45)
    assert all(s.twin.same_token for s in run.steps)
    assert max(s.twin.max_abs_dlogit for s in run.steps) <= EXACT
    assert all(p.verdict == "holds" for s in run.steps for p in s.proofs)
    last = run.steps[-1]
    assert last.kv_shape == (30, 2, 1, 3, 45, 64)
    assert (last.kv_tensors, last.kv_bytes) == (60, 45 * 46_080)
    for layer in range(30):
        K, V = cache_api.layer(session._cache, layer)
        assert K.shape == V.shape == (1, 3, 45, 64)
    assert last.attention.shape == (30, 9, 1, 45)


@torch.inference_mode()
def test_two_hundred_tokens_and_one_full_pass(model):
    """All 200 choices of a cached run, with their logits, are in the rows of one pass over the finished text."""
    ids = model.encode(CITY)
    P, cache = len(ids), cache_api.new_cache()
    logits = [run_pass(model, ids, 0, cache, listen=False).logits]
    for _ in range(199):
        ids.append(int(logits[-1].argmax()))
        logits.append(run_pass(model, ids[-1:], len(ids) - 1, cache, listen=False).logits)
    assert cache_api.length(cache) == len(ids) == P + 199
    T = len(ids)
    fed, positions = torch.tensor([ids]), torch.arange(T)[None]
    mask = masks.causal(T, T, model.device)
    whole = cache_api.forward(model.module, fed, positions, mask, None, keep=0)[0, P - 1 :]  # (200, V)
    assert (whole - torch.stack(logits)).abs().max() <= EXACT
    assert whole.argmax(-1).tolist() == [*ids[P:], int(logits[-1].argmax())]


def test_a_second_start_is_quick(model):
    """From the cache folder to a live model in another process: 10 s at most, imports apart."""
    code = (
        "import time; from kvviz.engine import load; t = time.perf_counter();"
        "load('smollm2-135m-instruct', device='cpu'); print(time.perf_counter() - t)"
    )
    environment = {**os.environ, "KVVIZ_CACHE": str(smollm2.cache_folder())}
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(f"load {float(done.stdout):.1f} s, with imports {time.perf_counter() - start:.1f} s")
    assert float(done.stdout) <= 10


@pytest.mark.parametrize("layer", [0, 17])
def test_its_rotation_is_the_formula_and_what_the_cache_holds(model, layer):
    from kvviz.features.positions.measure import positions
    from kvviz.theory.positions import frequencies

    found = positions.rotation(model, model.encode(CITY), layer)
    assert [c.verdict for c in found.checks] == ["holds"] * 4
    assert found.cached.shape == (3, 6, 64) and found.q.shape == (9, 6, 64)
    np.testing.assert_allclose(found.frequencies, frequencies(64, 100_000.0), rtol=1e-5)
    np.testing.assert_array_equal(found.cached, found.k_rotated)
    assert found.shift.max_abs_dlogit < 1e-3
