"""Bytes of a KV cache."""

from __future__ import annotations


def kv_bytes(layers: int, kv_heads: int, head_dim: int, positions: int, value_bytes: int, batch: int = 1) -> int:
    """2 · L · Hkv · D · T · B · (bytes a value): K and V, each (B, Hkv, T, D), in every layer."""
    return 2 * layers * kv_heads * head_dim * positions * batch * value_bytes


def human(n: int | None) -> str:
    """Bytes in binary units, three significant digits: 1.69 MiB, 1.00 GiB. Below 1 KiB: `n bytes`. None: `n/a`."""
    if n is None:
        return "n/a"
    value, unit = float(n), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    if unit == "bytes":
        return f"{n:,} bytes"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} {unit}"
