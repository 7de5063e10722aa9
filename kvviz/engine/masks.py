"""Who may look at whom, as explicit boolean masks: True is visible."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def causal(Tq: int, T: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """(1, 1, Tq, T) bool. The last query sits at position T-1, so the triangle is aligned lower right.

    Query row r sees keys 0 .. T-Tq+r. (PyTorch's `is_causal=True` aligns upper left: one query against
    five keys would see the first only.)
    """
    if not 0 < Tq <= T:
        raise ValueError(f"{Tq} queries cannot be the last of {T} positions")
    return torch.ones(Tq, T, dtype=torch.bool, device=device).tril(T - Tq)[None, None]


def window(Tq: int, T: int, width: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """(1, 1, Tq, T) bool: `causal`, and of that only the `width` newest keys, the query's own included.

    The query at position i sees the keys at j with 0 <= i - j < width. What lies further back stays stored.
    """
    if width < 1:
        raise ValueError(f"through a window of {width} nothing is seen")
    return causal(Tq, T, device).triu(T - Tq - width + 1)


def by_layer(windows: Sequence[int], Tq: int, T: int, device: torch.device | str = "cpu") -> list[torch.Tensor]:
    """The mask of each layer, by its window (0: none). Layers of a kind share one tensor."""
    made = {w: window(Tq, T, w, device) if w else causal(Tq, T, device) for w in set(windows)}
    return [made[w] for w in windows]


def by_kind(windows: Sequence[int], layers: Sequence[torch.Tensor]) -> torch.Tensor | dict[str, torch.Tensor]:
    """The masks of `by_layer` as transformers takes them: one alone, or of a model that mixes kinds one a kind."""
    kinds = {"sliding_attention" if w else "full_attention": m for w, m in zip(windows, layers, strict=True)}
    return kinds if len(kinds) > 1 else layers[0]


def left_padded(lengths: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
    """(B, 1, T, T) bool, T the longest of `lengths`: row b's text stands at its right end, padding before it.

    Causal, and of that no padding: neither as a key nor as a query (such a row sees nothing, and nobody reads it).
    """
    T = max(lengths)
    real = torch.arange(T, device=device)[None] >= T - torch.tensor(lengths, device=device)[:, None]  # (B, T)
    return causal(T, T, device) & real[:, None, None, :] & real[:, None, :, None]


def padded_positions(lengths: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
    """(B, T) int64: 0, 1, … from each text's first token on (cumsum(mask) - 1); padding before it is given 0."""
    T = max(lengths)
    start = T - torch.tensor(lengths, device=device)[:, None]
    return (torch.arange(T, device=device)[None] - start).clamp(min=0)
