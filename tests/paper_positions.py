"""Records of the positions page, made of numbers that can be followed, for tests of what shows them."""

from __future__ import annotations

import numpy as np

from kvviz.core import Check
from kvviz.features.positions.record import SCALINGS, Curve, Evicted, Kept, Lengths, Misplaced, Rotation, Shift, Table
from kvviz.theory import positions as theory

SHIFT = Shift(100, 2e-5, 7e-6, 22.75, True, 1e-3)
MOVED = Shift(100, 68.5, 8.25, 101.5, False, 1e-3)
PIECES = {0: b"<b>", 1: b" who", 2: b"x", 3: b"\n"}


def table(n: int = 64, width: int = 8) -> Table:
    """Row p is the angle p in every pair of columns: row p and row q are alike as cos((p - q) / 10)."""
    angles = np.arange(n)[:, None] / 10
    pairs = [np.cos(angles), np.sin(angles)] * (width // 2)
    return Table("story-gpt2", np.concatenate(pairs, axis=1).astype(np.float32), MOVED)


def rotation(T: int = 6, H: int = 8, Hkv: int = 2, D: int = 8, layer: int = 3) -> Rotation:
    rng = np.random.default_rng(5)
    freqs = theory.frequencies(D)

    def turned(x: np.ndarray) -> np.ndarray:
        return np.array([[theory.rotated(v.tolist(), p, freqs) for p, v in enumerate(h)] for h in x], np.float32)

    q, k = (rng.normal(size=(n, T, D)).astype(np.float32) for n in (H, Hkv))
    checks = (
        Check("rotation", "holds", 1e-6, 1e-4), Check("stored", "holds", 0.0, 0.0),
        Check("unrotated", "holds", 12.25, 1e-4), Check("shift", "holds", 2e-5, 2e-4),
    )  # fmt: skip
    ids = np.arange(T) % len(PIECES)
    return Rotation(
        "story-llama", layer, ids, PIECES, q, k, turned(q), turned(k), turned(k), np.array(freqs), 1.0, 256,
        SHIFT, checks,
    )  # fmt: skip


def misplaced() -> Misplaced:
    """Two tokens in all; off by 2 the second is another one, off by -1 neither."""
    return Misplaced(
        "story-gpt2", PIECES, 9, np.array([-1, 0, 2]), np.array([0.25, 0.0, 1.5]), np.array([[1, 2], [1, 2], [1, 3]]),
        Evicted(8, 1, 3, 8, 4, 4.25, 1e-3), 1e-3,
    )  # fmt: skip


def far(scalings: int = 4) -> Lengths:
    """128 positions: losses 3 and then 4 (plain), 5 throughout (linear), 3.5 (YaRN); the table's 2.5."""
    plain = np.array([3.0] * 64 + [4.0] * 64)
    curves = (
        Curve("story-llama", "none", 1.0, 64, plain, 2),
        Curve("story-llama", "linear", 4.0, 64, np.full(128, 5.0), 2),
        Curve("story-llama", "yarn", 4.0, 64, np.full(128, 3.5), 2),
        Curve("story-gpt2", "none", 1.0, 1024, np.full(128, 2.5), 2),
    )
    at = np.array([250, 257, 280])
    kept = tuple(
        Kept(s, at, np.array([1e-6, 0.25, 4.5] if s == "dynamic" else [1e-6, 2e-6, 3e-6]), 1e-3, 256)
        for s in SCALINGS[:scalings]
    )
    return Lengths(curves, kept, 12, 12, ("story-gpt2", 1025))
