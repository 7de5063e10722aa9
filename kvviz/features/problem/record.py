"""The work of a generation, pass by pass, in two lanes: without a cache and with one. Counts, no times.

Pass 0 is prefill and chooses token 0. Shapes: n passes made so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvviz.core.checks import Check
from kvviz.core.facts import MachineFacts, ModelFacts
from kvviz.core.run import Run
from kvviz.core.step import StepRecord


@dataclass(frozen=True)
class Work:
    """One lane. All arrays are (n,) int64."""

    rows: np.ndarray  # token rows that got Q, K and V
    scores: np.ndarray  # attention scores a head and layer, Tq × T as full rectangles
    visible: np.ndarray  # those of them that the mask leaves
    written: np.ndarray  # bytes of K and V computed and stored, all layers


@dataclass(frozen=True)
class Growth:
    """Both lanes were given the same prefix at each pass."""

    key: str
    prompt: str
    prompt_ids: np.ndarray  # (P,) int64
    model: ModelFacts
    machine: MachineFacts
    pieces: Mapping[int, bytes]  # prompt and chosen tokens
    new: int  # N, tokens asked for
    ids: np.ndarray  # (n,) int64, chosen
    without: Work
    kept: Work  # with the cache
    source: Literal["live", "run"]  # counted by the experiment, or taken from a run's records
    matrix_values: int = 0  # weights that each row is multiplied with, all layers; 0: not counted
    checks: tuple[Check, ...] = ()

    @property
    def P(self) -> int:
        return len(self.prompt_ids)

    @property
    def n(self) -> int:
        return len(self.ids)

    def upto(self, passes: int) -> Growth:
        """The first `passes` of it. The checks are about all of it, and stay."""

        def cut(work: Work) -> Work:
            return Work(*(getattr(work, name)[:passes] for name in ("rows", "scores", "visible", "written")))

        kept = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Growth(**kept | {"ids": self.ids[:passes], "without": cut(self.without), "kept": cut(self.kept)})


def of_run(run: Run, passes: int | None = None) -> Growth:
    """What a run's records say, of its first `passes` or all. Where a pass has no twin, the one is meant that would
    have been fed the whole prefix."""
    m, steps = run.model, run.steps[:passes]
    prefix = np.array([s.length_after for s in steps], dtype=np.int64)
    rows = np.array([s.rows for s in steps], dtype=np.int64)
    again = np.array([s.twin.rows if s.twin else s.length_after for s in steps], dtype=np.int64)
    # A mask is not in the record: what it leaves follows from the layer that sees most.
    seen = [max(m.visible(layer, i) for layer in range(m.layers)) for i in range(int(prefix[-1]))]
    causal = np.concatenate([[0], np.cumsum(seen)])  # (T + 1,)
    return Growth(
        key=run.key,
        prompt=run.prompt,
        prompt_ids=run.prompt_ids,
        model=m,
        machine=run.machine,
        pieces=run.pieces,
        new=len(steps),
        ids=run.new_ids[: len(steps)],
        without=Work(again, again * again, causal[again], again * m.kv_bytes_per_token),
        kept=Work(rows, rows * prefix, causal[prefix] - causal[prefix - rows], rows * m.kv_bytes_per_token),
        source="run",
        checks=_equal(steps),
    )


def _equal(steps: Sequence[StepRecord]) -> tuple[Check, ...]:
    """The worst of the passes' own proofs that both lanes agree, if every pass was compared."""
    worst = {name: [p for s in steps for p in s.proofs if p.name == name] for name in ("tokens", "logits")}
    if not all(s.twin for s in steps) or not worst["logits"]:
        return ()
    verdicts = {p.verdict for found in worst.values() for p in found}
    verdict = next(v for v in ("fails", "rounding", "holds") if v in verdicts)
    return (Check("equal", verdict, max(p.value for p in worst["logits"]), worst["logits"][-1].limit),)
