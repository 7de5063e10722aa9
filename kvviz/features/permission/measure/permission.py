"""Why K and V may be kept: edit one token of a prompt, and see which of them change."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch

from kvviz.core import Check, ModelFacts
from kvviz.core.refusal import Refusal
from kvviz.engine import cache_api, failures, limits, masks, proofs
from kvviz.engine.feed import free_pass
from kvviz.features.permission.record.permission import CachedRun, Change, Permission
from kvviz.models.loading import LoadedModel

PASSES = 6  # of the cached runs


@failures.ends_with_a_sentence
def compare(
    model: LoadedModel, prompt: str, position: int, text: str, how: Literal["replace", "insert"] = "replace"
) -> Iterator[Permission]:
    """Yields once. `text`'s first token takes the place of the one at `position`, or is put in before it.

    Raises Refusal "empty_prompt" for either text, "no_such_position" {position, last}, "same_token" (nothing would
    change), those of `limits.check_prompt`.
    """
    ids = limits.check_prompt(model, prompt, PASSES, keep_bytes=None)
    edited = edit(model, ids, position, text, how)
    position = next(i for i, (a, b) in enumerate(zip(ids, edited, strict=True)) if a != b)
    change = {masked: _change(model, ids, edited, masked) for masked in (True, False)}
    run, shapes = _cached_run(model, ids, masked=True)
    wrong, _ = _cached_run(model, ids, masked=False)
    tolerance = proofs.LOGIT_TOLERANCE[model.facts.dtype]
    yield Permission(
        key=secrets.token_hex(8),
        model=model.facts,
        machine=model.machine,
        pieces=model.pieces({*ids, *edited, *run.ids.tolist(), *wrong.ids.tolist(), *wrong.cached_ids.tolist()}),
        ids=np.array(ids, dtype=np.int64),
        edited=np.array(edited, dtype=np.int64),
        position=position,
        q_shape=shapes[0],
        kv_shape=shapes[1],
        masked=change[True],
        unmasked=change[False],
        masked_run=run,
        unmasked_run=wrong,
        tolerance=tolerance,
        checks=checks(
            model.facts, change[True], change[False], np.array(ids) != np.array(edited), run, wrong, tolerance
        ),
    )


def edit(model: LoadedModel, ids: Sequence[int], position: int, text: str, how: str) -> list[int]:
    """The edited prompt, as long as the prompt: what is put in pushes the last token out."""
    if not 0 <= position < len(ids):
        raise Refusal("no_such_position", position=position, last=len(ids) - 1)
    new = model.encode(text)[:1]
    if not new:
        raise Refusal("empty_edit")
    kept = ids[position + 1 :] if how == "replace" else ids[position:]
    edited = [*ids[:position], *new, *kept][: len(ids)]
    if edited == list(ids):
        raise Refusal("same_token", position=position)
    return edited


def _mask(Tq: int, T: int, masked: bool) -> torch.Tensor:
    """(Tq, T) bool"""
    return masks.causal(Tq, T)[0, 0] if masked else torch.ones(Tq, T, dtype=torch.bool)


def _change(model: LoadedModel, ids: Sequence[int], edited: Sequence[int], masked: bool) -> Change:
    """Both prefills, and their K and V compared where they lie."""
    T = len(ids)
    mask = _mask(T, T, masked)
    _, ours = free_pass(model, ids, range(T), mask, None)
    _, theirs = free_pass(model, edited, range(T), mask, None)

    def apart(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:  # (1, Hkv, T, D) each -> (T,)
        return (a.double() - b.double()).abs().amax(dim=(0, 1, 3)).cpu().numpy()

    pairs = list(zip(ours, theirs, strict=True))
    return Change(
        dk=np.stack([apart(a.k, b.k) for a, b in pairs]),
        dv=np.stack([apart(a.v, b.v) for a, b in pairs]),
    )


def _cached_run(model: LoadedModel, ids: Sequence[int], *, masked: bool) -> tuple[CachedRun, tuple]:
    """Greedy, with a cache; each pass also without one. Shapes of Q and K in the last cached pass come along."""
    cache, chosen, cached, apart, shapes = cache_api.new_cache(), [], [], [], ()
    for _ in range(PASSES):
        prefix, held = [*ids, *chosen], cache_api.length(cache)
        T = len(prefix)
        with_cache, layers = free_pass(model, prefix[held:], range(held, T), _mask(T - held, T, masked), cache)
        again, _ = free_pass(model, prefix, range(T), _mask(T, T, masked), None)
        shapes = tuple(layers[0].q.shape), tuple(layers[0].k.shape)
        chosen.append(int(again[-1].argmax()))
        cached.append(int(with_cache[-1].argmax()))
        apart.append(float((again[-1] - with_cache[-1]).abs().max()))
    return CachedRun(np.array(chosen, dtype=np.int64), np.array(cached, dtype=np.int64), np.array(apart)), shapes


def reach(facts: ModelFacts, differs: np.ndarray, *, masked: bool) -> np.ndarray:
    """(L, T) bool: where K and V can change at all. Layer 0 reads the token alone; a later one also what the layer
    below let the query see: all earlier positions (of the layer's window, where it has one), and without the mask all
    later ones too."""
    T = len(differs)
    found = [differs]
    for layer in range(1, facts.layers):
        below = found[-1]
        first = [i + 1 - facts.visible(layer - 1, i) for i in range(T)]  # the oldest position that it sees
        found.append(np.array([below[first[i] : i + 1 if masked else T].any() for i in range(T)]))
    return np.stack(found)


def checks(
    facts: ModelFacts,
    masked: Change,
    unmasked: Change,
    differs: np.ndarray,
    run: CachedRun,
    wrong: CachedRun,
    tolerance: float,
) -> tuple[Check, ...]:
    """What the two prefills and the two cached runs assert; `differs` is (T,) bool, where the prompts do.

    Those about cells are left out where there are no such cells.

    "before"    the largest |ΔK|, |ΔV| before the first edited position, in any layer: exactly 0
    "layer0"    positions at which layer 0 changed although the token is the same: none
    "after"     layers 1 and on: how many of the cells that can change did, from the edited position on; all of them
    "unmasked"  without the mask: how many of the cells before it changed, from layer 1 on; all of them
    "cached"    max |Δlogit| of the cached run, within the tolerance
    "cached_unmasked"  the same without the mask: it exceeds the tolerance, for the cache is wrong
    """
    at = int(np.argmax(differs))
    both = np.maximum(masked.dk, masked.dv)
    either = np.minimum(masked.dk, masked.dv)  # a cell has changed when K and V have
    opened = np.minimum(unmasked.dk, unmasked.dv)
    before = float(both[:, :at].max(initial=0.0))
    strayed = int((both[0][~differs] > 0).sum())
    can, can_opened = (reach(facts, differs, masked=m) for m in (True, False))
    worst, wrong_worst = float(run.dlogit.max()), float(wrong.dlogit.max())
    found = [
        Check("before", "holds" if before == 0.0 else "fails", before, 0.0) if at else None,
        Check("layer0", "holds" if strayed == 0 and (both[0][differs] > 0).all() else "fails", strayed, 0.0),
        _all("after", either[1:][can[1:]]),
        _all("unmasked", opened[1:, :at][can_opened[1:, :at]]),
        Check("cached", "holds" if worst <= tolerance else "fails", worst, tolerance),
        Check("cached_unmasked", "holds" if wrong_worst > tolerance else "fails", wrong_worst, tolerance),
    ]
    return tuple(check for check in found if check is not None)


def _all(name: str, cells: np.ndarray) -> Check | None:
    """That every cell changed; None where there is none. A change may be too small for the number format: then it is
    called rounding."""
    if not cells.size:
        return None
    changed = int((cells > 0).sum())
    return Check(name, "holds" if changed == cells.size else "rounding" if changed else "fails", changed, cells.size)
