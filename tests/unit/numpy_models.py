"""GPT-2 and Llama once more, in NumPy and float64, straight from the weight files: a second opinion.

No cache, one head at a time, loops where a formula has a sum. Nothing here is shared with kvviz.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass
class Seen:
    """logits (P, V); of each layer attention (H, P, P), K and V (Hkv, P, D)."""

    logits: np.ndarray
    attention: list[np.ndarray]
    keys: list[np.ndarray]
    values: list[np.ndarray]


def read(folder: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """config.json and the tensors of model.safetensors (8 bytes of length, JSON, then the data)."""
    raw = (folder / "model.safetensors").read_bytes()
    n = int.from_bytes(raw[:8], "little")
    kinds = {"F16": np.float16, "F32": np.float32}
    tensors = {}
    for name, info in json.loads(raw[8 : 8 + n]).items():
        if name != "__metadata__":
            start, end = info["data_offsets"]
            flat = np.frombuffer(raw[8 + n + start : 8 + n + end], dtype=kinds[info["dtype"]])
            tensors[name] = flat.reshape(info["shape"]).astype(np.float64)
    return json.loads((folder / "config.json").read_text()), tensors


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One head: (P, D) three times -> output (P, D), weights (P, P). Query i meets keys 0 .. i, no others."""
    P, D = q.shape
    weights, out = np.zeros((P, P)), np.zeros((P, D))
    for i in range(P):
        row = softmax(np.array([q[i] @ k[j] / math.sqrt(D) for j in range(i + 1)]))
        weights[i, : i + 1] = row
        out[i] = sum(row[j] * v[j] for j in range(i + 1))
    return out, weights


def gpt2(folder: Path, ids: list[int]) -> Seen:
    config, w = read(folder)
    H, eps = config["n_head"], config["layer_norm_epsilon"]

    def normed(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * w[name + ".weight"] + w[name + ".bias"]

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: len(ids)]
    seen = Seen(np.empty(0), [], [], [])
    for layer in range(config["n_layer"]):
        at = f"transformer.h.{layer}."
        qkv = normed(x, at + "ln_1") @ w[at + "attn.c_attn.weight"] + w[at + "attn.c_attn.bias"]
        q, k, v = (np.stack(np.split(part, H, axis=-1)) for part in np.split(qkv, 3, axis=-1))
        done = [attend(q[h], k[h], v[h]) for h in range(H)]
        joined = np.concatenate([out for out, _ in done], axis=-1)
        x = x + joined @ w[at + "attn.c_proj.weight"] + w[at + "attn.c_proj.bias"]
        inner = normed(x, at + "ln_2") @ w[at + "mlp.c_fc.weight"] + w[at + "mlp.c_fc.bias"]
        inner = 0.5 * inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        x = x + inner @ w[at + "mlp.c_proj.weight"] + w[at + "mlp.c_proj.bias"]
        seen.attention.append(np.stack([a for _, a in done]))
        seen.keys.append(k)
        seen.values.append(v)
    seen.logits = normed(x, "transformer.ln_f") @ w["transformer.wte.weight"].T
    return seen


def llama(folder: Path, ids: list[int]) -> Seen:
    config, w = read(folder)
    H, Hkv, D = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    theta, eps = config["rope_parameters"]["rope_theta"], config["rms_norm_eps"]

    def normed(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w[name]

    def rotated(x):
        """(P, D): dimension i and i + D/2 turn together by position · theta^(-2i/D)."""
        out = np.empty_like(x)
        for p in range(len(x)):
            for i in range(D // 2):
                a = p * theta ** (-2 * i / D)
                one, two = x[p, i], x[p, i + D // 2]
                out[p, i] = one * math.cos(a) - two * math.sin(a)
                out[p, i + D // 2] = two * math.cos(a) + one * math.sin(a)
        return out

    x = w["model.embed_tokens.weight"][ids]
    seen = Seen(np.empty(0), [], [], [])
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        entering = normed(x, at + "input_layernorm.weight")
        q, k, v = (entering @ w[f"{at}self_attn.{n}_proj.weight"].T for n in "qkv")
        queries = [rotated(part) for part in np.split(q, H, axis=-1)]
        keys = [rotated(part) for part in np.split(k, Hkv, axis=-1)]
        values = np.split(v, Hkv, axis=-1)
        done = [attend(queries[h], keys[h * Hkv // H], values[h * Hkv // H]) for h in range(H)]
        x = x + np.concatenate([out for out, _ in done], axis=-1) @ w[at + "self_attn.o_proj.weight"].T
        entering = normed(x, at + "post_attention_layernorm.weight")
        gate = entering @ w[at + "mlp.gate_proj.weight"].T
        up = entering @ w[at + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[at + "mlp.down_proj.weight"].T
        seen.attention.append(np.stack([a for _, a in done]))
        seen.keys.append(np.stack(keys))
        seen.values.append(np.stack(values))
    seen.logits = normed(x, "model.norm.weight") @ w["model.embed_tokens.weight"].T
    return seen
