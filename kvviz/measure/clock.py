"""The clock of a pass: the device is idle when it starts and when it stops."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from kvviz.models.device import synchronize


@dataclass
class Stopwatch:
    ms: float = float("nan")  # set when the block ends


@contextmanager
def timed(device: torch.device) -> Iterator[Stopwatch]:
    """Milliseconds of the block, with the device synchronised before both readings."""
    watch = Stopwatch()
    synchronize(device)
    start = time.perf_counter()
    yield watch
    synchronize(device)
    watch.ms = (time.perf_counter() - start) * 1e3
