"""A config.json, as text that somebody pasted: read by this code alone, with nothing loaded and nothing run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvviz.core.refusal import Refusal
from kvviz.features.memory.record.architectures import MOST, Architecture, checked, written

MOST_CHARACTERS = 200_000  # the longest config.json in use has a tenth of it
NAME = 60  # characters of a name that are shown

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_HEADS = ("num_attention_heads", "n_head")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
_WIDTH = ("hidden_size", "n_embd")
_TRAINED = ("max_position_embeddings", "n_positions", "n_ctx")
_WINDOW = ("sliding_window",)
_LARGEST = 10**9  # of a width, a vocabulary or a rank
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "num_experts_per_tok")
_DECODERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_ENCODERS = {
    *("bert", "roberta", "distilbert", "electra", "albert", "deberta", "deberta-v2", "xlm-roberta", "camembert"),
    *("mpnet", "modernbert", "vit", "clip", "siglip", "longformer"),
}
_TWO_PARTS = {"t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "marian", "m2m_100", "led", "whisper"}
_OTHER_STATE = {"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "recurrent_gemma", "jamba", "bamba", "zamba"}
_GATED = {
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "olmo",
    "olmo2",
    "smollm3",
    "stablelm",
}
_TIED = {"gemma", "gemma2", "gemma3_text", "gpt2", "smollm3"}  # where a config does not say
_LOCAL = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6}  # every n-th layer is global, where a config does not say


def read(text: str) -> Architecture:
    """The architecture that a config.json describes. Raises Refusal:

    "config_long", "config_not_json", "config_shape", "config_encoder", "config_two_parts", "config_state",
    "config_missing", "config_number", "config_layer_kind", "config_head_size", or "size_groups".
    """
    if len(text) > MOST_CHARACTERS:
        raise Refusal("config_long", characters=len(text), most=MOST_CHARACTERS)
    try:
        whole = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal("config_not_json") from None
    if not isinstance(whole, dict):
        raise Refusal("config_shape")
    inner = whole.get("text_config")
    config = inner if isinstance(inner, dict) and not any(k in whole for k in _LAYERS) else whole
    kind = _word(config.get("model_type") or whole.get("model_type"))
    _check_kind(whole, config, kind)
    layers = _number(config, _LAYERS, most=MOST["layers"])
    heads = _number(config, _HEADS, most=MOST["heads"])
    latent = 0
    if "kv_lora_rank" in config:
        latent = _number(config, ("kv_lora_rank",)) + _number(config, ("qk_rope_head_dim",))
    window, windowed = _windows(config, kind, layers)
    parameters = _parameters(config, _family(whole, config, kind), layers, heads)
    return checked(
        Architecture(
            _name(whole, kind),
            layers,
            heads,
            _kv_heads(config, kind, heads),
            _head_dim(config, heads),
            trained=_number(config, _TRAINED, 0, most=MOST["trained"]),
            parameters=parameters,
            window=window,
            windowed=windowed,
            latent=latent,
            experts=any(config.get(k) for k in _EXPERTS),
            estimated=parameters is not None,
        )
    )


def _no_constant(word: str) -> None:
    raise ValueError(word)  # NaN, Infinity: not JSON


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name(whole: Mapping[str, Any], kind: str) -> str:
    """What the config calls itself; characters that can't be printed as a dot."""
    name = _word(whole.get("_name_or_path")) or kind or "config.json"
    return "".join(c if c.isprintable() else "·" for c in name[:NAME])


def _check_kind(whole: Mapping[str, Any], config: Mapping[str, Any], kind: str) -> None:
    """Something else than a decoder that keeps K and V is refused."""
    classes = whole.get("architectures") or config.get("architectures") or []
    names = [c for c in classes if isinstance(c, str)] if isinstance(classes, list) else []
    decodes = any(n.endswith(_DECODERS) for n in names) if names else kind not in _ENCODERS
    called = (names[0] if names else kind)[:NAME]
    both = whole.get("is_encoder_decoder")
    halves = ("EncoderModel",) if both else ("EncoderModel", "ForCausalLM")
    if (both or kind in _TWO_PARTS) and not any(n.endswith(halves) for n in names):
        raise Refusal("config_two_parts", kind=called)
    if not decodes:
        raise Refusal("config_encoder", kind=called)
    if kind in _OTHER_STATE:
        raise Refusal("config_state", kind=kind[:NAME])
    if not any(k in config for k in (*_LAYERS, *_HEADS)):
        raise Refusal("config_shape")


