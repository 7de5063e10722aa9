"""The roofline by hand, and the count of operations against PyTorch's own counter at GPT-2 small's size."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from kvviz.engine.cache_api import argument_name
from kvviz.theory import roofline, work


def test_bytes_decide_below_the_ridge_and_arithmetic_above():
    """A device of 100 GFLOP/s and 20 GB/s has its ridge at 5 FLOP a byte."""
    assert roofline.ridge(100e9, 20e9) == 5
    assert roofline.attainable(0.5, 100e9, 20e9) == 10e9
    assert roofline.attainable(5, 100e9, 20e9) == roofline.attainable(64, 100e9, 20e9) == 100e9
    assert roofline.floor_ms(1e9, 1e9, 100e9, 20e9) == 50  # 10 ms of arithmetic, 50 ms of bytes
    assert roofline.floor_ms(10e9, 1e9, 100e9, 20e9) == 100
    assert roofline.share(1e9, 100, 20e9) == 0.5  # 10 GB/s of 20


@pytest.fixture(scope="module")
def small():
    with torch.device("meta"):
        return GPT2LMHeadModel(GPT2Config(attn_implementation="eager")).eval()


@pytest.mark.parametrize(("held", "rows"), [(0, 64), (0, 512), (512, 1)])
def test_operations_agree_with_the_counter_of_pytorch(small, held, rows):
    """Eager attention, full rectangles, logits of the last row; tensors without data."""
    ids = torch.zeros(1, rows, dtype=torch.long, device="meta")
    positions = torch.zeros(1, rows, dtype=torch.long, device="meta")
    mask = torch.zeros(1, 1, rows, held + rows, device="meta")
    carried = {}
    if held:
        cache = DynamicCache()
        for layer in range(12):
            cache.update(*(torch.zeros(1, 12, held, 64, device="meta") for _ in range(2)), layer)
        carried = {argument_name(type(small)): cache}
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        small(input_ids=ids, position_ids=positions, attention_mask=mask, logits_to_keep=1, use_cache=bool(held),
              **carried)  # fmt: skip
    counted = counter.get_total_flops()
    by_formula = work.flops(
        rows, rows * (held + rows), 1, matrix_values=12 * 12 * 768**2, heads=12, head_dim=64, layers=12,
        output_values=50_257 * 768,
    )  # fmt: skip
    assert counted > 0 and abs(by_formula / counted - 1) <= 0.01, (by_formula, counted)
