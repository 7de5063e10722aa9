"""The roofline: what a device can do at best, from two rates. Williams, Waterman and Patterson 2009.

Arithmetic intensity is floating-point operations a byte moved. Rates are FLOP/s and bytes/s, times milliseconds.
"""

from __future__ import annotations

import math

from kvviz.theory import work


def attainable(intensity: float, flop_rate: float, bandwidth: float) -> float:
    """FLOP/s at best: min(flop_rate, intensity · bandwidth). Below the ridge the bytes decide, above it the
    arithmetic."""
    return min(flop_rate, intensity * bandwidth)


def ridge(flop_rate: float, bandwidth: float) -> float:
    """The intensity from which arithmetic decides, in FLOP a byte."""
    return flop_rate / bandwidth


def floor_ms(flops: float, moved: float, flop_rate: float, bandwidth: float) -> float:
    """Milliseconds that no pass with so many operations and bytes can be quicker than: the larger of both shares."""
    return 1000 * max(flops / flop_rate, moved / bandwidth)


def share(done: float, ms: float, rate: float) -> float:
    """Part of a rate that was reached: of the bandwidth, with bytes (MBU); of the arithmetic rate, with FLOPs (MFU,
    as in Chowdhery et al. 2022, appendix B)."""
    return done / (ms / 1000) / rate


def moved(weights: int, sequences: int, held: int, new: int, token_bytes: int) -> int:
    """Bytes that a pass has to move at the least: every weight read once, whatever the batch; and for each sequence
    K and V of the positions held, read, and of the new ones, written. Activations stay near the arithmetic and are
    left out."""
    return weights + sequences * (held + new) * token_bytes


def copied_by_a_pass(sequences: int, held: int, token_bytes: int) -> int:
    """Bytes beyond `moved` of a cache that grows by concatenation: older rows are read and written once more."""
    return 2 * sequences * held * token_bytes


def pass_flops(sequences: int, held: int, new: int, **sizes: int) -> int:
    """Operations of a pass over `sequences` texts, each with `new` rows that meet held + new keys: `work.flops`, whose
    sizes are to be given. Logits of the last row of each text."""
    return work.flops(sequences * new, sequences * new * (held + new), sequences, **sizes)


def fed_to_reach(target: float, weights: int, token_bytes: int, flops_a_sequence: int, held: int) -> int | None:
    """Sequences from which a decode step's intensity reaches `target`, or None: K and V are each sequence's own, so
    that intensity grows with the batch only towards flops_a_sequence / ((held + 1) · token_bytes)."""
    left = flops_a_sequence - target * (held + 1) * token_bytes
    return math.ceil(target * weights / left) if left > 0 else None
