"""How much is computed with and without a cache. P prompt tokens, N new tokens.

N passes choose N tokens: pass 0 is fed the prompt, pass s >= 1 one token, so the prefix of pass s has
P + s positions and the cache holds P + N - 1 at the end.
"""

from __future__ import annotations


def rows_with_cache(P: int, N: int) -> int:
    """Token rows projected with a cache: the prompt once, then one a pass: P + N - 1."""
    return P + N - 1


def rows_without_cache(P: int, N: int) -> int:
    """Token rows projected without: the whole prefix every pass, sum of t for t = P .. P+N-1."""
    return sum(range(P, P + N))


def scores_with_cache(P: int, N: int) -> int:
    """Attention scores a head and layer, as full rectangles: P² + sum of t for t = P+1 .. P+N-1."""
    return P * P + sum(range(P + 1, P + N))


def scores_without_cache(P: int, N: int) -> int:
    """Attention scores a head and layer, as full squares: sum of t² for t = P .. P+N-1."""
    return sum(t * t for t in range(P, P + N))
