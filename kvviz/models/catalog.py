"""What can be loaded: the built-in models, GPT-2's family from the hub's cache, SmolLM2 from kvviz's own cache,
folders the owner names.

Reads file names and config.json only. Imports neither torch nor transformers, so that the list is there
before they are. Never asks the network.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kvviz.core.refusal import Refusal
from kvviz.models import smollm2
from kvviz.models.weights import parameters, weight_files

BUILTIN = Path(__file__).parent / "builtin"
ROTARY_LIMIT = 1024  # positions a rotary model's cache may hold here; the model itself names no end

# Models with a learned table of positions and the key their config gives its length under.
LEARNED = {"gpt2": "n_positions", "gpt_bigcode": "n_positions", "opt": "max_position_embeddings"}


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue. `size_bytes` are the bytes of the weight files, 0 when unknown."""

    name: str
    title: str
    kind: Literal["builtin", "hub", "wheel", "folder"]
    parameters: int | None
    size_bytes: int
    positions: Literal["learned", "rotary"]
    trained_positions: int
    license: str
    on_disk: bool
    path: Path | None


_BUILTINS = (
    Entry(
        "story-gpt2", "story-gpt2", "builtin", 6_049_792, 0, "learned", 1024, "CC0-1.0", True, BUILTIN / "story-gpt2"
    ),
    Entry(
        "story-llama", "story-llama", "builtin", 5_278_976, 0, "rotary", 256, "CC0-1.0", True, BUILTIN / "story-llama"
    ),
)
_HUB = (  # parameters and bytes of model.safetensors as the hub lists them
    Entry("gpt2", "OpenAI GPT-2", "hub", 124_439_808, 548_105_171, "learned", 1024, "MIT", False, None),
    Entry("distilgpt2", "DistilGPT-2", "hub", 81_912_576, 352_824_413, "learned", 1024, "Apache-2.0", False, None),
    Entry("gpt2-medium", "OpenAI GPT-2 medium", "hub", 354_823_168, 1_519_984_962, "learned", 1024, "MIT", False, None),
    Entry("gpt2-large", "OpenAI GPT-2 large", "hub", 774_030_080, 3_247_159_078, "learned", 1024, "MIT", False, None),
)
_SMOLLM2 = Entry(  # in bfloat16, as the hub lists it; converted from the wheel it is fp32, and twice as large
    smollm2.NAME,
    "SmolLM2-135M-Instruct",
    "wheel",
    smollm2.PARAMETERS,
    269_060_552,
    "rotary",
    smollm2.CONFIG["max_position_embeddings"],
    "Apache-2.0",
    False,
    None,
)
_OF_HUB = (*_HUB, _SMOLLM2)
_REPOSITORIES = {  # where the hub keeps each; both spellings are found in caches
    "gpt2": ("openai-community/gpt2", "gpt2"),
    "distilgpt2": ("distilbert/distilgpt2", "distilgpt2"),
    "gpt2-medium": ("openai-community/gpt2-medium", "gpt2-medium"),
    "gpt2-large": ("openai-community/gpt2-large", "gpt2-large"),
    smollm2.NAME: ("HuggingFaceTB/SmolLM2-135M-Instruct",),
}
_folders: dict[str, Path] = {}  # named by the owner, in order
_chosen: list[str] = []  # the owner's choice of default, at most one


def hub_cache() -> Path:
    """The hub's cache folder, by the same variables as huggingface_hub, read now and not at import."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(named or os.path.join(home, "hub"))).expanduser()


def hub_names() -> list[str]:
    """The names under which a model of the hub can be had."""
    return [e.name for e in _OF_HUB]


def hub_repository(name: str) -> str:
    """The hub's own name of it."""
    return _REPOSITORIES[name][0]


def hub_folder(name: str) -> Path:
    """Where the hub's cache keeps, or would keep, everything of that model."""
    return hub_cache() / ("models--" + hub_repository(name).replace("/", "--"))


def hub_bytes(name: str) -> int:
    """Bytes of its weights as the hub lists them, 0 for a name that is not the hub's."""
    return next((e.size_bytes for e in _OF_HUB if e.name == name), 0)


