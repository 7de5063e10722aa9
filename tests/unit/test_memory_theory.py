"""Bytes by precision, window and GPU, and a serving engine's budget, against published figures and real logs."""

from __future__ import annotations

import pytest

from kvviz.theory import capacity
from kvviz.theory.memory import (
    decimal,
    heads_a_gpu,
    kv_bytes,
    packed_bytes,
    precise,
    split_evenly,
    stored,
    working_bytes,
)

GIB = 2**30


def test_int8_and_int4_carry_their_scales():
    """E18: GPT-2 small holds 2·12·12·64 = 18,432 values a token; 36,864 bytes in fp16. Groups of 64 with a 16-bit
    scale and zero are 8.5 and 4.5 bits a value."""
    values = 36_864 // 2
    assert packed_bytes(values, 16) == 36_864
    assert packed_bytes(values, 8, 64, 32) == 19_584
    assert packed_bytes(values, 4, 64, 32) == 10_368
    assert 36_864 / 19_584 == pytest.approx(1.88, abs=0.005)
    assert 36_864 / 10_368 == pytest.approx(3.56, abs=0.005)


def test_an_unfinished_group_has_its_scale_too():
    """65 values of 4 bits are 260 bits, two groups 64 more: 324 bits, 40.5 bytes."""
    assert packed_bytes(65, 4, 64, 32) == 41
    assert packed_bytes(3, 4) == 2


def test_a_window_keeps_the_newest():
    """E07: Mistral-7B-v0.1, fp16: 512 MiB with its window of 4,096, 4,096 MiB without; flat beyond it."""
    with_window = kv_bytes(32, 8, 128, stored(32_768, 4_096), 2)
    assert with_window == 512 * 2**20
    assert kv_bytes(32, 8, 128, stored(32_768), 2) == 4_096 * 2**20
    assert stored(4_096, 4_096) == stored(10**6, 4_096) == 4_096
    assert stored(100, 4_096) == 100


@pytest.mark.parametrize(
    ("L", "Hkv", "positions", "batch", "gib"),
    [
        (80, 8, 32_768, 1, 10),  # E05: Llama-3-70B
        (80, 64, 32_768, 1, 80),
        (32, 32, 32_768, 1, 16),  # Llama-2-7B
        (80, 8, 131_072, 1, 40),
        (96, 96, 2_048 + 512, 1, 11.25),  # GPT-3
        (96, 96, 2_048 + 512, 8, 90),
        (32, 32, 4_096, 1, 2),  # E04
        (32, 32, 2_048, 1, 1),
        (32, 8, 8_192, 1, 1),  # E01
    ],
)
def test_worked_examples_agree_with_each_other(L, Hkv, positions, batch, gib):
    assert kv_bytes(L, Hkv, 128, positions, 2, batch=batch) == gib * GIB


def test_gib_is_not_gb():
    """E04: 2.00 GiB are 2.147 GB."""
    assert decimal(2 * GIB) == "2.147 GB"
    assert decimal(10 * GIB) == "10.74 GB"  # E05
    assert [decimal(n) for n in (999, 10_485_760, 10**12, 999_999)] == ["999 bytes", "10.49 MB", "1.000 TB", "1.000 MB"]


def test_kv_heads_are_shared_out_and_then_replicated():
    assert [heads_a_gpu(8, n) for n in (1, 2, 4, 8, 16)] == [8, 4, 2, 1, 1]
    assert heads_a_gpu(1, 8) == 1
    assert heads_a_gpu(3, 2) == 2


def test_working_room_by_hand():
    """2 rows, 3 positions, 4 heads of 5, width 20, 7 words: (80 + 80 + 48 + 7) values."""
    assert working_bytes(2, 3, 4, 5, 20, 7, 4) == 4 * 215


def test_the_largest_that_fits():
    for room in range(0, 50):
        assert capacity.largest(lambda n: 3 * n + 4, room, 12) == max(
            [n for n in range(1, 13) if 3 * n + 4 <= room] or [0]
        )
    assert capacity.largest(lambda n: n, 10**12, 7) == 7


