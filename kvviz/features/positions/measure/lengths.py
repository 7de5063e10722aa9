"""Past the trained length: loss by position on held-out text, and rotary positions scaled.

A scaling is a second model object: its own config and its own rotary module over the same weights. Editing the config
of a loaded model changes nothing, for the module took its frequencies when it was made.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch

from kvviz.core.refusal import Refusal
from kvviz.engine import attention, cache_api, failures, limits, masks, proofs
from kvviz.features.positions.record import SCALINGS, Curve, Kept, Lengths, Scaling
from kvviz.models import loading
from kvviz.models.catalog import BUILTIN
from kvviz.models.loading import LoadedModel

TEXT = BUILTIN / "heldout.txt"  # public domain, kept out of training
ROWS, LENGTH, FACTOR = 8, 1024, 4.0
BEYOND = (-6, 0, 1, 8, 24)  # where a cached run is compared with a recomputed one, in positions past the trained length


def scaled(model: LoadedModel, scaling: Scaling, factor: float = FACTOR) -> LoadedModel:
    """A second model object over the same weights, whose rotary module scales. They take turns at one lock.

    Raises Refusal "no_rotation" for a model without a rotary module of its own, or one that is scaled already.
    """
    module, config = model.module, copy.deepcopy(model.module.config)
    rope = dict(getattr(config, "rope_parameters", None) or {})
    if rope.get("rope_type") != "default" or not hasattr(module.base_model, "rotary_emb"):
        raise Refusal("no_rotation", model=model.facts.name)
    if scaling != "none":
        more = {"original_max_position_embeddings": model.facts.trained_positions} if scaling == "yarn" else {}
        config.rope_parameters = {**rope, "rope_type": scaling, "factor": factor, **more}
    with loading.reading:
        with torch.device("meta"):
            other = type(module)(config)
        other.load_state_dict(module.state_dict(), assign=True)
        other.tie_weights()
        other.base_model.rotary_emb = type(module.base_model.rotary_emb)(config).to(model.device)
    other.eval()
    for p in other.parameters():
        p.requires_grad_(False)
    made = dataclasses.replace(model, module=other, warmed=set())
    attention.install(made)
    return made


def heldout(model: LoadedModel, rows: int = ROWS, length: int = LENGTH) -> list[list[int]]:
    """`rows` stretches of length + 1 ids of the held-out text, one after the other; fewer where it ends."""
    raw = TEXT.read_text(encoding="utf-8")
    ids = model.encode(raw[: 8 * rows * (length + 1)])  # eight characters a token are more than any takes on average
    found = [ids[i * (length + 1) : (i + 1) * (length + 1)] for i in range(rows)]
    return [row for row in found if len(row) == length + 1]


@torch.inference_mode()
def losses(model: LoadedModel, row: Sequence[int]) -> np.ndarray:
    """(n,) float64 for n + 1 ids: -ln p of id i + 1 after ids 0 .. i, in nats."""
    attention.install(model)
    ids = list(row[:-1])
    limits.check_pass(model.facts, ids, 0, 0)
    n = len(ids)
    windows = model.facts.windows or (0,) * model.facts.layers
    mask = masks.by_kind(windows, masks.by_layer(windows, n, n, model.device))
    fed = torch.tensor([ids], dtype=torch.long, device=model.device)
    with model.lock:
        logits = cache_api.forward(model.module, fed, torch.arange(n, device=model.device)[None], mask, None, keep=0)
    follows = torch.tensor(row[1:], device=model.device)
    return torch.nn.functional.cross_entropy(logits[0].float(), follows, reduction="none").double().cpu().numpy()


def study(
    rotary: LoadedModel, learned: LoadedModel, *, rows: int = ROWS, length: int = LENGTH, factor: float = FACTOR
) -> Iterator[Lengths]:
    """Curves of the rotary model, plain and scaled, and of the learned one; then whether a cache can follow.

    Yields after each text and each cached run. The learned model's first refused position is in `table_end`.
    """
    return failures.each_or_end(rotary, _study(rotary, learned, rows, length, factor))


def _study(rotary: LoadedModel, learned: LoadedModel, rows: int, length: int, factor: float) -> Iterator[Lengths]:
    lanes = [(s, rotary if s == "none" else scaled(rotary, s, factor)) for s in SCALINGS if s != "dynamic"]
    lanes.append(("none", learned))
    texts = {m.facts.name: heldout(m, rows, min(length, m.facts.max_positions)) for m in (rotary, learned)}
    found = Lengths(of=sum(len(texts[m.facts.name]) for _, m in lanes) + len(SCALINGS))
    sums: dict[int, list[np.ndarray]] = {i: [] for i in range(len(lanes))}
    for r in range(rows):
        for i, (_, model) in enumerate(lanes):
            if r >= len(texts[model.facts.name]):
                continue
            passing = partial(losses, model, texts[model.facts.name][r])
            sums[i].append(failures.run_or_end(model, passing))  # here it is known whose failure it would be
            curves = tuple(
                Curve(m.facts.name, s, factor if s != "none" else 1.0, m.facts.trained_positions,
                      np.mean(sums[j], axis=0), len(sums[j]))
                for j, (s, m) in enumerate(lanes) if sums[j]
            )  # fmt: skip
            found = dataclasses.replace(found, curves=curves, done=found.done + 1)
            yield found
    try:
        limits.check_pass(learned.facts, [0] * (learned.facts.max_positions + 1), 0, 0)
    except Refusal:
        found = dataclasses.replace(found, table_end=(learned.facts.name, learned.facts.max_positions + 1))
    for scaling in SCALINGS:
        one = kept(rotary, scaling, texts[rotary.facts.name][0], factor)
        found = dataclasses.replace(found, kept=(*found.kept, one), done=found.done + 1)
        yield found


@torch.inference_mode()
def kept(model: LoadedModel, scaling: Scaling, ids: Sequence[int], factor: float = FACTOR) -> Kept:
    """A text fed token by token to a cache, across the trained length, against one pass over the same prefix.

    Both sides have a model object of their own: a dynamic rotary module remembers the longest text it has seen.
    """
    trained = model.facts.trained_positions
    lengths = [trained + n for n in BEYOND]
    cached, again = scaled(model, scaling, factor), scaled(model, scaling, factor)
    start = lengths[0] - 1
    cache = cache_api.new_cache()
    _feed(cached, ids[:start], 0, cache)
    worst = []
    for position in range(start, lengths[-1]):
        logits = _feed(cached, ids[position : position + 1], position, cache)
        if position + 1 in lengths:
            worst.append(float((logits - _feed(again, ids[: position + 1], 0, None)).abs().max()))
    limit = proofs.LOGIT_TOLERANCE[model.facts.dtype]
    return Kept(scaling, np.array(lengths), np.array(worst), limit, trained)


def _feed(model: LoadedModel, ids: Sequence[int], start: int, cache: cache_api.Cache | None) -> torch.Tensor:
    """(V,) float32 on the CPU: logits after ids at start, start + 1, …"""
    Tq, T = len(ids), start + len(ids)
    fed = torch.tensor([list(ids)], dtype=torch.long, device=model.device)
    positions = torch.arange(start, T, device=model.device)[None]
    windows = model.facts.windows or (0,) * model.facts.layers
    mask = masks.by_kind(windows, masks.by_layer(windows, Tq, T, model.device))
    with model.lock:
        return cache_api.forward(model.module, fed, positions, mask, cache)[0, -1].float().cpu()
