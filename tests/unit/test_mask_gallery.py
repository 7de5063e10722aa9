"""The masks a program uses: shapes and counts worked out on paper, and logits that are those of the plain run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.engine import masks
from kvviz.features.attention.measure import masks as mask_gallery
from tests.unit.conftest import refused

IDS = list(range(40, 52))


@pytest.fixture(scope="module")
def galleries(story_gpt2, story_llama):
    return {m.facts.name: mask_gallery.gallery(m, IDS) for m in (story_gpt2, story_llama)}


@pytest.fixture(params=["story-gpt2", "story-llama"])
def gallery(request, galleries):
    return galleries[request.param]


def test_causal_shows_half_and_the_diagonal(gallery):
    (causal,) = gallery.of("causal")
    assert causal.shape == (12, 12) and causal.count == 78  # 12 · 13 / 2
    assert causal.by_row == list(range(1, 13))
    assert np.array_equal(causal.visible, np.tril(np.ones((12, 12), dtype=bool)))


def test_causal_at_four_shows_ten_of_sixteen():
    """D11"""
    assert masks.causal(4, 4).sum() == 10 and masks.causal(4, 4).numel() == 16


def test_decode_is_one_row_with_everything_visible(gallery):
    (row,) = gallery.of("decode")
    assert row.shape == (1, 12) and row.count == 12 and row.cached == 11


def test_the_second_chunk_of_5_4_3_is_4_by_9_with_6_7_8_9_visible(gallery):
    """A21"""
    chunks = gallery.of("chunk")
    assert [c.shape for c in chunks] == [(5, 5), (4, 9), (3, 12)]
    assert [c.by_row for c in chunks] == [[1, 2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 12]]
    assert [c.cached for c in chunks] == [0, 5, 9]
    # row r of the second chunk stands at position 5 + r and sees keys 0 .. 5 + r
    assert [np.flatnonzero(row).max() for row in chunks[1].visible] == [5, 6, 7, 8]


def test_a_window_counts_the_query_itself(gallery):
    """A19: min(i + 1, W) keys."""
    (window,) = gallery.of("window")
    assert window.by_row == [min(i + 1, 4) for i in range(12)]
    assert window.hidden.sum() == 8 * 9 // 2  # rows 4 .. 11 lose 1 .. 8 keys
    assert not (window.hidden & window.ahead).any()


def test_padding_takes_columns_and_is_not_the_causal_mask(gallery, story_gpt2):
    """A03, D11: two reasons, never in one cell; positions 0 .. n-1 from the first real token."""
    long, short = gallery.of("padding")
    T, n = long.shape[0], int((short.ids >= 0).sum())
    pads = T - n
    assert n == len(story_gpt2.encode("Hello, my dog is"))
    assert long.hidden.sum() == 0 and long.count == T * (T + 1) // 2
    assert short.count == n * (n + 1) // 2
    assert not short.visible[:, :pads].any() and not short.visible[:pads].any()
    assert not (short.hidden & short.ahead).any()
    assert (short.visible | short.hidden | short.ahead).all()
    assert short.positions.tolist() == [0] * pads + list(range(n))


def test_gpt2_s_own_ids_of_the_padded_batch(tiny_gpt2):
    """A03 with GPT-2's vocabulary: 7 and 5 tokens, 2 pads, positions of the real tokens 0 .. 4."""
    long, short = mask_gallery.gallery(tiny_gpt2, [464, 3139, 286, 4881, 318]).of("padding")
    assert long.shape == (7, 7)
    assert short.ids.tolist() == [-1, -1, 15496, 11, 616, 3290, 318]
    assert short.positions.tolist() == [0, 0, 0, 1, 2, 3, 4]
    assert short.count == 15


def test_logits_are_those_of_the_plain_run_where_they_must_be(gallery):
    for name in ("decode", "chunk", "padding", "window"):
        found = gallery.comparison(name)
        assert found.must_equal and found.max_abs_dlogit <= 1e-3 and found.same_token and found.holds
    assert gallery.comparison("window_full").max_abs_dlogit > 0.1  # a window is an approximation


def test_positions_left_to_the_model_hurt_a_learned_table_and_not_rope(galleries):
    assert galleries["story-gpt2"].comparison("padding_default").max_abs_dlogit > 0.1
    assert galleries["story-llama"].comparison("padding_default").max_abs_dlogit <= 1e-3


def test_a_wrong_mask_is_found_out(story, monkeypatch):
    """With the triangle at the upper left, as PyTorch's `is_causal=True` has it, no chunk after the first is right."""

    def upper_left(Tq, T, device="cpu"):
        return torch.ones(Tq, T, dtype=torch.bool, device=device).tril()[None, None]

    monkeypatch.setattr(masks, "causal", upper_left)
    found = mask_gallery.gallery(story, IDS)
    assert not found.comparison("chunk").holds
    assert not found.comparison("decode").holds
    assert found.of("chunk")[1].by_row == [1, 2, 3, 4]


def test_a_short_text_is_said_again_and_none_is_refused(story_gpt2):
    found = mask_gallery.gallery(story_gpt2, [7, 8])
    assert found.ids.tolist() == [7, 8] * 6
    refused("empty_prompt", mask_gallery.gallery, story_gpt2, [])
    refused("id_out_of_range", mask_gallery.gallery, story_gpt2, [4096])


def test_padded_masks_and_positions_by_hand():
    mask = masks.left_padded([3, 2])
    assert mask.shape == (2, 1, 3, 3)
    assert mask[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert mask[1, 0].int().tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert masks.padded_positions([3, 2]).tolist() == [[0, 1, 2], [0, 0, 1]]


def test_nothing_of_a_gallery_is_kept_in_the_model(story):
    """Passes after it are what they were before."""
    from kvviz.engine import Session

    before = Session(story, "Once upon a time").advance(3)
    mask_gallery.gallery(story, IDS)
    after = Session(story, "Once upon a time").advance(3)
    assert before.new_ids.tolist() == after.new_ids.tolist()
