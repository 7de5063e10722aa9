"""Bytes of a KV cache: by its shape, by its precision, and on several GPUs."""

from __future__ import annotations


def kv_bytes(layers: int, kv_heads: int, head_dim: int, positions: int, value_bytes: int, batch: int = 1) -> int:
    """2 · L · Hkv · D · T · B · (bytes a value): K and V, each (B, Hkv, T, D), in every layer."""
    return 2 * layers * kv_heads * head_dim * positions * batch * value_bytes


def stored(positions: int, window: int = 0) -> int:
    """Positions that a layer has to keep: all, or the newest `window` (0: no window)."""
    return min(positions, window) if window else positions


def packed_bytes(values: int, bits: int, group: int = 0, extra_bits: int = 0) -> int:
    """Bytes of `values` numbers of `bits` bits each, with `extra_bits` (a scale, a zero point) for each `group`.

    An unfinished group has its scale all the same; an unfinished byte counts as one. KIVI (arXiv 2402.02750) with a
    group of 64, a 16-bit scale and a 16-bit zero: 8.5 bits a value for int8, 4.5 for int4.
    """
    groups = -(-values // group) if group else 0
    return -(-(values * bits + groups * extra_bits) // 8)


def heads_a_gpu(kv_heads: int, gpus: int) -> int:
    """KV heads that each of `gpus` holds under tensor parallelism: a share, rounded up; never less than one.

    With fewer KV heads than GPUs each is held by several (replicated), so that more GPUs shrink the cache no further.
    """
    return max(1, -(-kv_heads // gpus))


def split_evenly(heads: int, kv_heads: int, gpus: int) -> bool:
    """Whether serving engines take that number under tensor parallelism: it divides the query heads, and the KV heads
    too, or each KV head is held by equally many GPUs."""
    return heads % gpus == 0 and (kv_heads % gpus == 0 or gpus % kv_heads == 0)


def working_bytes(rows: int, positions: int, heads: int, head_dim: int, width: int, vocab: int, size: int) -> int:
    """Bytes of one layer's largest arrays in a pass and of the last row's logits, with values of `size` bytes.

    Hidden rows in and out (2 · Tq · width), Q and the heads' result (2 · H · Tq · D), scores and attention weights
    (2 · H · Tq · T, none of which a fused kernel keeps), logits (vocabulary). What is inside the MLP is not counted.
    """
    return size * (2 * rows * width + 2 * heads * rows * head_dim + 2 * heads * rows * positions + vocab)


def decimal(n: int) -> str:
    """Bytes in decimal units, four digits, to stand beside `human`: 2.147 GB."""
    value, unit = float(n), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.95:
            break
        value, unit = value / 1000, larger
    if unit == "bytes":
        return f"{n:,} bytes"
    digits = 3 if value < 9.9995 else 2 if value < 99.995 else 1
    return f"{value:,.{digits}f} {unit}"


def human(n: int | None) -> str:
    """Bytes in binary units, three significant digits: 1.69 MiB, 1.00 GiB. Below 1 KiB: `n bytes`. None: `n/a`."""
    if n is None:
        return "n/a"
    value, unit = _binary(n)
    return f"{n:,} bytes" if unit == "bytes" else f"{value:,.{_decimals(value)}f} {unit}"


def precise(n: int) -> str:
    """As `human`, with a fourth digit where three are not exact: 11.25 GiB, 3.125 GiB, but 1.00 GiB."""
    value, unit = _binary(n)
    digits = _decimals(value)
    if unit == "bytes" or value >= 1000 or (value * 10**digits).is_integer():
        return human(n)
    return f"{value:,.{digits + 1}f} {unit}"


def _binary(n: int) -> tuple[float, str]:
    """A number of bytes in the largest binary unit that it reaches."""
    value, unit = float(n), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return value, unit


def _decimals(value: float) -> int:
    """Decimals that make three significant digits."""
    return 2 if value < 10 else 1 if value < 100 else 0


def written_after_prefill(N: int, token_bytes: int) -> int:
    """Bytes of K and V that the N - 1 passes after prefill add: one position each."""
    return (N - 1) * token_bytes


def copied_by_concatenation(P: int, N: int, token_bytes: int) -> int:
    """Bytes of older rows that a cache grown by concatenation copies along: all t of them before each append,
    t = P .. P+N-2."""
    return sum(range(P, P + N - 1)) * token_bytes
