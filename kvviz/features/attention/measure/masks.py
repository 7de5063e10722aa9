"""The same tokens under the masks that programs use, and whether the logits are those of the plain run.

Every mask shown is the tensor that the model was given. The plain run is one causal pass without a cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from kvviz.core.refusal import Refusal
from kvviz.engine import attention, cache_api, failures, limits, masks, proofs
from kvviz.features.attention.record.masks import Comparison, MaskedPass, MaskGallery
from kvviz.models.loading import LoadedModel

CHUNKS = (5, 4, 3)
WINDOW = 4
TEXTS = ("Hello, my dog is a little", "Hello, my dog is")  # of two lengths, in one batch


def gallery(model: LoadedModel, ids: Sequence[int]) -> MaskGallery:
    """`ids` are said again from the start, or cut, to 12 tokens: chunks of 5, 4 and 3. About ten small passes.

    Raises Refusal "empty_prompt" for no ids, "id_out_of_range", and what `failures.run_or_end` raises.
    """
    n = sum(CHUNKS)
    ids = list(ids)
    texts = [model.encode(text) for text in TEXTS]
    limits.check_ids(model.facts, [*ids, *texts[0], *texts[1]])
    if not ids:
        raise Refusal("empty_prompt")
    ids = (ids * n)[:n]
    return failures.run_or_end(model, lambda: _all(model, ids, texts))


@torch.inference_mode()
def _all(model: LoadedModel, ids: list[int], texts: list[list[int]]) -> MaskGallery:
    attention.install(model)
    passes: list[MaskedPass] = []
    found: list[Comparison] = []
    with model.lock:
        n = len(ids)
        plain = _feed(model, [ids], masks.causal(n, n, model.device))[0]
        passes.append(_seen("causal", masks.causal(n, n)[0, 0], ids))

        cache = cache_api.new_cache()
        _feed(model, [ids[:-1]], masks.causal(n - 1, n - 1, model.device), cache)
        row = masks.causal(1, n, model.device)
        logits = _feed(model, [ids[-1:]], row, cache)[0]
        passes.append(_seen("decode", row[0, 0], ids, cached=n - 1))
        found.append(_compare("decode", model, logits, plain))

        cache = cache_api.new_cache()
        for index, size in enumerate(CHUNKS):
            start = cache_api.length(cache)
            mask = masks.causal(size, start + size, model.device)
            logits = _feed(model, [ids[start : start + size]], mask, cache)[0]
            passes.append(_seen("chunk", mask[0, 0], ids[: start + size], cached=start, index=index, of=len(CHUNKS)))
        found.append(_compare("chunk", model, logits, plain))

        padded, more = _padding(model, texts)
        passes += padded
        found += more

        seen = masks.window(n, n, WINDOW, model.device)
        through = _feed(model, [ids], seen)[0]
        passes.append(_seen("window", seen[0, 0], ids, hidden=(masks.causal(n, n) & ~seen.cpu())[0, 0]))
        cache = cache_api.new_cache()
        for i, token in enumerate(ids):
            logits = _feed(model, [[token]], masks.window(1, i + 1, WINDOW, model.device), cache)[0]
        found.append(_compare("window", model, logits, through))
        found.append(_compare("window_full", model, through, plain, must=False))
    pieces = model.pieces({*ids, *texts[0], *texts[1]})
    return MaskGallery(model.facts.name, np.array(ids, dtype=np.int64), pieces, WINDOW, tuple(passes), tuple(found))


def _padding(model: LoadedModel, texts: list[list[int]]) -> tuple[list[MaskedPass], list[Comparison]]:
    """Two texts in one batch, the shorter padded on the left; its logits against its own run alone."""
    lengths = [len(t) for t in texts]
    T = max(lengths)
    batch = [[0] * (T - len(t)) + t for t in texts]  # whatever stands in a padded place, nobody sees it
    mask = masks.left_padded(lengths, model.device)
    positions = masks.padded_positions(lengths, model.device)
    logits = _feed(model, batch, mask, positions=positions)
    default = _feed(model, batch, mask, positions=torch.arange(T, device=model.device).expand(len(texts), T))
    short = lengths.index(min(lengths))
    alone = _feed(model, [texts[short]], masks.causal(lengths[short], lengths[short], model.device))[0]
    causal = masks.causal(T, T)[0, 0]
    passes = [
        _seen(
            "padding",
            mask[b, 0],
            [-1] * (T - len(text)) + text,
            hidden=causal & ~mask[b, 0].cpu(),
            positions=positions[b],
            index=b,
            of=len(texts),
        )
        for b, text in enumerate(texts)
    ]
    return passes, [
        _compare("padding", model, logits[short], alone),
        _compare("padding_default", model, default[short], alone, must=False),
    ]


def _feed(
    model: LoadedModel,
    batch: list[list[int]],
    mask: torch.Tensor,
    cache: cache_api.Cache | None = None,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """(B, V) float32 on the CPU: logits of the last row. `mask` (1 or B, 1, Tq, T) and positions are explicit.

    Layers that have a window of their own see no more than that.
    """
    Tq, T = mask.shape[-2:]
    ids = torch.tensor(batch, dtype=torch.long, device=model.device)  # (B, Tq)
    if positions is None:
        positions = torch.arange(T - Tq, T, device=model.device).expand(len(batch), Tq)
    windows = model.facts.windows or (0,) * model.facts.layers
    own = [mask & layer for layer in masks.by_layer(windows, Tq, T, model.device)]
    return cache_api.forward(model.module, ids, positions, masks.by_kind(windows, own), cache)[:, -1].float().cpu()


def _seen(
    kind: str,
    visible: torch.Tensor,
    ids: Sequence[int],
    *,
    hidden: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
    cached: int = 0,
    index: int = 0,
    of: int = 1,
) -> MaskedPass:
    """`visible` (Tq, T) with the reasons for what is not: ahead of the query, or `hidden` besides."""
    Tq, T = visible.shape
    positions = torch.arange(T) if positions is None else positions
    return MaskedPass(
        kind,
        index,
        of,
        visible.cpu().numpy().copy(),
        ~masks.causal(Tq, T)[0, 0].numpy(),
        np.zeros((Tq, T), dtype=bool) if hidden is None else hidden.cpu().numpy().copy(),
        np.array(ids, dtype=np.int64),
        positions.cpu().numpy().astype(np.int64),
        cached,
    )


def _compare(name: str, model: LoadedModel, one: torch.Tensor, other: torch.Tensor, *, must: bool = True) -> Comparison:
    """(V,) twice."""
    limit = proofs.LOGIT_TOLERANCE[model.facts.dtype]
    return Comparison(name, float((one - other).abs().max()), int(one.argmax()) == int(other.argmax()), limit, must)
