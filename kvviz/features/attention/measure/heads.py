"""Which heads look for what followed last time: random tokens, said twice.

Olsson et al. 2022 ("In-context Learning and Induction Heads") call a head an induction head if, on random tokens that
are repeated, it looks from a token to the one that came after the same token before. Random tokens, so that nothing
but the repetition can tell it where to look. Theirs are said four times after a start token; here twice, without.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from kvviz.core import Check
from kvviz.engine import attention, failures, limits, proofs
from kvviz.engine.feed import run_pass
from kvviz.features.attention.record.heads import Induction
from kvviz.models.loading import LoadedModel

TOKENS, SEQUENCES = 24, 8


def induction(model: LoadedModel, *, tokens: int = TOKENS, sequences: int = SEQUENCES, seed: int = 0) -> Induction:
    """Mean over `sequences` of `tokens` random tokens said twice, and over all queries of the second time.

    Query n + i, whose token stood at i before, is scored by its weight on the key at i + 1.
    """
    attention.install(model)
    most = model.facts.max_positions // 2
    n = max(2, min(tokens, most))
    return failures.run_or_end(model, lambda: _measure(model, n, sequences, seed))


@torch.inference_mode()
def _measure(model: LoadedModel, n: int, sequences: int, seed: int) -> Induction:
    rng = np.random.default_rng(seed)
    total = np.zeros((model.facts.layers, model.facts.heads))
    queries = torch.arange(n, 2 * n)
    for _ in range(sequences):
        once = _random_tokens(model, rng, n)
        done = run_pass(model, once * 2, 0, None, listen=True)
        for c in done.layers:
            w = attention.weights(c)  # (H, 2n, 2n)
            total[c.layer] += w[:, queries, queries - n + 1].float().mean(dim=1).cpu().numpy()
    chance = float(np.mean([1 / (n + i + 1) for i in range(n)]))
    return Induction(model.facts.name, total / sequences, chance, n, sequences, seed)


def _random_tokens(model: LoadedModel, rng: np.random.Generator, n: int) -> list[int]:
    """n different ids of whole words or their beginnings: a blank and at least two letters, where there are enough."""
    chosen: list[int] = []
    for token in rng.permutation(min(model.facts.vocab_size, model.vocabulary.size)).tolist():
        piece = model.piece(token)
        if len(piece) > 2 and piece[:1] == b" " and piece[1:].isalpha():
            chosen.append(token)
            if len(chosen) == n:
                return chosen
    rest = [t for t in range(model.facts.vocab_size) if t not in set(chosen)]
    return [*chosen, *rest[: n - len(chosen)]]


def checks(model: LoadedModel, ids: Sequence[int]) -> tuple[Check, Check, Check]:
    """On the live tensors of one prefill of `ids`, all layers and heads:

    "rows"    max |sum of a row of weights - 1|
    "future"  the largest weight on a key that lies ahead of its query; must be exactly 0
    "kernel"  max |weights · V - what the kernel made of the same q, K, V|, which never forms a weight
    """
    attention.install(model)
    limits.check_ids(model.facts, ids)
    return failures.run_or_end(model, lambda: _checks(model, list(ids)[: model.facts.max_positions]))


@torch.inference_mode()
def _checks(model: LoadedModel, ids: list[int]) -> tuple[Check, Check, Check]:
    done = run_pass(model, ids, 0, None, listen=True)
    n = len(ids)
    ahead = torch.ones(n, n, dtype=torch.bool, device=model.device).triu(1)
    rows = future = kernel = largest = 0.0
    for c in done.layers:
        w = attention.weights(c)  # (H, n, n)
        shared = c.v[0].repeat_interleave(w.shape[0] // c.v.shape[1], dim=0)  # (H, n, D)
        out = scaled_dot_product_attention(c.q, c.k, c.v, c.mask, scale=c.scale, enable_gqa=len(w) != c.v.shape[1])[0]
        rows = max(rows, float((w.float().sum(-1) - 1).abs().max()))
        future = max(future, float(w[:, ahead].max()) if n > 1 else 0.0)
        kernel = max(kernel, float((w @ shared - out).abs().max()))
        largest = max(largest, float(c.v.abs().max()))
    dtype = model.facts.dtype
    limit = proofs.KV_TOLERANCE[dtype]
    near = max(limit, proofs.KV_RELATIVE[dtype] * largest)
    return (
        Check("rows", "holds" if rows <= limit else "fails", rows, limit),
        Check("future", "holds" if future == 0 else "fails", future, 0.0),
        Check("kernel", "holds" if kernel <= near else "fails", kernel, near),
    )
