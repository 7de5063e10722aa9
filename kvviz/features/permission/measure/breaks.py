"""Using the cache wrongly on purpose, one fault at a time, against the right pass over the same text.

In each lane ids, positions and mask of every pass are written out; the fault is in one of them. All is greedy.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from kvviz.core.refusal import Refusal
from kvviz.engine import cache_api, failures, limits, masks, proofs
from kvviz.engine.feed import free_pass
from kvviz.features.permission.record.breaks import KINDS, Breaks, Broken, BrokenStep
from kvviz.models.loading import LoadedModel

NEW = 12
FIRST_TURN = 4  # tokens written in the first turn of "restart"
OTHER = "The old man and his wife lived in a"  # the prompt whose K and V "stale" leaves in the cache


@failures.ends_with_a_sentence
def all_kinds(model: LoadedModel, prompt: str, new: int = NEW, other: str = OTHER) -> Iterator[Breaks]:
    """Yields after each kind: first the cache used rightly, then each of `KINDS` beside it.

    Raises the Refusals of `limits.check_prompt`, and "second_turn_too_long" {model, needed, limit} where the longest of
    them does not fit.
    """
    ids = limits.check_prompt(model, prompt, new, keep_bytes=None)
    left = model.encode(other)
    needed = len(ids) + max(len(left), len(ids) + FIRST_TURN) + new + 1
    if needed > model.facts.max_positions:
        raise Refusal("second_turn_too_long", model=model.facts.name, needed=needed, limit=model.facts.max_positions)
    truth = _Truth(model)
    key, right, found = secrets.token_hex(8), _lane(truth, "right", ids, (), new), {}
    for kind in ("right", *KINDS):
        if kind == "stale":
            found[kind] = _lane(truth, kind, ids, left, new)
        elif kind == "restart":
            found[kind] = _lane(truth, kind, [*ids, *right.ids[:FIRST_TURN]], ids, new)  # says the prompt again
        elif kind != "right":
            found[kind] = _lane(truth, kind, ids, (), new)
        yield Breaks(
            key=key,
            model=model.facts,
            machine=model.machine,
            pieces=model.pieces({i for b in (right, *found.values()) for i in _ids_in(b)}),
            prompt=prompt,
            prompt_ids=np.array(ids, dtype=np.int64),
            new=new,
            tolerance=proofs.LOGIT_TOLERANCE[model.facts.dtype],
            right=right,
            broken=dict(found),
        )


class _Truth:
    """What the model says after a text when everything is computed anew; each text once."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self._said: dict[tuple[int, ...], torch.Tensor] = {}

    def logits(self, text: Sequence[int]) -> torch.Tensor:
        """(V,) float32"""
        if (key := tuple(text)) not in self._said:
            mask = masks.causal(len(text), len(text))[0, 0]
            self._said[key] = free_pass(self.model, text, range(len(text)), mask, None)[0][-1]
        return self._said[key]

    def written(self, text: Sequence[int], new: int) -> tuple[int, ...]:
        """The `new` tokens that the model goes on with."""
        said = list(text)
        for _ in range(new):
            said.append(int(self.logits(said).argmax()))
        return tuple(said[len(text) :])


def _lane(truth: _Truth, kind: str, ids: Sequence[int], other: Sequence[int], new: int) -> Broken:
    """`new` tokens with the fault `kind`, and as many without.

    "twice"    the first token that was chosen is fed twice; everything later stands one place too far
    "stale"    the cache still holds `other`; the prompt is read after it
    "narrow"   from the first decode pass on, the mask covers the newest key alone
    "shifted"  from the first decode pass on, the position is one too far
    "restart"  `ids` are in the cache; then `other`, the second turn, is read with positions from 0 on
    """
    model, cache = truth.model, cache_api.new_cache()
    before = {"stale": other, "restart": ids}.get(kind, ())
    if before:  # in itself right: what makes it a fault is what follows
        free_pass(model, before, range(len(before)), masks.causal(len(before), len(before))[0, 0], cache)
    text = [*ids, *other] if kind == "restart" else list(ids)
    begun, steps = tuple(text), []
    for index in range(new):
        held = cache_api.length(cache)
        fed = text[-1:] if index else list(other) if kind == "restart" else list(ids)
        if kind == "twice" and index == 1:
            fed = fed * 2
        start = held
        if kind == "shifted" and index:
            start = held + 1
        elif kind == "restart":
            start = held - len(ids)
        positions, mask = range(start, start + len(fed)), _mask(len(fed), held, narrow=kind == "narrow" and index > 0)
        logits, _ = free_pass(model, fed, positions, mask, cache)
        right = truth.logits(text)
        steps.append(
            BrokenStep(
                fed=tuple(fed),
                positions=tuple(positions),
                held=held,
                visible=int(mask[-1].sum()),
                right_position=len(text) - 1,
                chosen=int(logits[-1].argmax()),
                right_choice=int(right.argmax()),
                dlogit=float((logits[-1] - right).abs().max()),
            )
        )
        text.append(steps[-1].chosen)
    return Broken(kind, begun, tuple(other), tuple(steps), truth.written(begun, new))


def _mask(Tq: int, held: int, *, narrow: bool) -> torch.Tensor:
    """(Tq, held + Tq) bool: causal; `narrow`, each query sees itself alone."""
    mask = masks.causal(Tq, held + Tq)[0, 0]
    return mask.triu(held) if narrow else mask


def _ids_in(lane: Broken) -> set[int]:
    return {*lane.text_ids, *lane.other_ids, *lane.ids, *lane.right_ids, *(s.right_choice for s in lane.steps)}
