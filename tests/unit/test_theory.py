"""Formulas against numbers worked out by hand or by another route."""

from __future__ import annotations

import pytest

from kvviz.theory.memory import human, kv_bytes
from kvviz.theory.work import rows_with_cache, rows_without_cache, scores_with_cache, scores_without_cache


@pytest.mark.parametrize(
    ("P", "N", "with_cache", "without"),
    [
        (5, 20, 24, 290),
        (5, 12, 16, 126),
        (4, 30, 33, 555),
        (100, 100, 199, 14_950),
        (5, 1, 5, 5),  # prefill alone: nothing is saved
        (1, 1, 1, 1),
    ],
)
def test_token_rows(P, N, with_cache, without):
    assert rows_with_cache(P, N) == with_cache
    assert rows_without_cache(P, N) == without


def test_rows_without_a_cache_are_quadratic():
    """Sum of N consecutive numbers from P: N · (2P + N - 1) / 2; doubling N at P = N makes four times as many."""
    for P, N in ((5, 20), (7, 33), (64, 64)):
        assert rows_without_cache(P, N) == N * (2 * P + N - 1) // 2
    assert rows_without_cache(2000, 2000) / rows_without_cache(1000, 1000) == pytest.approx(4, rel=1e-3)


def test_attention_scores():
    """D04: 4,870 against 310 a head and layer for 5 + 20, as full rectangles: cubic against quadratic."""
    assert scores_without_cache(5, 20) == 4_870
    assert scores_with_cache(5, 20) == 310
    assert scores_without_cache(2000, 2000) / scores_without_cache(1000, 1000) == pytest.approx(8, rel=1e-2)
    assert scores_with_cache(2000, 2000) / scores_with_cache(1000, 1000) == pytest.approx(4, rel=1e-2)


@pytest.mark.parametrize(
    ("L", "Hkv", "D", "T", "value_bytes", "expected"),
    [
        (12, 12, 64, 1, 4, 73_728),  # GPT-2 small, fp32, a token
        (12, 12, 64, 16, 4, 1_179_648),  # 5 + 12 tokens: 24 tensors of 49,152 bytes
        (12, 12, 64, 24, 4, 1_769_472),  # A08: 5 + 20 tokens; 25 positions would be 1,843,200
        (12, 12, 64, 1024, 4, 75_497_472),  # its full length: 75 MB
        (6, 8, 32, 1, 4, 12_288),  # story-gpt2
        (6, 2, 32, 1, 4, 3_072),  # story-llama: 2 KV heads serve 8 query heads
        (32, 8, 128, 8192, 2, 2**30),  # E01: Llama-3-8B, bf16; 32 KV heads would be 4 GiB
        (36, 8, 128, 1, 2, 147_456),  # E02: Qwen3-4B, whose head size is not width / heads
        (32, 32, 128, 2048, 2, 2**30),  # Llama-2-7B at 2,048 tokens: exactly 1 GiB
        (96, 96, 128, 2560, 2, 12_079_595_520),  # GPT-3: 11.25 GiB
    ],
)
def test_cache_bytes(L, Hkv, D, T, value_bytes, expected):
    assert kv_bytes(L, Hkv, D, T, value_bytes) == expected
    assert kv_bytes(L, Hkv, D, T, value_bytes, batch=3) == 3 * expected


def test_tensors_of_the_cache():
    """K and V in each of 12 layers are 24 tensors, of 49,152 bytes each at 16 positions."""
    assert kv_bytes(12, 12, 64, 16, 4) == 24 * 49_152


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1024, "1.00 KiB"),
        (1_769_472, "1.69 MiB"),
        (75_497_472, "72.0 MiB"),
        (2**30, "1.00 GiB"),
        (12_079_595_520, "11.2 GiB"),
        (512 * 2**20, "512 MiB"),
        (2**41, "2.00 TiB"),
    ],
)
def test_bytes_in_words_use_binary_units(n, expected):
    """E04: GiB is 2^30 and is called GiB."""
    assert human(n) == expected