def hub_snapshot(name: str) -> Path | None:
    """The folder of a complete copy in the hub's cache (weights, config, vocabulary), or None.

    Layout: models--owner--name/refs/main holds a commit, snapshots/<commit>/ its files.
    """
    for repository in _REPOSITORIES[name]:
        root = hub_cache() / ("models--" + repository.replace("/", "--"))
        snapshots = root / "snapshots"
        if not snapshots.is_dir():
            continue
        main = root / "refs" / "main"
        commits = [main.read_text().strip()] if main.is_file() else []
        commits += sorted(p.name for p in snapshots.iterdir() if p.name not in commits)
        for commit in commits:
            folder = snapshots / commit
            if (folder / "config.json").is_file() and weight_files(folder) and tokenizer_files(folder):
                return folder
    return None


def tokenizer_files(folder: Path) -> list[Path]:
    """tokenizer.json, or vocab.json with merges.txt; empty when there is neither."""
    for names in (("tokenizer.json",), ("vocab.json", "merges.txt")):
        files = [folder / name for name in names]
        if all(f.is_file() for f in files):
            return files
    return []


def name_owner_folder(path: str | os.PathLike[str], *, default: bool = True) -> str:
    """Add a folder that the owner of this machine named; the name it goes by. Never call it for a link.

    A name that the catalogue already has ("story-llama") is taken as that model.
    """
    text = os.fspath(path)
    if text in _names():
        name = text
    else:
        folder = Path(text).expanduser().resolve()
        known = {p: n for n, p in _folders.items()}
        name = known.get(folder) or _free_name(folder.name or "folder")
        _folders[name] = folder
    if default:
        _chosen[:] = [name]
    return name


def _free_name(base: str) -> str:
    taken, name, n = _names(), base, 2
    while name in taken:
        name, n = f"{base}-{n}", n + 1
    return name


def _names() -> set[str]:
    return {e.name for e in (*_BUILTINS, *_OF_HUB)} | set(_folders)


def _owner_choice() -> str | None:
    """The default the owner asked for: named in the program, else by KVVIZ_MODEL."""
    if not _chosen and (named := os.environ.get("KVVIZ_MODEL")):
        return name_owner_folder(named, default=False)
    return _chosen[0] if _chosen else None


def entries() -> list[Entry]:
    """Everything the catalogue knows now, on disk or not: the owner's folders, built-in, hub, SmolLM2."""
    _owner_choice()
    folders = [_folder_entry(name, path) for name, path in _folders.items()]
    builtins = [replace(e, size_bytes=sum(f.stat().st_size for f in weight_files(e.path))) for e in _BUILTINS]
    hub = []
    for e in _OF_HUB:
        if folder := (smollm2.on_disk() if e is _SMOLLM2 else None) or hub_snapshot(e.name):
            size = sum(f.stat().st_size for f in weight_files(folder))
            e = replace(e, on_disk=True, path=folder, size_bytes=size)
        hub.append(e)
    return [*folders, *builtins, *hub]


def entry(name: str) -> Entry:
    """The entry of that name. Raises Refusal "unknown_model": a path is not a name."""
    for e in entries():
        if e.name == name:
            return e
    raise Refusal("unknown_model", model=name)


def default_name() -> str:
    """The owner's choice, else gpt2 when it is on disk, else story-gpt2."""
    return _owner_choice() or ("gpt2" if hub_snapshot("gpt2") else "story-gpt2")


def _folder_entry(name: str, path: Path) -> Entry:
    try:
        config = inspect_folder(path)
        size = sum(f.stat().st_size for f in weight_files(path))
        positions, trained = positions_of(config)
    except (Refusal, OSError, ValueError, TypeError):  # it stays in the list; loading it says what is wrong
        return Entry(name, name, "folder", None, 0, "learned", 0, "", False, path)
    try:
        count = parameters(path) or None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged: loading it says how
        count = None
    return Entry(name, name, "folder", count, size, positions, trained, "", True, path)


