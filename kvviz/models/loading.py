"""Loading a model once per process, however many threads ask at the same moment."""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
from transformers.utils import logging as transformers_logging

from kvviz.core.facts import MachineFacts, ModelFacts
from kvviz.core.refusal import Refusal
from kvviz.models import catalog, device, memory
from kvviz.models.turns import Turns, traffic_of
from kvviz.models.vocabulary import Vocabulary

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


_loaded: OrderedDict[tuple, Future[LoadedModel]] = OrderedDict()  # the first thread works, the others wait
_guard = threading.Lock()
# While transformers reads a model it changes what all threads share: torch's default dtype, and the method that ties
# matrices. Two at once leave each other's: a model lacks a matrix, or has half of them in another dtype.
reading = threading.Lock()


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
        once = _loaded.setdefault(key, Future())
        _loaded.move_to_end(key)
        finished = [k for k, future in _loaded.items() if future.done() and k != key]  # oldest first
        for old in finished[: max(0, len(_loaded) - KEEP)]:
            del _loaded[old]
    if mine:
        try:
            once.set_result(_read_or_refuse(found, where, dtype))
        except BaseException as error:
            with _guard:
                _loaded.pop(key, None)
            once.set_exception(error)
    return once.result()


def forget(kind: str) -> None:
    """Loads anew what was on devices of that kind ("cuda"), once asked for. Runs that go on keep their own."""
    with _guard:
        for key in [k for k in _loaded if k[1].split(":")[0] == kind]:
            del _loaded[key]


_device = device  # `load` has a parameter of that name


def _read_or_refuse(found: catalog.Entry, where: torch.device, dtype: str) -> LoadedModel:
    """`_read`, with whatever the libraries raise over a damaged file turned into a sentence."""
    try:
        with reading:
            return _read(found, where, dtype)
    except Refusal:
        raise
    except Exception as error:  # tokenizers and safetensors raise bare ones
        if device.is_out_of_memory(error):
            code = "no_memory_after_all_dtype" if dtype == "float32" else "no_memory_after_all"
            raise Refusal(code, model=found.name, dtype=dtype, device=str(where)) from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise Refusal("load_failed", model=found.name, reason=reason) from error


def _read(found: catalog.Entry, where: torch.device, dtype: str) -> LoadedModel:
    folder = found.path
    assert folder is not None
    raw = catalog.inspect_folder(folder)
    memory.check(found, str(where), dtype)
    transformers_logging.disable_progress_bar()
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    _check_kind(config)
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
    windows = _windows(config)
    limit = trained if positions == "learned" else _rotary_limit(config)
    if len(set(windows)) > 1 and not _takes_masks_by_kind(module):  # what it would hide it has to keep in view
        limit, windows = min(limit, *filter(None, windows)), ()
    module = module.eval().to(where)
    return _finish(module, Vocabulary(folder), found.name, positions, trained, limit, dtype, where, windows=windows)


def _check_kind(config) -> None:
    """Every layer must keep K and V of every position, look back only, and do nothing to scores but scale them alike.

    Raises Refusal "recurrent", "not_a_decoder" or "not_supported".
    """
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    module_class = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if "linear_attention" in kinds or "mamba" in kinds or getattr(module_class, "_is_stateful", False):
        raise Refusal("recurrent", kind=config.model_type, path=config.name_or_path)
    if getattr(config, "use_bidirectional_attention", None):
        raise Refusal("not_a_decoder", kind=config.model_type, path=config.name_or_path)
    if not kinds <= {"full_attention", "sliding_attention"} or getattr(config, "attn_logit_softcapping", None):
        raise Refusal("not_supported", kind=config.model_type)
    if getattr(config, "scale_attn_by_inverse_layer_idx", False):  # pictures know one scale for all layers
        raise Refusal("not_supported", kind=f"{config.model_type} (scale_attn_by_inverse_layer_idx)")


def _windows(config) -> tuple[int, ...]:
    """For each layer how many of the newest positions a query sees, 0: all; empty if it is all in every layer."""
    width, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    if not width:
        return ()
    if kinds is None:  # Mistral and its like name a window and mean every layer
        return (width,) * config.num_hidden_layers
    windows = tuple(width if kind == "sliding_attention" else 0 for kind in kinds)
    return windows if any(windows) else ()


def _takes_masks_by_kind(module: torch.nn.Module) -> bool:
    """Whether a model that mixes kinds of layers lets the caller hand in a mask for each. Not all of them do."""
    try:
        return "attention_mask, dict)" in inspect.getsource(type(module.base_model).forward)
    except (OSError, TypeError):
        return False


def _rotary_limit(config) -> int:
    """Positions a rotary model may hold: up to where angles would change."""
    limit = catalog.ROTARY_LIMIT
    rope = getattr(config, "rope_parameters", None) or {}
    for one in (rope, *(r for r in rope.values() if isinstance(r, dict))):  # some have angles for each kind of layer
        if one.get("rope_type") in ("dynamic", "longrope"):  # past this the angles of old keys would be stale
            original = one.get("original_max_position_embeddings") or config.max_position_embeddings
            limit = min(limit, int(original))
    return limit


def _scale(module: torch.nn.Module) -> float:
    """What the first layer multiplies Q·K by, from the layer itself; 0 if it does not say."""
    for part in module.modules():
        scale = getattr(part, "scaling", None)
        if getattr(part, "layer_idx", None) == 0 and isinstance(scale, float):
            return scale
    return 0.0


def _finish(
    module, vocabulary, name, positions, trained, limit, dtype, where, *, random_weights=False, windows=()
) -> LoadedModel:
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
        attention_scale=_scale(module),
        windows=windows,
    )
    for p in module.parameters():
        p.requires_grad_(False)
    lock = Turns(traffic_of(str(where)))
    return LoadedModel(facts, device.machine_facts(where), module, vocabulary, where, lock)


def random_gpt2_small(*, device: str | None = None, dtype: str | None = None, seed: int = 0) -> LoadedModel:
    """GPT-2 small's config with random weights, for timing: 124,439,808 parameters that say nothing.

    Reads text with story-gpt2's vocabulary; ids above its 4,096 have no text and read `<id>`.
    """
    where, dtype = _device.pick(device), dtype or _device.owner_dtype()
    _device.check_dtype(dtype, where)
    with reading, torch.random.fork_rng():
        torch.manual_seed(seed)
        module = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).eval()
    module = module.to(where, DTYPES[dtype])
    vocabulary = Vocabulary(Path(catalog.BUILTIN / "story-gpt2"))
    name = "random GPT-2 small"
    return _finish(module, vocabulary, name, "learned", 1024, 1024, dtype, where, random_weights=True)
