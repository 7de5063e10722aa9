"""What is checked on the live tensors of every pass, and how near is near enough."""

from __future__ import annotations

import torch

from kvviz.core import ModelFacts, Proof, TwinPass
from kvviz.engine import cache_api
from kvviz.engine.attention import LayerCapture
from kvviz.theory.memory import kv_bytes

EXACT = 1e-3  # max |Δlogit| that counts as equal
# Half precision keeps 11 (fp16) or 8 (bf16) significant bits: such differences are rounding, and called so.
# Seen over a run in bf16: 0.2 (story-gpt2), 0.5 (SmolLM2); bf16 numbers near 100 lie 0.5 apart.
LOGIT_TOLERANCE = {"float32": EXACT, "float16": 0.25, "bfloat16": 2.0}
KV_TOLERANCE = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.4}
KV_RELATIVE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 0.1}  # of the largest |K|, |V| at hand


def largest_kv_difference(cache: cache_api.Cache, again: list[LayerCapture]) -> tuple[float, float]:
    """max |ΔK|, |ΔV| between the cache and K, V computed again, and max |K|, |V|: two floats."""
    worst, largest = [], []
    for c in again:
        for held, computed in zip(cache_api.layer(cache, c.layer), (c.k, c.v), strict=True):
            worst.append((held - computed).abs().max())
            largest.append(computed.abs().max())
    return float(torch.stack(worst).max()), float(torch.stack(largest).max())


def of_cache(cache: cache_api.Cache, facts: ModelFacts, expected: int) -> tuple[Proof, Proof]:
    """That the cache holds `expected` positions, and just the bytes the formula gives for them."""
    T, counted = cache_api.length(cache), cache_api.nbytes(cache)
    formula = kv_bytes(facts.layers, facts.kv_heads, facts.head_dim, expected, facts.value_bytes)
    return (
        Proof("length", "holds" if T == expected else "fails", T, expected),
        Proof("bytes", "holds" if counted == formula else "fails", counted, formula),
    )


def of_twin(twin: TwinPass, largest_kv: float, dtype: str) -> tuple[Proof, Proof, Proof]:
    """That the pass without a cache, given the same prefix, came to the same."""
    tolerance = LOGIT_TOLERANCE[dtype]
    near = twin.max_abs_dlogit <= tolerance
    logits = "holds" if twin.max_abs_dlogit <= EXACT else "rounding" if near else "fails"
    excused = near and dtype != "float32"  # only half precision may choose another token
    tokens = "holds" if twin.same_token else "rounding" if excused else "fails"
    limit = max(KV_TOLERANCE[dtype], KV_RELATIVE[dtype] * largest_kv)
    kv = "holds" if twin.max_abs_dkv <= limit else "fails"
    if kv == "holds" and dtype != "float32" and twin.max_abs_dkv > KV_TOLERANCE["float32"]:
        kv = "rounding"
    return (
        Proof("tokens", tokens, float(twin.same_token), 1.0),
        Proof("logits", logits, twin.max_abs_dlogit, tolerance),
        Proof("same_kv", kv, twin.max_abs_dkv, limit),
    )
