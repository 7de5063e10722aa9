"""A gallery of masks drawn by hand, for tests of what shows one."""

from __future__ import annotations

import numpy as np

from kvviz.features.attention.record.masks import Comparison, MaskedPass, MaskGallery

COMPARISONS = (
    Comparison("decode", 1e-5, True, 1e-3, True),
    Comparison("chunk", 2e-5, True, 1e-3, True),
    Comparison("padding", 3e-5, True, 1e-3, True),
    Comparison("padding_default", 1.5, False, 1e-3, False),
    Comparison("window", 4e-5, True, 1e-3, True),
    Comparison("window_full", 7.25, False, 1e-3, False),
)


def a_gallery() -> MaskGallery:
    """Drawn by hand: three tokens, every kind once, the padded text one token shorter."""
    ids = np.array([0, 1, 2])
    low = np.tril(np.ones((3, 3), dtype=bool))
    at = np.arange(3)

    def one(kind, visible, *, hidden=None, cached=0, index=0, of=1, ids=ids, positions=at):
        rows, T = visible.shape
        ahead = ~np.tril(np.ones((rows, T), dtype=bool), T - rows)
        hidden = hidden if hidden is not None else np.zeros_like(ahead)
        return MaskedPass(kind, index, of, visible, ahead, hidden, ids[:T], positions[:T], cached)

    padded = low.copy()
    padded[0], padded[:, 0] = False, False
    return MaskGallery(
        "m", ids, {0: b"<b>", 1: b" who", 2: b"x"}, 2,
        (
            one("causal", low), one("decode", low[2:], cached=2),
            one("window", low & ~np.tril(low, -2), hidden=np.tril(low, -2)),
            one("chunk", low[:1, :1], of=3), one("chunk", low[1:2, :2], index=1, of=3, cached=1),
            one("chunk", low[2:], index=2, of=3, cached=2), one("padding", low, of=2),
            one("padding", padded, hidden=low & ~padded, index=1, of=2, ids=np.array([-1, 0, 1]),
                positions=np.array([0, 0, 1])),
        ),
        COMPARISONS,
    )  # fmt: skip
