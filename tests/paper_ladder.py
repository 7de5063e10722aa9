"""Ladders of numbers written down by hand, at GPT-2 small's sizes."""

from __future__ import annotations

import numpy as np
from factories import model_facts

from kvviz.core.facts import MachineFacts
from kvviz.features.ladder.record.ladder import Ladder, Rates, Rung
from kvviz.features.race.record import Spread

MACHINE = MachineFacts("cpu", "Test CPU", 2, "3.11.7", "2.13.0", "5.24.0", "Linux x86_64")
KNOWN = Rates(Spread(10e9, 10e9, 10e9, 1), Spread(100e9, 100e9, 100e9, 1))
SMALL = model_facts(12, 12, 12, 64, name="gpt2", vocab_size=50_257)


def lane(cache: str, kernel: str, ms: list[list[float]], *, dtype: str = "float32", N: int = 0, **other) -> Rung:
    """Passes as given, the last of `ms` NaN where it is short; N: as many as there are."""
    n = max(len(row) for row in ms)
    times = np.array([[*row, *[np.nan] * (n - len(row))] for row in ms])  # (R, n)
    given = {"warm_up": np.array([9.0, 3.0]), "ready_ms": 5.0, "allocate_ms": np.nan,
             "held": np.zeros(n, np.int64), "chosen": np.arange(n)} | other  # fmt: skip
    return Rung(cache, kernel, dtype, N or n, times, **given)


def ladder(rungs: list[Rung], *, P: int = 5, N: int = 20, **other) -> Ladder:
    given = {"rates": KNOWN, "repeats": max((len(r.ms) for r in rungs), default=1), "state": "done"} | other
    return Ladder("paper", SMALL, MACHINE, P, N, tuple(rungs), 84_934_656, **given)
