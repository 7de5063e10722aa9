"""The ladder: every lane writes the same tokens; what it holds and copies, and the floor, by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from kvviz import cli
from kvviz.engine import bench, growth, ladder, rates
from kvviz.records.facts import MachineFacts
from kvviz.records.ladder import Ladder, Rates, Rung
from kvviz.records.race import Spread
from kvviz.refusal import Refusal
from tests.factories import model_facts

P, N = 12, 6
MACHINE = MachineFacts("cpu", "Test CPU", 2, "3.11.7", "2.13.0", "5.24.0", "Linux x86_64")
KNOWN = Rates(Spread(10e9, 10e9, 10e9, 1), Spread(100e9, 100e9, 100e9, 1))


@pytest.mark.parametrize("name", ["story_gpt2", "story_llama"])
def test_every_lane_writes_what_generate_writes(name, request):
    model = request.getfixturevalue(name)
    found = ladder.climb(model, "Once upon a time", P, N, rounds=2, known=KNOWN)
    said = model.encode("Once upon a time")
    ids = torch.tensor([(said * P)[:P]])
    whole = model.module.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=N,
                                  min_new_tokens=N, pad_token_id=0)  # fmt: skip
    assert [(r.cache, r.kernel) for r in found.rungs] == list(ladder.RUNGS) and len(found.rungs) == 6
    for rung in found.rungs:
        assert rung.chosen.tolist() == whole[0, P:].tolist(), rung.name
        assert (rung.ttft.shape, rung.later.shape) == ((2,), (2, N - 1))
        assert (rung.later > 0).all() and (rung.ttft > 0).all()
        # 12 prompt tokens and 5 more: the last one chosen is never fed
        held = {"story_gpt2": 17 * 12_288, "story_llama": 17 * 3_072}[name]
        assert rung.held == (0 if rung.cache == "none" else held), rung.name
    assert found.generate.shape == (2,)


def test_the_shared_model_is_left_as_it_was(story_gpt2):
    before = story_gpt2.module.config._attn_implementation
    ladder.climb(story_gpt2, "Once", 3, 2, rungs=(("concatenated", "eager"),), rounds=1, known=KNOWN)
    assert story_gpt2.module.config._attn_implementation == before


def made(tpot: dict[tuple[str, str], list[float]], generate: list[float]) -> Ladder:
    """GPT-2 small's sizes, 5 + 20 tokens."""
    model = model_facts(12, 12, 12, 64, name="gpt2", vocab_size=50_257)
    rungs = tuple(
        Rung(*rung, np.array([9.0] * len(ms)), np.repeat(np.array(ms)[:, None], 19, axis=1), 0, np.zeros(20, np.int64))
        for rung, ms in tpot.items()
    )
    return Ladder(model, MACHINE, 5, 20, rungs, np.array(generate), KNOWN, 84_934_656)


def test_bytes_operations_and_floor_of_gpt2_small():
    """Case A27, and by hand: 85 M weights in matrices and 50,257 × 768 in the output matrix, four bytes each."""
    found = made({("none", "sdpa"): [50.0], ("concatenated", "sdpa"): [30.0]}, [20.0])
    assert found.copied == 19_611_648 and found.written == 1_400_832
    matrices = 12 * (4 * 768 * 768 + 8 * 768 * 768)
    assert matrices == 84_934_656
    assert found.moved == (matrices + 50_257 * 768) * 4 + 15 * 73_728
    assert found.flops == 2 * (matrices + 50_257 * 768) + 4 * 64 * 12 * 12 * 15
    # 495,234,048 bytes at 10 GB/s take longer than 247,617,024 operations at 100 GFLOP/s
    assert (found.moved, found.flops) == (495_234_048, 247_617_024)
    assert found.floor_ms == pytest.approx(49.5234, abs=1e-4)


def test_the_fastest_keeps_a_cache_and_is_compared_round_by_round():
    lanes = {("none", "sdpa"): [1.0, 1.0, 1.0], ("concatenated", "eager"): [30.0, 40.0, 20.0],
             ("preallocated", "sdpa"): [25.0, 26.0, 90.0]}  # fmt: skip
    found = made(lanes, [20.0, 26.0, 60.0])
    assert found.fastest.name == "preallocated, sdpa"  # medians 26 and 30
    assert found.to_generate.median == 1.25  # of 1.25, 1.00 and 1.50
    with pytest.raises(ValueError):
        _ = made({("none", "sdpa"): [1.0]}, [1.0]).fastest


def test_rates_count_both_ways_of_a_copy(monkeypatch):
    class Clock:
        ms = 4.0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

    monkeypatch.setattr(rates, "timed", lambda device: Clock())
    found = rates.measure(torch.device("cpu"), torch.float32, rounds=3, copied=2_000_000)
    assert found.bandwidth == Spread(1e9, 1e9, 1e9, 3)  # 4 MB in 4 ms
    assert found.flop_rate.median == pytest.approx(2 * 1024**3 / 0.004)


def test_refusals_come_before_anything_runs(story_gpt2):
    for text, length, code in (("", 5, "empty_prompt"), ("Once", 1025, "too_long"), ("Once", 1020, "too_many_new")):
        with pytest.raises(Refusal) as refused:
            ladder.climb(story_gpt2, text, length, N)
        assert refused.value.code == code
    with pytest.raises(ValueError):
        ladder.climb(story_gpt2, "Once", 5, 1)


def test_bench_prints_and_writes_the_ladder(monkeypatch, capsys, tmp_path, story_gpt2):
    monkeypatch.setattr(bench, "random_gpt2_small", lambda **_: story_gpt2)
    monkeypatch.setattr(rates, "measure", lambda *_: KNOWN)
    file = tmp_path / "ladder.json"
    arguments = ["--only", "ladder", "--prompt-tokens", "5", "--new-tokens", "20", "--lanes", "none,sdpa",
                 "concatenated,sdpa", "--device", "cpu", "--json", str(file)]  # fmt: skip
    assert cli.main(["bench", *arguments]) == 0
    found = json.loads(file.read_text())["ladder"]
    assert list(found["lanes"]) == ["none, sdpa", "concatenated, sdpa"]
    assert found["lanes"]["concatenated, sdpa"]["held_bytes"] == 24 * 12_288
    assert found["copied_bytes"] == 266 * 12_288 and found["written_bytes"] == 19 * 12_288 and found["same_tokens"]
    said = capsys.readouterr().out
    assert "equal in all lanes" in said and f"{266 * 12_288:,} bytes" in said and "x the floor" in said
    with pytest.raises(SystemExit):
        cli.main(["bench", "--only", "ladder", "--new-tokens", "1"])
    assert "no whole number from 2 up" in capsys.readouterr().err


def test_matrix_values_of_gpt2_small_on_paper(story_gpt2):
    """12 · width² in each layer, of story-gpt2: 6 layers of 256."""
    assert growth.matrix_values(story_gpt2) == 6 * 12 * 256**2