def positions_of(config: dict) -> tuple[Literal["learned", "rotary"], int]:
    """How a model of this config tells positions apart, and how many it was trained on."""
    kind = config.get("model_type")
    if config.get("alibi"):  # Falcon with a bias on the scores instead: its config names rotary angles all the same
        raise Refusal("not_supported", kind=kind or "?")
    if kind in LEARNED:
        return "learned", _count(config.get(LEARNED[kind]) or config.get("n_ctx") or 1024, kind)
    if config.get("rope_parameters") or config.get("rope_theta") or config.get("rotary_pct") or kind in _ROTARY:
        return "rotary", _count(config.get("max_position_embeddings") or 2048, kind)
    raise Refusal("not_supported", kind=kind or "?")


def _count(value: object, kind: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise Refusal("not_supported", kind=kind or "?")
    return value


def _check_numbers(config: dict, path: str) -> None:
    """Sizes that no model has would be believed until memory ends. Raises Refusal "folder_bad_number"."""
    for key, most in _MOST.items():
        value = config.get(key)
        if value is not None and not (type(value) is int and 1 <= value <= most):
            raise Refusal("folder_bad_number", path=path, key=key, value=json.dumps(value)[:60])
    heads, groups = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if heads and groups and heads % groups:
        raise Refusal("folder_bad_number", path=path, key="num_key_value_heads", value=f"{groups} ({heads} heads)")


def _check_weights(config: dict, path: Path) -> None:
    """Where the file lacks tensors, transformers makes them, whatever memory that takes, before anybody can say no.

    The embedding and a square matrix a layer are less than any model has. Raises Refusal "weights_too_small".
    """
    sizes = [config.get(a) or config.get(b) or 0 for a, b in _SIZES]
    vocab, width, layers = sizes
    needed, held = vocab * width + layers * width**2, sum(f.stat().st_size for f in weight_files(path))
    if needed > held:  # a value takes a byte at least
        raise Refusal("weights_too_small", path=str(path), bytes=held, needed=needed)


_SIZES = (("vocab_size", "vocab_size"), ("hidden_size", "n_embd"), ("num_hidden_layers", "n_layer"))

# Families that carry a state along, in all layers or some, and whose configs need not say so in `layer_types`.
_RECURRENT = {
    *("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "recurrent_gemma", "jamba", "bamba", "zamba", "zamba2"),
    *("falcon_h1", "nemotron_h", "granitemoehybrid"),
}
_MOST = {
    **dict.fromkeys(("num_hidden_layers", "n_layer"), 1_000),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_key_value_heads", "head_dim"), 100_000),
    **dict.fromkeys(("hidden_size", "n_embd"), 1_000_000),
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "n_positions", "sliding_window"), 1_000_000_000),
}

# Rotary families whose older configs do not mention it.
_ROTARY = {"llama", "mistral", "qwen2", "qwen3", "gemma", "phi", "phi3", "gpt_neox", "stablelm", "olmo", "smollm3"}


def inspect_folder(path: Path) -> dict:
    """The config of a folder that kvviz can load. Raises a Refusal that says what is in the way."""
    shown = str(path)
    if not path.is_dir():
        raise Refusal("folder_missing", path=shown)
    file = path / "config.json"
    if not file.is_file():
        raise Refusal("folder_no_config", path=shown)
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):  # brackets in brackets without end
        config = None
    if not isinstance(config, dict):
        raise Refusal("folder_no_config", path=shown)
    if config.get("auto_map"):
        raise Refusal("folder_remote_code", path=shown)
    classes = config.get("architectures")
    kind = str(classes[0]) if isinstance(classes, list) and classes else ""
    if not (kind.endswith("ForCausalLM") or kind == "GPT2LMHeadModel") or config.get("is_encoder_decoder"):
        raise Refusal("not_a_decoder", kind=kind or config.get("model_type") or "?", path=shown)
    kinds = config.get("layer_types") or config.get("layers_block_type") or config.get("block_types") or []
    if config.get("model_type") in _RECURRENT or {"linear_attention", "mamba", "recurrent"} & {str(k) for k in kinds}:
        raise Refusal("recurrent", kind=kind, path=shown)
    _check_numbers(config, shown)
    positions_of(config)
    if not weight_files(path):
        pickled = any(path.glob("*.bin")) or any(path.glob("*.pt")) or any(path.glob("*.pth"))
        raise Refusal("folder_pickled" if pickled else "folder_no_weights", path=shown)
    _check_weights(config, path)
    if not tokenizer_files(path):
        raise Refusal("folder_no_tokenizer", path=shown)
    return config
