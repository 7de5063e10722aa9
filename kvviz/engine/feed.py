"""One pass through the model: explicit ids, positions and mask, timed, with what it left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvviz.engine import attention, cache_api, limits, masks
from kvviz.measure.clock import timed
from kvviz.models.loading import LoadedModel

LONGEST_WARM_UP = 128


@dataclass(frozen=True)
class Pass:
    """Live results of one forward. Nothing in it may outlive the step."""

    logits: torch.Tensor  # (V,) float32 on the CPU, of the last row
    ms: float
    layers: list[attention.LayerCapture]  # empty unless listened to
    hidden: torch.Tensor | None  # (1, Tq, width)


@torch.inference_mode()
def run_pass(
    model: LoadedModel, ids: Sequence[int], start: int, cache: cache_api.Cache | None, *, listen: bool
) -> Pass:
    """Feed `ids` at positions start, start+1, … and time it; with a cache, it must hold `start` positions.

    Raises a Refusal from `limits.check_pass` before the model is called.
    """
    limits.check_pass(model.facts, ids, start, cache_api.length(cache) if cache is not None else 0)
    Tq, T = len(ids), start + len(ids)
    fed = torch.tensor([list(ids)], dtype=torch.long, device=model.device)  # (1, Tq)
    positions = torch.arange(start, T, device=model.device)[None]  # (1, Tq)
    wanted, mask = _masks(model, Tq, T)  # (1, 1, Tq, T) each
    with model.lock, attention.listening(listen) as sink:
        with timed(model.device) as watch:
            logits = cache_api.forward(model.module, fed, positions, mask, cache)  # (1, 1, V)
        if sink is not None:
            attention.check(sink.layers, model.facts, wanted)
    layers, hidden = (sink.layers, sink.hidden) if sink is not None else ([], None)
    return Pass(logits[0, -1].float().cpu(), watch.ms, layers, hidden)


@torch.inference_mode()
def free_pass(
    model: LoadedModel,
    ids: Sequence[int],
    positions: Sequence[int],
    mask: torch.Tensor,
    cache: cache_api.Cache | None,
    *,
    keep: int = 1,
) -> tuple[torch.Tensor, list[attention.LayerCapture]]:
    """A pass whose positions and mask are whatever the caller says, right or wrong: for experiments.

    `mask` is (Tq, T) bool, T what the cache holds and Tq more; a layer with a window hides what is too old as well.
    Returns the logits of the last `keep` rows (0: all), (keep, V) float32 on the CPU, and the live captures.
    Raises ValueError for a mask of another shape, a Refusal for an id or a position without a row in its table.
    """
    Tq, T = len(ids), len(ids) + (cache_api.length(cache) if cache is not None else 0)
    if tuple(mask.shape) != (Tq, T) or len(positions) != Tq:
        raise ValueError(f"a mask of {tuple(mask.shape)} and {len(positions)} positions for {Tq} queries, {T} keys")
    facts = model.facts
    limits.check_ids(facts, ids)
    limits.check_room(facts, T, 1)
    limits.check_room(facts, max(positions) + 1, 1)
    attention.install(model)
    windows = facts.windows or (0,) * facts.layers
    mask = mask.to(model.device)[None, None]  # (1, 1, Tq, T)
    layers = [mask.triu(T - Tq - w + 1) if w else mask for w in windows]
    fed = torch.tensor([list(ids)], dtype=torch.long, device=model.device)  # (1, Tq)
    at = torch.tensor([list(positions)], dtype=torch.long, device=model.device)  # (1, Tq)
    with model.lock, attention.listening() as sink:
        logits = cache_api.forward(model.module, fed, at, masks.by_kind(windows, layers), cache, keep)  # (1, keep, V)
        assert sink is not None
        attention.check(sink.layers, facts, layers)
    return logits[0].float().cpu(), sink.layers


def _masks(model: LoadedModel, Tq: int, T: int) -> tuple[list[torch.Tensor], torch.Tensor | dict[str, torch.Tensor]]:
    """The mask of each layer, and the same as transformers takes them."""
    windows = model.facts.windows or (0,) * model.facts.layers
    layers = masks.by_layer(windows, Tq, T, model.device)
    return layers, masks.by_kind(windows, layers)


@torch.inference_mode()
def predictions(model: LoadedModel, ids: Sequence[int], done: Pass) -> tuple[torch.Tensor, torch.Tensor]:
    """Best next id at every position of a prefill, and its probability: (P,) int64, (P,) float32.

    The output matrix applied to the hidden states of the pass just made. A model that does more after
    that matrix gives other logits in the last row, and is asked again for all of them.
    """
    head = model.module.get_output_embeddings()
    if done.hidden is not None and head is not None:
        last = head(done.hidden[:, -1:])[0, 0].float().cpu()
        if torch.allclose(last, done.logits, rtol=1e-3, atol=1e-3):
            rows = [_best(head(part)[0]) for part in done.hidden.split(128, dim=1)]  # a bounded piece at a time
            return torch.cat([r[0] for r in rows]), torch.cat([r[1] for r in rows])
    fed = torch.tensor([list(ids)], dtype=torch.long, device=model.device)
    positions = torch.arange(len(ids), device=model.device)[None]
    _, mask = _masks(model, len(ids), len(ids))
    with model.lock:
        return _best(cache_api.forward(model.module, fed, positions, mask, None, keep=0)[0])


def _best(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, V) -> ids (n,), probabilities (n,), on the CPU."""
    top = logits.float().max(dim=-1)
    return top.indices.cpu(), (top.values - logits.float().logsumexp(dim=-1)).exp().cpu()


def warm_up(model: LoadedModel, P: int) -> None:
    """Passes of each kind that a run of this size makes, once for each model and power of two.

    The first pass of a shape pays for kernel selection, library set-up and memory that later ones reuse.
    """
    attention.install(model)
    family = min(LONGEST_WARM_UP, 1 << (P - 1).bit_length())
    with model.lock:
        if family in model.warmed:
            return
        n = min(family, model.facts.max_positions - 1)
        ids = [i % model.facts.vocab_size for i in range(n)]
        cache = cache_api.new_cache()
        run_pass(model, ids, 0, cache, listen=True)
        for extra in range(min(2, model.facts.max_positions - n)):
            run_pass(model, [0], n + extra, cache, listen=True)
        run_pass(model, ids, 0, None, listen=True)
        model.warmed.add(family)