def _number(
    config: Mapping[str, Any],
    keys: tuple[str, ...],
    default: int | None = None,
    *,
    most: int = _LARGEST,
    least: int = 1,
) -> int:
    """The first of those keys that is there: a whole number from `least` to `most`."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        return _within(key, value, most, least)
    if default is None:
        raise Refusal("config_missing", key=keys[0])
    return default


def _within(key: str, value: object, most: int, least: int = 1) -> int:
    if type(value) is not int or not least <= value <= most:
        told = written(value if type(value) is int else json.dumps(value))
        raise Refusal("config_number", key=key, value=told, least=least, most=most)
    return value


def _kv_heads(config: Mapping[str, Any], kind: str, heads: int) -> int:
    if config.get("multi_query", kind == "gpt_bigcode") is True and not config.get("new_decoder_architecture"):
        return 1
    return _number(config, _KV_HEADS, heads, most=MOST["kv_heads"])


def _head_dim(config: Mapping[str, Any], heads: int) -> int:
    """`head_dim` where it is given, else MLA's part without rotation, else width / heads."""
    for key in ("head_dim", "qk_nope_head_dim"):
        if config.get(key) is not None:
            return _number(config, (key,), most=MOST["head_dim"])
    width = _number(config, _WIDTH)
    if width % heads:
        raise Refusal("config_head_size", width=width, heads=heads)
    key = next(key for key in _WIDTH if config.get(key) is not None)
    return _within(f"{key} / {heads:,}", width // heads, MOST["head_dim"])


def _windows(config: Mapping[str, Any], kind: str, layers: int) -> tuple[int, int]:
    """The window, and how many layers have it."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        if len(kinds) != layers:
            raise Refusal("config_layer_kind", kind=f"layer_types: {len(kinds):,}")
        for each in kinds:
            if each not in ("full_attention", "sliding_attention"):
                raise Refusal("config_layer_kind", kind=str(each)[:NAME])
        sliding = kinds.count("sliding_attention")
        return (_number(config, _WINDOW, most=MOST["window"]), sliding) if sliding else (0, 0)
    if config.get("sliding_window") is None or config.get("use_sliding_window") is False:
        return 0, 0
    window = _number(config, _WINDOW, most=MOST["window"])
    if (every := _number(config, ("sliding_window_pattern",), _LOCAL.get(kind, 0))) > 0:
        return window, layers - layers // every
    if kind.startswith("qwen") and config.get("max_window_layers") is not None:
        first = _number(config, ("max_window_layers",), least=0)
        return (window, layers - first) if first < layers else (0, 0)
    return window, layers


def _family(whole: Mapping[str, Any], config: Mapping[str, Any], kind: str) -> str:
    """Whose matrices it has: a config that names no family and has Llama's keys is read as one of Llama's."""
    named = kind or whole.get("architectures") or config.get("architectures")
    keys = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size")
    return kind if named not in (None, "", [], ["LlamaForCausalLM"]) else "llama" if config.keys() >= {*keys} else ""


def _parameters(config: Mapping[str, Any], kind: str, layers: int, heads: int) -> int | None:
    """All weights, where the config gives what that takes and kvviz knows the family's matrices."""
    if any(config.get(k) for k in _EXPERTS) or not (kind in _GATED or kind == "gpt2"):
        return None
    width, vocab = _number(config, _WIDTH, 0), _number(config, ("vocab_size",), 0)
    inner = _number(config, ("intermediate_size", "n_inner"), 4 * width if kind == "gpt2" else 0)
    if not (width and vocab and inner):
        return None
    D, kv_heads = _head_dim(config, heads), _kv_heads(config, kind, heads)
    tied = config.get("tie_word_embeddings", kind in _TIED) is True
    attention = 2 * width * D * (heads + kv_heads)  # Q and output, K and V
    mlp = (2 if kind == "gpt2" else 3) * width * inner
    table = _number(config, _TRAINED, 0) * width if kind == "gpt2" else 0
    norms, last = _norms(config, kind, width, D, heads + kv_heads)
    biases = _biases(config, kind, width, D * heads, D * kv_heads, inner)
    return vocab * width * (1 if tied else 2) + table + layers * (attention + mlp + norms + biases) + last


def _norms(config: Mapping[str, Any], kind: str, width: int, D: int, heads: int) -> tuple[int, int]:
    """Values of a layer's norms and of the last one; `heads` of Q and K. Those of GPT-2 and StableLM have a bias,
    OLMo's have no values."""
    if kind == "olmo":
        return 0, 0
    own_bias = 2 if kind in ("gpt2", "stablelm") else 1
    count = 4 if kind in ("gemma2", "gemma3_text") else 1 if config.get("use_parallel_residual") is True else 2
    norms = count * width * own_bias
    if kind in ("qwen3", "gemma3_text"):  # of each head's Q and K
        norms += 2 * D
    if kind == "olmo2" or config.get("qk_layernorm") is True:  # of all heads' Q and K
        norms += D * heads
    return norms, width * own_bias


def _biases(config: Mapping[str, Any], kind: str, width: int, q: int, kv: int, inner: int) -> int:
    """Values of a layer's biases; `q` and `kv` are the widths of Q and of K."""
    if kind == "gpt2":
        return q + 2 * kv + width + inner + width
    found = q + 2 * kv if kind == "qwen2" or config.get("use_qkv_bias") is True else 0
    if config.get("attention_bias") is True:
        found += q + 2 * kv + width
    return found + (2 * inner + width if config.get("mlp_bias") is True else 0)
