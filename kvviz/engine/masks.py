"""Who may look at whom, as explicit boolean masks: True is visible."""

from __future__ import annotations

import torch


def causal(Tq: int, T: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """(1, 1, Tq, T) bool. The last query sits at position T-1, so the triangle is aligned lower right.

    Query row r sees keys 0 .. T-Tq+r. (PyTorch's `is_causal=True` aligns upper left: one query against
    five keys would see the first only.)
    """
    if not 0 < Tq <= T:
        raise ValueError(f"{Tq} queries cannot be the last of {T} positions")
    return torch.ones(Tq, T, dtype=torch.bool, device=device).tril(T - Tq)[None, None]
