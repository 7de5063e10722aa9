"""Loading a model once per process, however many threads ask at the same moment."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
from transformers.utils import logging as transformers_logging

from kvviz.models import catalog, device, memory
from kvviz.models.turns import Turns
from kvviz.models.vocabulary import Vocabulary
from kvviz.records.facts import MachineFacts, ModelFacts
from kvviz.refusal import Refusal

KEEP = 3  # loaded models kept for the next session; those still in use live on regardless
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(eq=False)
class LoadedModel:
    """A model in memory. One forward at a time: hold `lock` around it, so that times stay honest."""

    facts: ModelFacts
    machine: MachineFacts
    module: torch.nn.Module
    vocabulary: Vocabulary
    device: torch.device
    lock: Turns = field(default_factory=Turns)
    warmed: set[int] = field(default_factory=set)  # prompt lengths already warmed up, by the engine

    def encode(self, text: str) -> list[int]:
        """Ids of a text, literally: nothing in it becomes a control token."""
        return self.vocabulary.encode(text)

    def piece(self, token: int) -> bytes:
        """The exact bytes of a token."""
        return self.vocabulary.piece(int(token))

    def pieces(self, tokens: Iterable[int]) -> dict[int, bytes]:
        return {int(t): self.vocabulary.piece(int(t)) for t in tokens}


class _Once:
    """One loading in progress: the first thread works, the others wait for its result or its error."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.model: LoadedModel | None = None
        self.error: BaseException | None = None


_loaded: OrderedDict[tuple, _Once] = OrderedDict()
_guard = threading.Lock()


def load(name: str, *, device: str | None = None, dtype: str | None = None) -> LoadedModel:
    """The model of that catalogue name, from disk, never from the network. Device and dtype: as `device` has them.

    Raises a Refusal: "unknown_model", "not_on_disk", what `catalog.inspect_folder` found, "bad_device", "bad_dtype",
    "dtype_not_here", "no_memory_for_model".
    """
    found = catalog.entry(name)
    if found.path is None:
        raise Refusal("not_on_disk", model=name)
    where, dtype = _device.pick(device), dtype or _device.owner_dtype()
    _device.check_dtype(dtype, where)
    key = (found.path, str(where), dtype)
    with _guard:
        mine = key not in _loaded
        once = _loaded.setdefault(key, _Once())
        _loaded.move_to_end(key)
        finished = [k for k, o in _loaded.items() if o.done.is_set() and k != key]  # oldest first
        for old in finished[: max(0, len(_loaded) - KEEP)]:
            del _loaded[old]
    if mine:
        try:
            once.model = _read_or_refuse(found, where, dtype)
        except BaseException as error:
            once.error = error
            with _guard:
                _loaded.pop(key, None)
        once.done.set()
    once.done.wait()
    if once.error is not None:
        raise once.error
    assert once.model is not None
    return once.model


def forget(kind: str) -> None:
    """Loads anew what was on devices of that kind ("cuda"), once asked for. Runs that go on keep their own."""
    with _guard:
        for key in [k for k in _loaded if k[1].split(":")[0] == kind]:
            del _loaded[key]


_device = device  # `load` has a parameter of that name


def _read_or_refuse(found: catalog.Entry, where: torch.device, dtype: str) -> LoadedModel:
    """`_read`, with whatever the libraries raise over a damaged file turned into a sentence."""
    try:
        return _read(found, where, dtype)
    except Refusal:
        raise
    except Exception as error:  # tokenizers and safetensors raise bare ones
        if device.is_out_of_memory(error):
            raise Refusal("no_memory_after_all", model=found.name, dtype=dtype, device=str(where)) from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise Refusal("load_failed", model=found.name, reason=reason) from error


def _read(found: catalog.Entry, where: torch.device, dtype: str) -> LoadedModel:
    folder = found.path
    assert folder is not None
    raw = catalog.inspect_folder(folder)
    memory.check(found, str(where), dtype)
    transformers_logging.disable_progress_bar()
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    _check_layers(config, found.name)
    module, report = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=DTYPES[dtype],  # a float16 file would stay float16
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    if report["missing_keys"]:  # transformers fills these with random numbers and goes on
        raise Refusal("weights_incomplete", model=found.name, missing=len(report["missing_keys"]))
    positions, trained = catalog.positions_of(raw)
    limit = trained if positions == "learned" else _rotary_limit(config)
    return _finish(module.eval().to(where), Vocabulary(folder), found.name, positions, trained, limit, dtype, where)


def _check_layers(config, name: str) -> None:
    """Every layer must keep K and V of every position: no recurrent or chunked layers."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if not kinds <= {"full_attention", "sliding_attention"}:
        raise Refusal("not_supported", kind=config.model_type, model=name)


def _rotary_limit(config) -> int:
    """Positions a rotary model may hold: up to where a window would forget or angles would change."""
    limit = catalog.ROTARY_LIMIT
    if window := getattr(config, "sliding_window", None):
        limit = min(limit, int(window))
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):  # past this the angles of old keys would be stale
        original = rope.get("original_max_position_embeddings") or config.max_position_embeddings
        limit = min(limit, int(original))
    return limit


def _finish(module, vocabulary, name, positions, trained, limit, dtype, where, random_weights=False) -> LoadedModel:
    config = module.config
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    eos = config.eos_token_id
    weights = {p.data_ptr(): p for p in module.parameters()}.values()  # tied matrices count once
    facts = ModelFacts(
        name=name,
        architecture=type(module).__name__,
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=head_dim,
        width=config.hidden_size,
        vocab_size=module.get_input_embeddings().weight.shape[0],
        positions=positions,
        trained_positions=trained,
        max_positions=limit,
        parameters=sum(p.numel() for p in weights),
        dtype=dtype,
        value_bytes=DTYPES[dtype].itemsize,
        weight_bytes=sum(p.numel() * p.element_size() for p in weights),
        eos_id=eos[0] if isinstance(eos, list) else eos,
        random_weights=random_weights,
    )
    for p in module.parameters():
        p.requires_grad_(False)
    return LoadedModel(facts, device.machine_facts(where), module, vocabulary, where)


def random_gpt2_small(*, device: str | None = None, dtype: str | None = None, seed: int = 0) -> LoadedModel:
    """GPT-2 small's config with random weights, for timing: 124,439,808 parameters that say nothing.

    Reads text with story-gpt2's vocabulary; ids above its 4,096 have no text and read `<id>`.
    """
    where, dtype = _device.pick(device), dtype or _device.owner_dtype()
    _device.check_dtype(dtype, where)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).eval()
    module = module.to(where, DTYPES[dtype])
    vocabulary = Vocabulary(Path(catalog.BUILTIN / "story-gpt2"))
    name = "random GPT-2 small"
    return _finish(module, vocabulary, name, "learned", 1024, 1024, dtype, where, random_weights=True)
