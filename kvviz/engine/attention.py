"""One attention function for every model and every lane, and what it leaves behind for the picture.

The kernel is PyTorch's scaled-dot-product attention with an explicit mask. When somebody listens, the
function also keeps references to q, K, V and mask of each layer. The weights themselves, which the kernel
never forms, are computed from those references after the clock has stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from kvviz.core.facts import ModelFacts
from kvviz.core.refusal import Refusal
from kvviz.engine import masks
from kvviz.models.loading import LoadedModel

NAME = "kvviz"
# Arguments by which some families change the scores; here they would be ignored, and the model be wrong.
_CHANGES_SCORES = ("softcap", "s_aux", "position_bias", "head_mask")


@dataclass(frozen=True)
class LayerCapture:
    """References to live tensors of one layer. B is 1."""

    layer: int
    q: torch.Tensor  # (1, H, Tq, D), as used in the scores (after RoPE)
    k: torch.Tensor  # (1, Hkv, T, D), everything the queries could look at
    v: torch.Tensor  # (1, Hkv, T, D)
    mask: torch.Tensor  # (1, 1, Tq, T) bool
    scale: float
    window: int = 0  # newest keys that the layer says it sees, 0: all


@dataclass
class Sink:
    """What one pass left behind: a capture for each layer, and the last hidden states."""

    layers: list[LayerCapture] = field(default_factory=list)
    hidden: torch.Tensor | None = None  # (1, Tq, width), before the output matrix


_sink: ContextVar[Sink | None] = ContextVar("kvviz_sink", default=None)


@contextmanager
def listening(wanted: bool = True) -> Iterator[Sink | None]:
    """Within this block, this thread's passes leave their captures in the sink. Other threads' do not."""
    sink = Sink() if wanted else None
    token = _sink.set(sink)
    try:
        yield sink
    finally:
        _sink.reset(token)


def _attention(module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, **kwargs):
    """Called by transformers in each layer: (1, H, Tq, D), (1, Hkv, T, D) twice -> (1, Tq, H, D), no weights."""
    for name in _CHANGES_SCORES:
        if kwargs.get(name) is not None:
            raise Refusal("not_supported", kind=type(module).__name__)
    Tq, T = query.shape[-2], key.shape[-2]
    if attention_mask is None and Tq > 1:  # never fall back to seeing everything
        attention_mask = masks.causal(Tq, T, query.device)
    sink = _sink.get()
    if sink is not None:
        mask = attention_mask if attention_mask is not None else masks.causal(Tq, T, query.device)
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        window = kwargs.get("sliding_window") or 0
        sink.layers.append(LayerCapture(module.layer_idx, query, key, value, mask, scale, window))
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def _keep_hidden(_module, _args, output) -> None:
    sink = _sink.get()
    if sink is not None:
        sink.hidden = output[0]


def install(model: LoadedModel) -> None:
    """Let this model attend through `_attention`, once and for every session that shares it.

    Raises Refusal "not_supported" for a model that does not take its attention from the registry.
    """
    with model.lock:
        module = model.module
        if module.config._attn_implementation == NAME:
            return
        module.set_attn_implementation(NAME)
        if module.config._attn_implementation != NAME:
            raise Refusal("not_supported", kind=model.facts.architecture)
        module.base_model.register_forward_hook(_keep_hidden)


def weights(capture: LayerCapture) -> torch.Tensor:
    """(H, Tq, T): softmax(q · kᵀ · scale + mask), masked entries exactly 0, in the model's dtype.

    With grouped queries, H / Hkv query heads in a row share one KV head.
    """
    q, k, mask = capture.q[0], capture.k[0], capture.mask[0, 0]
    H, Tq, D = q.shape
    Hkv, T, _ = k.shape
    grouped = q.reshape(Hkv, (H // Hkv) * Tq, D)  # rows of the heads that share a KV head
    scores = torch.matmul(grouped, k.transpose(-1, -2)).view(H, Tq, T) * capture.scale
    if Tq > 1 or not mask.all():
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1)


def check(layers: list[LayerCapture], facts: ModelFacts, wanted: list[torch.Tensor]) -> None:
    """That the pass went as the facts say: each layer once, through the mask meant for it, in the shapes stated.

    Raises Refusal "not_supported": a picture of a model that does it otherwise would be wrong.
    """
    windows = facts.windows or (0,) * facts.layers
    right = [c.layer for c in layers] == list(range(facts.layers))
    for c, mask, window in zip(layers, wanted, windows, strict=False):
        T = mask.shape[-1]
        right = right and c.k.shape == c.v.shape == (1, facts.kv_heads, T, facts.head_dim)
        right = right and c.q.shape == (1, facts.heads, mask.shape[-2], facts.head_dim)
        right = right and (c.mask is mask or torch.equal(c.mask, mask))
        right = right and min(c.window or T, T) == min(window or T, T)  # the layer's own word for it
    if not right:
        raise Refusal("not_supported", kind=facts.architecture)


def as_half(tensor: torch.Tensor) -> np.ndarray:
    """A float16 copy that shares no memory with the tensor; values beyond float16's range are clamped."""
    bound = torch.finfo(torch.float16).max
    array = tensor.float().clamp(-bound, bound).to(torch.float16).cpu().numpy()
    return np.array(array, copy=True)


def to_arrays(layers: list[LayerCapture]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """attention (L, H, Tq, T), q (L, H, Tq, D), and the new rows of k and v (L, Hkv, Tq, D), all float16."""
    first = layers[0]
    Tq, T, H = first.q.shape[-2], first.k.shape[-2], first.q.shape[1]
    if Tq == 1 and first.q.device.type == "cpu" and first.q.dtype == torch.float32:
        attention = _one_row(layers)
    else:  # layer by layer: all of it in float32 would be twice the picture's size
        attention = np.empty((len(layers), H, Tq, T), dtype=np.float16)
        for i, c in enumerate(layers):
            attention[i] = as_half(weights(c))
    q = as_half(torch.stack([c.q[0] for c in layers]))
    k = as_half(torch.stack([c.k[0, :, T - Tq :] for c in layers]))
    v = as_half(torch.stack([c.v[0, :, T - Tq :] for c in layers]))
    return attention, q, k, v


def _one_row(layers: list[LayerCapture]) -> np.ndarray:
    """`weights` of all layers for a decode step on a CPU: (L, H, 1, T) float16.

    In NumPy, on this thread alone: the sums are too short to be worth waking other threads for, and on a
    busy machine waiting for those costs more than the whole pass.
    """
    first = layers[0]
    H, Hkv, T = first.q.shape[1], first.k.shape[1], first.k.shape[2]
    scores = np.empty((len(layers), H, T), dtype=np.float32)
    for c, row in zip(layers, scores, strict=True):
        q = c.q[0, :, 0].numpy().reshape(Hkv, H // Hkv, -1)  # query heads that share a KV head
        np.einsum("gqd,gtd->gqt", q, c.k[0].numpy(), out=row.reshape(Hkv, H // Hkv, T))
        row *= c.scale
        if not c.mask.all():
            row[:, ~c.mask[0, 0, 0].numpy()] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores[:, :, None].astype(np.float16)
