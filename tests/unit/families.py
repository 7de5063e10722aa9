"""Tiny random models of every family that kvviz says it runs, and what their configs say on paper."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from kvviz.models.catalog import BUILTIN

V, W, FF = 4096, 32, 48  # rows of the embedding, width, width inside the MLP


@dataclass(frozen=True)
class Family:
    """`config` is for transformers' class of that name; the rest is what is expected, counted by hand."""

    config_class: str
    config: dict
    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: str = "rotary"
    scale: float | None = None  # None: 1/√D
    windows: tuple[int, ...] = ()


def _llama_like(layers: int, heads: int, kv: int, D: int, *, norms: int, bias: int = 0, qk_norm: bool = False) -> int:
    """Parameters of a layer stack: q, k, v, o; gate, up, down; `norms` vectors of the width; q's and k's own norms."""
    attention = W * heads * D * 2 + W * kv * D * 2 + bias * (heads + 2 * kv) * D + 2 * D * qk_norm
    return layers * (attention + 3 * W * FF + norms * W)


def _sizes(layers: int, heads: int, kv: int, D: int | None = None, **more) -> dict:
    sized = {
        "vocab_size": V, "hidden_size": W, "intermediate_size": FF, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "max_position_embeddings": 256,
        "initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": 4095, "pad_token_id": None,
    }  # fmt: skip
    return sized | ({"head_dim": D} if D else {}) | more


_EMBEDDED = V * W  # the embedding alone, where the output matrix is the same
_GPT2_LAYER = 4 * W + (W * 3 * W + 3 * W) + (W * W + W) + (W * 4 * W + 4 * W) + (4 * W * W + W)
_NEOX_LAYER = 4 * W + (W * 3 * W + 3 * W) + (W * W + W) + (W * FF + FF) + (FF * W + W)

FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        "GPT2Config",
        {"vocab_size": V, "n_embd": W, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.3},
        _EMBEDDED + 64 * W + 2 * _GPT2_LAYER + 2 * W,
        2, 4, 4, 8, positions="learned",
    ),
    "neox": Family(
        "GPTNeoXConfig",
        {"vocab_size": V, "hidden_size": W, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": FF,
         "rotary_pct": 0.25, "max_position_embeddings": 256, "initializer_range": 0.2, "tie_word_embeddings": False},
        2 * _EMBEDDED + 2 * _NEOX_LAYER + 2 * W,
        2, 4, 4, 8,
    ),
    "llama-mha": Family(
        "LlamaConfig", _sizes(2, 4, 4, tie_word_embeddings=False),
        2 * _EMBEDDED + _llama_like(2, 4, 4, 8, norms=2) + W, 2, 4, 4, 8,
    ),
    "llama-mqa": Family(
        "LlamaConfig", _sizes(2, 4, 1, tie_word_embeddings=True),
        _EMBEDDED + _llama_like(2, 4, 1, 8, norms=2) + W, 2, 4, 1, 8,
    ),
    "qwen2": Family(  # with biases on q, k and v; the window from its third layer on
        "Qwen2Config", _sizes(4, 4, 2, use_sliding_window=True, sliding_window=8, max_window_layers=2,
                              tie_word_embeddings=True),
        _EMBEDDED + _llama_like(4, 4, 2, 8, norms=2, bias=1) + W, 4, 4, 2, 8, windows=(0, 0, 8, 8),
    ),
    "qwen2-full": Family(  # names a window and switches it off
        "Qwen2Config", _sizes(2, 4, 2, use_sliding_window=False, sliding_window=8, tie_word_embeddings=False),
        2 * _EMBEDDED + _llama_like(2, 4, 2, 8, norms=2, bias=1) + W, 2, 4, 2, 8,
    ),
    "qwen3": Family(  # heads wider than width / heads, q and k normed
        "Qwen3Config", _sizes(2, 4, 2, 16, tie_word_embeddings=True),
        _EMBEDDED + _llama_like(2, 4, 2, 16, norms=2, qk_norm=True) + W, 2, 4, 2, 16,
    ),
    "mistral": Family(
        "MistralConfig", _sizes(2, 4, 2, sliding_window=8, tie_word_embeddings=False),
        2 * _EMBEDDED + _llama_like(2, 4, 2, 8, norms=2) + W, 2, 4, 2, 8, windows=(8, 8),
    ),
    "mistral-full": Family(
        "MistralConfig", _sizes(2, 4, 2, sliding_window=None, tie_word_embeddings=False),
        2 * _EMBEDDED + _llama_like(2, 4, 2, 8, norms=2) + W, 2, 4, 2, 8,
    ),
    "gemma": Family(
        "GemmaConfig", _sizes(2, 4, 1, 16), _EMBEDDED + _llama_like(2, 4, 1, 16, norms=2) + W, 2, 4, 1, 16,
    ),
    "gemma2": Family(  # without the cap on its scores; it still caps its logits
        "Gemma2Config", _sizes(2, 4, 2, 16, attn_logit_softcapping=None, sliding_window=8, query_pre_attn_scalar=64,
                               layer_types=["sliding_attention", "full_attention"]),
        _EMBEDDED + _llama_like(2, 4, 2, 16, norms=4) + W, 2, 4, 2, 16, scale=1 / 8, windows=(8, 0),
    ),
    "gemma3": Family(
        "Gemma3TextConfig", _sizes(3, 4, 1, 16, sliding_window=8, query_pre_attn_scalar=25,
                                   layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
        _EMBEDDED + _llama_like(3, 4, 1, 16, norms=4, qk_norm=True) + W, 3, 4, 1, 16, scale=1 / 5, windows=(8, 8, 0),
    ),
}  # fmt: skip


def write(folder: Path, config_class: str, config: dict, seed: int = 0) -> Path:
    """A random model of that config as transformers saves it, with a built-in model's tokenizer."""
    import torch
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = getattr(transformers, config_class)(**config)
        module = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32)
        for name, weight in module.named_parameters():  # norms start at 1, biases at 0: not so here
            if weight.ndim == 1:
                torch.nn.init.normal_(weight, 0.0 if "bias" in name or "gemma" in made.model_type else 1.0, 0.2)
        if "gemma" in made.model_type:  # whose embeddings, multiplied by √width, drown the layers: it would stammer
            with torch.no_grad():
                module.get_input_embeddings().weight.div_(12)
    module.save_pretrained(folder)
    shutil.copy(BUILTIN / "story-gpt2" / "tokenizer.json", folder)
    return folder
