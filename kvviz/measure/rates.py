"""What this device can do at best, measured: bytes a second of a copy, operations a second of a matrix product."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch

from kvviz.features.ladder.record.ladder import Rates
from kvviz.features.race.record import Spread
from kvviz.features.roofline.record import STEADY, unsteady
from kvviz.measure.clock import timed

ROUNDS = 7
COPIED = 2**28  # bytes of the tensor that is copied: far more than a processor's caches hold
SIDE = {"cpu": 1024}  # rows and columns of the matrices; elsewhere 8192
SIDE_ELSEWHERE = 8192
SIDE_SLOW = 256  # of float16 on a CPU: most have no instruction for it, and take seconds for 1024

_known: dict[tuple[str, torch.dtype], Rates] = {}  # for the life of the process
_measuring = threading.Lock()


def known(device: torch.device, dtype: torch.dtype) -> Rates | None:
    """What this process has measured of that device in that precision."""
    return _known.get((str(device), dtype))


def of(device: torch.device, dtype: torch.dtype, *, turn: AbstractContextManager | None = None) -> Rates:
    """The same, measured now if need be; and again if the rates did not hold still."""
    with _measuring:
        found = known(device, dtype)
        if found is None or unsteady(found) > STEADY:
            found = _known[str(device), dtype] = measure(device, dtype, turn=turn)
    return found


@torch.inference_mode()
def measure(
    device: torch.device,
    dtype: torch.dtype,
    *,
    rounds: int = ROUNDS,
    copied: int = COPIED,
    turn: AbstractContextManager | None = None,
) -> Rates:
    """The copy counts its bytes twice, read and written. A product of n × n matrices is 2 · n³ operations.

    Both are done once untimed, then `rounds` times in turn. `turn`: a lock to hold during each round, so that nobody
    waits for all of them.
    """
    n = SIDE.get(device.type, SIDE_ELSEWHERE)
    if device.type == "cpu" and dtype == torch.float16:
        n = SIDE_SLOW
    source = torch.ones(copied, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    a = torch.ones(n, n, dtype=dtype, device=device)
    b, product = a.clone(), torch.empty_like(a)
    bytes_s, flops_s = [], []
    for i in range(rounds + 1):
        with turn or nullcontext():
            with timed(device) as watch:
                target.copy_(source)
            moved = 2 * copied / (watch.ms / 1000)
            with timed(device) as watch:
                torch.mm(a, b, out=product)
        if i:
            bytes_s.append(moved)
            flops_s.append(2 * n**3 / (watch.ms / 1000))
    return Rates(Spread.of(np.array(bytes_s)), Spread.of(np.array(flops_s)))
