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


def causal_scores_with_cache(P: int, N: int) -> int:
    """Those of `scores_with_cache` that the causal mask leaves: 1 + 2 + … + (P+N-1), each key-query pair once."""
    return causal(P + N - 1)


def causal_scores_without_cache(P: int, N: int) -> int:
    """Those of `scores_without_cache` that the causal mask leaves: sum of t(t+1)/2 for t = P .. P+N-1."""
    return sum(causal(t) for t in range(P, P + N))


def causal(t: int) -> int:
    """Visible cells of a causal square of t queries: t(t+1)/2."""
    return t * (t + 1) // 2


def flops(
    rows: int,
    scores: int,
    passes: int,
    *,
    matrix_values: int,
    heads: int,
    head_dim: int,
    layers: int,
    output_values: int,
) -> int:
    """Floating-point operations of matrix products, a multiplication and an addition counted as two.

    2 · (weights of the layers' matrices) a row; 4 · D · H · L a score, for Q·K and for weight·V; 2 · (V · width) a
    pass, for the logits of its last row. As in Kaplan et al. 2020, section 2.1, with attention as full rectangles.
    """
    return 2 * matrix_values * rows + 4 * head_dim * heads * layers * scores + 2 * output_values * passes
