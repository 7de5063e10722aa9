"""Races whose milliseconds are given: their results can be worked out on paper."""

from __future__ import annotations

import dataclasses

import numpy as np

from kvviz.core import MachineFacts, ModelFacts
from kvviz.features.race.record import Lane, Race

MODEL = ModelFacts(
    "paper", "GPT2LMHeadModel", 2, 2, 2, 4, 8, 10, "learned", 64, 64, 100, "float32", 4, 400, None
)  # 2·2·2·4·4 = 128 bytes a token
CPU = MachineFacts("cpu", "A processor", 2, "3.11", "2.13.0", "5.24.0", "Linux x86_64")


def paper_race(uncached: list, cached: list, *, P: int = 5, new: int | None = None, **changes: object) -> Race:
    """A race with these milliseconds (R, n); NaN for passes that did not come."""
    slow, fast = np.array(uncached, dtype=float), np.array(cached, dtype=float)
    n = slow.shape[1]
    ids = np.arange(n) % 3
    rows, one = np.arange(P, P + n), np.ones(n, dtype=np.int64)
    one[:1] = P
    race = Race(
        key="paper",
        prompt="p",
        prompt_ids=np.zeros(P, dtype=np.int64),
        model=MODEL,
        machine=CPU,
        pieces={0: b" a", 1: b" b", 2: b"\n"},
        new=new or n,
        repeats=len(slow),
        ids=ids,
        uncached=Lane(slow, rows, np.zeros(n, dtype=np.int64), ids),
        cached=Lane(fast, one, (P + np.arange(n)) * 128, ids),
        max_abs_dlogit=np.full(n, 1e-5, dtype=np.float32),
        tolerance=1e-3,
        state="done",
    )
    return dataclasses.replace(race, **changes)


THREE = paper_race([[10, 4, 6], [10, 8, 6], [10, 6, 6]], [[10, 2, 2], [10, 4, 2], [12, 3, 2]])