def test_a_real_log_of_an_engine():
    """E08: 0.90 · 23.58 = 21.22 GiB, less 17.06 and 0.35: 3.81 GiB; Llama-3.1-8B takes 2 MiB a block of 16."""
    block_bytes = kv_bytes(32, 8, 128, 16, 2)
    assert block_bytes == 2 * 2**20
    room = capacity.left_for_cache(23.58, 0.90, 0, 17.06, 0.35)
    assert room == pytest.approx(3.81, abs=0.005)
    # From unrounded figures the log has 1,952; 3.81 GiB are 1,950.7 blocks.
    assert capacity.blocks(room * GIB, block_bytes) == pytest.approx(1_951, abs=1)
    assert capacity.at_once(1_952, 16, 20_000) == pytest.approx(1.56, abs=0.005)
    assert 1_952 * 16 == 31_232


def test_a_length_that_does_not_fit_is_refused():
    """E08: 2.89 GiB with a maximum length of 29,000: 1,478 or 1,479 blocks, 0.82 of one request."""
    count = capacity.blocks(2.89 * GIB, 2 * 2**20)
    assert count in (1_478, 1_479)  # 2.89 is rounded
    assert 1_478 * 16 == 23_648 < 29_000
    assert capacity.at_once(1_478, 16, 29_000) == pytest.approx(0.82, abs=0.005)


def test_concurrency_is_not_a_limit_of_users():
    """E10: 127,626 blocks of 16."""
    assert 127_626 * 16 == 2_042_016
    assert capacity.at_once(127_626, 16, 2_048) == pytest.approx(997.08, abs=0.005)
    assert capacity.blocks_of(800, 16) == 50
    assert 127_626 // capacity.blocks_of(800, 16) == 2_552
    assert capacity.blocks_of(801, 16) == 51


@pytest.mark.parametrize(("utilisation", "left"), [(0.9, 5.8), (0.7, 1.0), (0.6, -1.4)])
def test_the_budget_can_be_negative(utilisation, left):
    """E11: 24 GiB, weights 14, activations 1.5, other 0.3."""
    room = capacity.left_for_cache(24, utilisation, 14, 1.5, 0.3)
    assert room == pytest.approx(left, abs=1e-9)
    assert (capacity.blocks(room * GIB, 2 * 2**20) == 0) == (left < 0)


def test_decimals_lose_no_block():
    """E11: 0.7 · 24 − 14 − 1.5 − 0.3 is 1 GiB, though not in binary fractions: 512 blocks of 2 MiB."""
    assert capacity.blocks(capacity.left_for_cache(24, 0.7, 14, 1.5, 0.3) * GIB, 2 * 2**20) == 512


def test_the_floor_of_a_decode_pass():
    """An H100 (3.35 TB/s) reads 16.75 GB in 5 ms."""
    assert capacity.read_ms(16_000_000_000, 750_000_000, 3.35e12) == pytest.approx(5.0)


def test_a_fourth_digit_where_three_are_not_exact():
    """GPT-3 at 2,560 tokens: 2 · 96 · 96 · 128 · 2,560 · 2 bytes = 11.25 GiB; Llama-2-13B at 4,096: 2 · 40 · 40 · 128
    · 4,096 · 2 = 3.125 GiB. Three digits would read 11.2 and 3.12."""
    assert precise(2 * 96 * 96 * 128 * 2_560 * 2) == "11.25 GiB"
    assert precise(2 * 40 * 40 * 128 * 4_096 * 2) == "3.125 GiB"
    assert [precise(n) for n in (GIB, 90 * GIB, GIB // 2, 100)] == ["1.00 GiB", "90.0 GiB", "512 MiB", "100 bytes"]
    assert precise(16_060_522_496) == "14.96 GiB"  # 14.9575…
    assert precise(GIB - 2**20 // 2) == "1,024 MiB"  # 1,023.5: a fifth digit would be one too many
    assert precise(123 * GIB + GIB // 2) == "123.5 GiB"


def test_numbers_of_gpus_that_a_serving_engine_takes():
    """32 query heads, 8 KV heads: 3 divides neither; 16 holds each KV head twice. 40 and 8: 5 divides the query heads
    alone, 10 is no multiple of 8. 28 and 4 (Qwen2.5-7B): 7 has no whole KV head a GPU, 28 holds each 7 times."""
    assert [n for n in range(1, 33) if split_evenly(32, 8, n)] == [1, 2, 4, 8, 16, 32]
    assert [n for n in range(1, 41) if split_evenly(40, 8, n)] == [1, 2, 4, 8, 40]
    assert [n for n in range(1, 29) if split_evenly(28, 4, n)] == [1, 2, 4, 28]
