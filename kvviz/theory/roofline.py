"""The roofline: what a device can do at best, from two rates. Williams, Waterman and Patterson 2009.

Arithmetic intensity is floating-point operations a byte moved. Rates are FLOP/s and bytes/s, times milliseconds.
"""

from __future__ import annotations


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
