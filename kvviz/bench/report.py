"""What every benchmark prints: a heading, one line a figure, and how fast the machine was at that moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median, quantiles

from kvviz.features.race.record import Spread


def show(label: str, value: str) -> None:
    print(f"  {label:<46} {value}", flush=True)


def ms(spread: Spread) -> str:
    return f"{spread.median:8.2f} ms ({spread.low:.2f} - {spread.high:.2f})"


def target(ratio: Spread, limit: float) -> str:
    verdict = "met" if ratio.median <= limit else "MISSED"
    return f"{ratio.median:8.3f} x  ({ratio.low:.3f} - {ratio.high:.3f})   target <= {limit}: {verdict}"


def times(label: str, found: Sequence[float], limit: float | None = None, more: str = "") -> None:
    """Milliseconds: median, 95th percentile, least and most. With a `limit`, whether the median is within it."""
    if not found:
        return not_measured(label, "nothing came")
    last = quantiles(found, n=20, method="inclusive")[-1] if len(found) > 1 else found[0]
    line = f"{median(found):8.1f} ms   p95 {last:.1f}   {min(found):.1f} - {max(found):.1f}   n = {len(found)}"
    if limit is not None:
        line += f"   target <= {limit:,g} ms: {'met' if median(found) <= limit else 'MISSED'}"
    show(label, line + (f"   {more}" if more else ""))
    return None


def not_measured(label: str, why: str) -> None:
    show(label, f"NOT MEASURED: {why}")


def pace() -> float:
    """Seconds that ten million additions take in a plain loop now: printed, for whoever reads the figures later."""
    begun, total = time.perf_counter(), 0
    for i in range(10_000_000):
        total += i
    seconds = time.perf_counter() - begun
    show("the machine's pace: ten million additions", f"{seconds:8.2f} s")
    return seconds
