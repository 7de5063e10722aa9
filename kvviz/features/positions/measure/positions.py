"""Experiments on a model's positions: its table, its rotation, the same text further on, a token in the wrong place.

Positions are handed over explicitly, here also wrong ones. Which layers rotate how is not assumed: rotated q and K are
what the attention function was given, those before are what the projections returned, and the two are compared with
the rotation written out in `theory.positions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch

from kvviz.core import Check
from kvviz.core.refusal import Refusal
from kvviz.engine import attention, cache_api, failures, limits, masks, proofs
from kvviz.features.positions.record import Evicted, Misplaced, Rotation, Shift, Table
from kvviz.models.loading import LoadedModel
from kvviz.theory import positions as theory

SHIFT = 100  # positions
NEW = 12  # tokens a misplaced run goes on for
EVICTED = (8, 1, 3)  # positions held; kept of them, the oldest and the newest


def table(model: LoadedModel, ids: Sequence[int], by: int = SHIFT) -> Table:
    """The model's learned table, and what moving a text along it does. Raises Refusal "no_table"."""
    for name in ("wpe", "embed_positions"):
        found = getattr(model.module.base_model, name, None) or getattr(
            getattr(model.module.base_model, "decoder", None), name, None
        )
        if found is not None:
            break
    else:
        raise Refusal("no_table", model=model.facts.name)
    rows = found.weight[-model.facts.trained_positions :]  # OPT's has two rows before position 0
    return Table(model.facts.name, rows.float().cpu().numpy().copy(), shift(model, ids, by))


def rotation(model: LoadedModel, ids: Sequence[int], layer: int, by: int = SHIFT) -> Rotation:
    """Q and K of `layer` before and after RoPE for `ids` at 0, 1, …, with the checks:

    "rotation"  max |K and Q rotated by the formula - as used by the model|
    "stored"    max |K in the cache - rotated K|, exactly 0
    "unrotated" max |K in the cache - K before rotation|, which must be large
    "shift"     max |Δscore| when all positions move by `by`

    Raises Refusal "no_rotation" for a model that does it in another way.
    """
    return failures.run_or_end(model, lambda: _rotation(model, list(ids), layer, by))


@torch.inference_mode()
def _rotation(model: LoadedModel, ids: list[int], layer: int, by: int) -> Rotation:
    attention.install(model)
    facts, base = model.facts, model.module.base_model
    rotary = getattr(base, "rotary_emb", None)
    inside = getattr(base.layers[layer], "self_attn", None) if hasattr(base, "layers") else None
    if getattr(rotary, "inv_freq", None) is None or not hasattr(inside, "k_proj"):
        raise Refusal("no_rotation", model=facts.name)
    caught: dict[str, torch.Tensor] = {}

    def catch(name: str):
        return lambda _module, _args, out: caught.__setitem__(name, out.detach())

    cache = cache_api.new_cache()
    with model.lock, ExitStack() as hooks:
        for name in ("q", "k"):  # a norm between projection and rotation, where there is one
            part = getattr(inside, f"{name}_norm", None) or getattr(inside, f"{name}_proj")
            hooks.callback(part.register_forward_hook(catch(name)).remove)
        sink, _ = _feed(model, ids, 0, cache)
    c, T, D = sink.layers[layer], len(ids), facts.head_dim
    before = {n: _heads(caught[n], T, D) for n in ("q", "k")}  # (heads, T, D)
    after = {"q": c.q[0], "k": c.k[0]}
    held = cache_api.layer(cache, layer)[0][0]
    freqs = rotary.inv_freq.double().cpu()
    if len(freqs) != D // 2:
        raise Refusal("no_rotation", model=facts.name)
    scaling = float(getattr(rotary, "attention_scaling", 1.0))
    off = max(float((_rotated(before[n], freqs) * scaling - after[n].double().cpu()).abs().max()) for n in ("q", "k"))
    stored = float((held - after["k"]).abs().max())
    unrotated = float((held[:, 1:] - before["k"][:, 1:]).abs().max()) if T > 1 else 0.0
    largest = max(float(t.abs().max()) for t in after.values())
    limit = max(proofs.KV_TOLERANCE[facts.dtype], proofs.KV_RELATIVE[facts.dtype] * largest)
    moved = _shift(model, ids, by)
    near = max(limit, proofs.KV_RELATIVE[facts.dtype] * moved.largest_score)
    checks = (
        Check("rotation", "holds" if off <= limit else "fails", off, limit),
        Check("stored", "holds" if stored == 0 else "fails", stored, 0.0),
        Check("unrotated", "holds" if unrotated > limit else "fails", unrotated, limit),
        Check("shift", "holds" if moved.max_abs_dscore <= near else "fails", moved.max_abs_dscore, near),
    )
    arrays = [t.float().cpu().numpy().copy() for t in (before["q"], before["k"], after["q"], after["k"], held)]
    return Rotation(
        facts.name, layer, np.array(ids), model.pieces(ids), *arrays, freqs.numpy().copy(), scaling,
        facts.trained_positions, moved, checks,
    )  # fmt: skip


def _heads(out: torch.Tensor, T: int, D: int) -> torch.Tensor:
    """A projection's (1, T, heads · D), or a norm's (1, T, heads, D) -> (heads, T, D)."""
    return out.reshape(T, -1, D).transpose(0, 1)


