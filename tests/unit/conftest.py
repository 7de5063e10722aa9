"""Models that the engine's tests share. Built once; torch is imported only when one is asked for."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

import kvviz.models  # noqa: F401  before any test imports torch
from kvviz.core.refusal import Refusal

TOKENIZER = Path(__file__).parent.parent / "data" / "gpt2-tokenizer"


@pytest.fixture(scope="session")
def story_gpt2():
    from kvviz.engine import load

    return load("story-gpt2", device="cpu")


@pytest.fixture(scope="session")
def story_llama():
    from kvviz.engine import load

    return load("story-llama", device="cpu")


@pytest.fixture(params=["story-gpt2", "story-llama"])
def story(request):
    """Both built-in models, one after the other."""
    from kvviz.engine import load

    return load(request.param, device="cpu")


@pytest.fixture(scope="session")
def random_small():
    """GPT-2 small's real size with random weights."""
    from kvviz.engine import random_gpt2_small

    return random_gpt2_small(device="cpu")


def write_tiny_gpt2(folder: Path, *, layers: int = 12, heads: int = 12, width: int = 24) -> None:
    """A random GPT-2 under GPT-2's file names and with GPT-2's vocabulary, keys as in OpenAI's file."""
    import torch
    from safetensors.torch import save_file
    from transformers import GPT2Config, GPT2LMHeadModel

    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = GPT2Config(n_layer=layers, n_head=heads, n_embd=width, initializer_range=0.3)
        module = GPT2LMHeadModel(config)
    weights = {k.removeprefix("transformer."): v.contiguous() for k, v in module.state_dict().items()}
    weights.pop("lm_head.weight")  # tied to wte, and not in the published file
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    raw = config.to_dict() | {"architectures": ["GPT2LMHeadModel"]}
    raw.pop("dtype", None)
    (folder / "config.json").write_text(json.dumps(raw))
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(TOKENIZER / name, folder / name)


def write_hub(cache: Path, repository: str, commit: str = "607a30d783dfa663caf39e06633721c8d4cfcd7e") -> Path:
    """A hub cache with that tiny GPT-2 in it, laid out as the hub's own client does: blobs and links."""
    root = cache / ("models--" + repository.replace("/", "--"))
    made = root / "made"
    write_tiny_gpt2(made)
    snapshot, blobs = root / "snapshots" / commit, root / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for i, file in enumerate(sorted(made.iterdir())):
        blob = blobs / f"{i:040x}"
        file.rename(blob)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    made.rmdir()
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    return snapshot


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    write_tiny_gpt2(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_gpt2(tiny_folder):
    """12 layers × 12 heads of 2, random, with GPT-2's real vocabulary: its ids and shapes at no weight."""
    from kvviz.engine import load
    from kvviz.models import catalog

    return load(catalog.name_owner_folder(tiny_folder, default=False), device="cpu")


@pytest.fixture
def hub_cache(tmp_path, monkeypatch) -> Path:
    """An empty hub cache, nothing asked for yet, no variable that forbids or redirects."""
    import huggingface_hub

    from kvviz.models import fetch

    for name in (*fetch.OFFLINE, "HF_ENDPOINT", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("KVVIZ_CACHE", str(tmp_path / "kvviz"))
    monkeypatch.setattr(fetch, "_slots", {})
    huggingface_hub.close_session()  # the next one reads NO_PROXY
    return tmp_path / "hub"


@pytest.fixture
def hub(hub_cache, tiny_folder, monkeypatch):
    """A hub with the tiny GPT-2, by OpenAI's file names under OpenAI's name, among files that kvviz has no use for."""
    from tests.unit.hub_stand_in import Hub

    files = {p.name: p.read_bytes() for p in tiny_folder.iterdir()}
    unneeded = ("README.md", "pytorch_model.bin", "flax_model.msgpack", "generation_config.json", "onnx.safetensors")
    served = Hub("openai-community/gpt2", dict.fromkeys(unneeded, b"x" * 1000) | files)
    threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", served.address + "/")
    yield served
    served.over.set()
    served.gate.set()
    served.shutdown()
    served.server_close()


@pytest.fixture(autouse=True)
def _own_catalogue(monkeypatch):
    """No test leaves the owner's choice of a default model behind."""
    from kvviz.models import catalog

    monkeypatch.setattr(catalog, "_folders", dict(catalog._folders))
    monkeypatch.setattr(catalog, "_chosen", [])


def refused(code: str, call, *args, **kwargs) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code
    assert str(caught.value)  # its sentence has all its values
    return caught.value
