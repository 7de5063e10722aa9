"""How a position gets into attention: angles of RoPE and their scalings, ALiBi's bias. Plain numbers, no tensors.

A learned table has no formula: a row a position, and none after the last.

Sources: RoPE, Su et al. 2021 ("RoFormer"); ALiBi, Press et al. 2021 ("Train Short, Test Long"); linear scaling, Chen
et al. 2023 ("Extending Context Window of Large Language Models via Positional Interpolation"); NTK-aware scaling and
its dynamic form, bloc97 and emozilla 2023, as written down by Peng et al.; YaRN, Peng et al. 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def frequencies(D: int, theta: float = 10_000.0) -> list[float]:
    """(D/2) radians a position: pair i turns by θ^(-2i/D), the first fastest (Su et al. 2021, §3.2.2)."""
    return [theta ** (-2 * i / D) for i in range(D // 2)]


def wavelength(frequency: float) -> float:
    """Positions until a pair has turned once around: 2π / frequency."""
    return 2 * math.pi / frequency


def rotate(pair: tuple[float, float], angle: float) -> tuple[float, float]:
    """A pair of dimensions turned by that angle (radians)."""
    a, b = pair
    c, s = math.cos(angle), math.sin(angle)
    return a * c - b * s, b * c + a * s


def rotated(x: Sequence[float], position: float, freqs: Sequence[float]) -> list[float]:
    """(D) turned to a position: dimensions i and i + D/2 are a pair, as in Llama's weights.

    (RoFormer pairs 2i with 2i + 1; the weights are in another order then, the scores are the same.)
    """
    half = len(x) // 2
    pairs = [rotate((x[i], x[i + half]), position * freqs[i]) for i in range(half)]
    return [a for a, _ in pairs] + [b for _, b in pairs]


def score(q: Sequence[float], k: Sequence[float], distance: float, freqs: Sequence[float]) -> float:
    """q at position m against k at position m - distance, for any m: Σ |q_i| |k_i| cos(distance · ω_i + φ_i), where φ_i
    is the angle from k's pair i to q's. The position itself has gone from it (Su et al. 2021, eq. 16)."""
    half, total = len(q) // 2, 0.0
    for i in range(half):
        size = math.hypot(q[i], q[i + half]) * math.hypot(k[i], k[i + half])
        angle = math.atan2(q[i + half], q[i]) - math.atan2(k[i + half], k[i])
        total += size * math.cos(distance * freqs[i] + angle)
    return total


def linear(freqs: Sequence[float], factor: float) -> list[float]:
    """Every position counts as 1/factor of one: all frequencies divided (Chen et al. 2023)."""
    return [f / factor for f in freqs]


def ntk_theta(theta: float, D: int, scale: float) -> float:
    """θ · scale^(D / (D - 2)): the slowest pair slows by `scale`, the fastest hardly (NTK-aware scaling)."""
    return theta * scale ** (D / (D - 2))


def dynamic_ntk(D: int, theta: float, factor: float, trained: int, length: int) -> list[float]:
    """Frequencies while the text is `length` long: unchanged up to `trained`, then slower with every token
    (dynamic NTK; Peng et al. 2023, appendix B.2, with transformers' reading of `factor`)."""
    length = max(length, trained)
    return frequencies(D, ntk_theta(theta, D, factor * length / trained - (factor - 1)))


def yarn(
    D: int, theta: float, factor: float, trained: int, fast: float = 32.0, slow: float = 1.0
) -> tuple[list[float], float]:
    """Frequencies, and what q and k are multiplied by after the rotation (Peng et al. 2023, eq. 17 to 22).

    Pairs that turn more than `fast` times within the trained length stay, those that turn less than `slow` times are
    divided by `factor`, between the two it goes over in a straight line. The multiplier is 0.1 · ln(factor) + 1.
    """

    def pair_that_turns(times: float) -> float:
        return D * math.log(trained / (times * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(pair_that_turns(fast)), 0), min(math.ceil(pair_that_turns(slow)), D - 1)
    span = high - low or 0.001
    out = []
    for i, f in enumerate(frequencies(D, theta)):
        ramp = min(1.0, max(0.0, (i - low) / span))
        out.append(f * (1 - ramp) + f / factor * ramp)
    return out, 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def alibi_slopes(H: int) -> list[float]:
    """A slope a head: 2^(-8/H), 2^(-16/H), …, 2^-8 for a power of two; else those of the next lower one, and every
    other of its double (Press et al. 2021, §3 and their code)."""
    lower = 2 ** math.floor(math.log2(H))
    slopes = [2 ** (-8 * (i + 1) / lower) for i in range(lower)]
    return slopes + [2 ** (-8 * (i + 1) / (2 * lower)) for i in range(0, 2 * (H - lower), 2)]


def alibi(slope: float, T: int) -> list[list[float | None]]:
    """(T, T) added to the scores: -slope · (i - j) for the key at j and the query at i; None where j lies ahead."""
    return [[-slope * (i - j) if j <= i else None for j in range(T)] for i in range(T)]