def _rotated(x: torch.Tensor, freqs: torch.Tensor) -> torch.Tensor:
    """(heads, T, D) by the formula, number by number in Python: a second opinion, and nothing of transformers'."""
    rows = [[theory.rotated(v, p, freqs.tolist()) for p, v in enumerate(head)] for head in x.double().cpu().tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def _feed(
    model: LoadedModel, ids: Sequence[int], first: int, cache: cache_api.Cache | None = None
) -> tuple[attention.Sink, torch.Tensor]:
    """A pass of ids at positions first, first + 1, …, whatever the cache holds: sink, and logits (V,) of the last row.

    The mask is causal by place in the text, not by position. Raises Refusal if a position is beyond the model's.
    """
    start = cache_api.length(cache) if cache is not None else 0
    facts = model.facts
    limits.check_ids(facts, ids)
    if first < 0 or max(first, start) + len(ids) > facts.max_positions:
        raise Refusal("no_room_for_shift", model=facts.name, limit=facts.max_positions, T=len(ids))
    Tq, T = len(ids), start + len(ids)
    fed = torch.tensor([list(ids)], dtype=torch.long, device=model.device)
    positions = torch.arange(first, first + Tq, device=model.device)[None]
    windows = facts.windows or (0,) * facts.layers
    mask = masks.by_kind(windows, masks.by_layer(windows, Tq, T, model.device))
    with model.lock, attention.listening() as sink:
        logits = cache_api.forward(model.module, fed, positions, mask, cache)
    return sink, logits[0, -1].float().cpu()


def shift(model: LoadedModel, ids: Sequence[int], by: int) -> Shift:
    """`ids` at 0, 1, … against the same at `by`, `by` + 1, …: scores of every layer, and the logits at the end.

    `by` is cut to what the model has positions for.
    """
    attention.install(model)
    return failures.run_or_end(model, lambda: _shift(model, list(ids), by))


@torch.inference_mode()
def _shift(model: LoadedModel, ids: list[int], by: int) -> Shift:
    by = min(by, model.facts.max_positions - len(ids))
    here, logits = _feed(model, ids, 0)
    there, moved = _feed(model, ids, by)
    worst = largest = 0.0
    for a, b in zip(here.layers, there.layers, strict=True):
        one, other = (_scores(c) for c in (a, b))
        worst = max(worst, float((one - other)[:, a.mask[0, 0]].abs().max()))
        largest = max(largest, float(one[:, a.mask[0, 0]].abs().max()))
    return Shift(
        by, worst, float((logits - moved).abs().max()), largest, int(logits.argmax()) == int(moved.argmax()),
        proofs.LOGIT_TOLERANCE[model.facts.dtype],
    )  # fmt: skip


def _scores(c: attention.LayerCapture) -> torch.Tensor:
    """(H, T, T): q · kᵀ · scale, nothing masked."""
    k = c.k[0].repeat_interleave(c.q.shape[1] // c.k.shape[1], dim=0)
    return torch.matmul(c.q[0], k.transpose(-1, -2)).float() * c.scale


def misplaced(model: LoadedModel, ids: Sequence[int], offsets: Sequence[int], new: int = NEW) -> Misplaced:
    """After a prefill of `ids`, decode greedily with each new token `offset` positions from its place.

    Offsets that would leave the model's positions are left out; 0 is always there.
    """
    attention.install(model)
    ids = list(ids)
    new = max(1, min(new, model.facts.max_positions - len(ids)))
    fit = [k for k in sorted({0, *offsets}) if 0 <= len(ids) + k and len(ids) + new + k <= model.facts.max_positions]
    return failures.run_or_end(model, lambda: _misplaced(model, ids, fit, new))


@torch.inference_mode()
def _misplaced(model: LoadedModel, ids: list[int], offsets: list[int], new: int) -> Misplaced:
    chosen, first = {}, {}
    for k in offsets:
        cache = cache_api.new_cache()
        _, logits = _feed(model, ids, 0, cache)
        text = [int(logits.argmax())]
        for i in range(new):
            _, logits = _feed(model, text[-1:], len(ids) + i + k, cache)
            first.setdefault(k, logits)
            text.append(int(logits.argmax()))
        chosen[k] = text[: new + 1]
    pieces = model.pieces({*ids, *(t for text in chosen.values() for t in text)})
    return Misplaced(
        model.facts.name,
        pieces,
        len(ids),
        np.array(offsets),
        np.array([float((first[k] - first[0]).abs().max()) for k in offsets]),
        np.array([chosen[k] for k in offsets]),
        _evicted(model, (ids * EVICTED[0])[: EVICTED[0] + 1]),
        proofs.LOGIT_TOLERANCE[model.facts.dtype],
    )


@torch.inference_mode()
def _evicted(model: LoadedModel, ids: list[int]) -> Evicted:
    """Of 8 cached positions 1 + 3 stay; the next token at its place in the text, and at the number of those kept."""
    held, first, last = EVICTED
    logits = {}
    for at in (held, first + last):
        cache = cache_api.new_cache()
        _feed(model, ids[:held], 0, cache)
        cache_api.keep(cache, [*range(first), *range(held - last, held)])
        _, logits[at] = _feed(model, ids[held : held + 1], at, cache)
    differ = float((logits[held] - logits[first + last]).abs().max())
    limit = proofs.LOGIT_TOLERANCE[model.facts.dtype]
    return Evicted(held, first, last, held, first + last, differ, limit)
