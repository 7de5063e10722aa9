"""A text generated twice, pass by pass, with no cache and with one; each pass's work is counted on its tensors."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np
import torch

from kvviz.core import Check
from kvviz.engine import attention, cache_api, failures, masks, proofs
from kvviz.engine.feed import free_pass
from kvviz.features.problem.record import Growth, Work
from kvviz.features.race.measure import prompt_ids
from kvviz.models.loading import LoadedModel
from kvviz.theory import work


@failures.ends_with_a_sentence
def generate(model: LoadedModel, prompt: str, new: int, length: int | None = None) -> Iterator[Growth]:
    """Yields the counts so far after each pass of both lanes; greedy. `length` cuts the prompt or says it again.

    Raises the Refusals of `race.prompt_ids`.
    """
    said = prompt_ids(model, prompt, new, length)
    P, key, chosen = len(said), secrets.token_hex(8), []
    counts: dict[str, list[list[int]]] = {"without": [], "kept": []}
    cache = cache_api.new_cache()
    worst, same = 0.0, True
    matrices = matrix_values(model)
    for _ in range(new):
        prefix = [*said, *chosen]
        held = cache_api.length(cache)
        lanes = {}
        for lane, fed, start, used in (("without", prefix, 0, None), ("kept", prefix[held:], held, cache)):
            before = cache_api.nbytes(used) if used is not None else 0
            mask = masks.causal(len(fed), start + len(fed), model.device)[0, 0]
            logits, layers = free_pass(model, fed, range(start, start + len(fed)), mask, used)
            written = cache_api.nbytes(used) - before if used is not None else _bytes_of(layers)
            counts[lane].append(_counted(layers, written))
            lanes[lane] = logits[-1]
        worst = max(worst, float((lanes["without"] - lanes["kept"]).abs().max()))
        same = same and int(lanes["without"].argmax()) == int(lanes["kept"].argmax())
        chosen.append(int(lanes["kept"].argmax()))
        yield Growth(
            key=key,
            prompt=prompt,
            prompt_ids=np.array(said, dtype=np.int64),
            model=model.facts,
            machine=model.machine,
            pieces=model.pieces([*said, *chosen]),
            new=new,
            ids=np.array(chosen, dtype=np.int64),
            without=Work(*np.array(counts["without"], dtype=np.int64).T),
            kept=Work(*np.array(counts["kept"], dtype=np.int64).T),
            source="live",
            matrix_values=matrices,
            checks=_checks(model, P, counts, worst, same),
        )


def _counted(layers: list[attention.LayerCapture], written: int) -> list[int]:
    """rows, scores, visible, written of a pass, from the shapes of its Q and K and from its masks."""
    rows = {c.q.shape[-2] for c in layers}
    scores = {c.q.shape[-2] * c.k.shape[-2] for c in layers}
    if len(rows) != 1 or len(scores) != 1:
        raise RuntimeError(f"layers of different shapes: {sorted(rows)} rows, {sorted(scores)} scores")
    return [rows.pop(), scores.pop(), max(int(c.mask.sum()) for c in layers), written]


def _bytes_of(layers: list[attention.LayerCapture]) -> int:
    return sum(t.numel() * t.element_size() for c in layers for t in (c.k, c.v))


def matrix_values(model: LoadedModel) -> int:
    """Weights of the layers' matrices: those that each token row is multiplied with. Embeddings and the output
    matrix are not among them."""
    skip = {id(model.module.get_input_embeddings()), id(model.module.get_output_embeddings())}
    return sum(
        m.weight.numel()
        for m in model.module.modules()
        if id(m) not in skip
        and not isinstance(m, torch.nn.Embedding)
        and isinstance(getattr(m, "weight", None), torch.nn.Parameter)
        and m.weight.dim() == 2
    )


def _checks(model: LoadedModel, P: int, counts: dict, worst: float, same: bool) -> tuple[Check, ...]:
    """That the counts are the formulas', and that both lanes came to the same."""
    n = len(counts["kept"])
    tolerance = proofs.LOGIT_TOLERANCE[model.facts.dtype]
    near = worst <= tolerance
    equal = "holds" if same and worst <= proofs.EXACT else "fails"
    if equal == "fails" and near and model.facts.dtype != "float32":
        equal = "rounding"

    def exact(name: str, counted: int, formula: int) -> Check:
        return Check(name, "holds" if counted == formula else "fails", counted, formula)

    return (
        Check("equal", equal, worst, tolerance),
        exact("rows", sum(c[0] for c in counts["without"]), work.rows_without_cache(P, n)),
        exact("rows_kept", sum(c[0] for c in counts["kept"]), work.rows_with_cache(P, n)),
        exact("scores", sum(c[1] for c in counts["without"]), work.scores_without_cache(P, n)),
        exact("scores_kept", sum(c[1] for c in counts["kept"]), work.scores_with_cache(P, n)),
    )
