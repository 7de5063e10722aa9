"""When a proof holds, when it is rounding, and that it can fail."""

from __future__ import annotations

import pytest
import torch

from kvviz.engine import Session, load, proofs
from kvviz.records.step import TwinPass
from kvviz.refusal import Refusal

TALE = "Dorothy and the Tin Woodman"


def twin(dlogit: float, same: bool = True, dkv: float = 0.0) -> TwinPass:
    return TwinPass(1.0, 5, 0, same, dlogit, dkv, 0.01)


@pytest.mark.parametrize(
    ("dtype", "record", "verdicts"),
    [
        ("float32", twin(2e-5), ("holds", "holds", "holds")),
        ("float32", twin(0.002), ("holds", "fails", "holds")),
        ("float32", twin(1e-5, same=False), ("fails", "holds", "holds")),
        ("float32", twin(1e-5, dkv=0.01), ("holds", "holds", "fails")),
        ("float16", twin(0.16, same=False), ("rounding", "rounding", "holds")),
        ("float16", twin(3.0, same=False), ("fails", "fails", "holds")),
        ("bfloat16", twin(0.92, same=False, dkv=0.1), ("rounding", "rounding", "rounding")),
        ("bfloat16", twin(5.0), ("holds", "fails", "holds")),
    ],
)
def test_verdicts(dtype, record, verdicts):
    """A01, A02: fp32 either holds or fails; half precision may round, within its tolerance."""
    made = proofs.of_twin(record, 1.0, dtype)
    assert tuple(p.verdict for p in made) == verdicts
    assert [p.name for p in made] == ["tokens", "logits", "same_kv"]
    assert made[1].value == record.max_abs_dlogit


def test_a_wrong_position_makes_the_proofs_fail(story_gpt2, monkeypatch):
    """The proofs can fail: keys computed at other positions are found out."""
    from kvviz.engine import passes

    real = torch.arange
    session = Session(story_gpt2, TALE)
    session.prefill()
    monkeypatch.setattr(
        passes.torch, "arange", lambda a, b=None, **kw: real(a, b, **kw) + 1 if b == 10 else real(a, b, **kw)
    )
    step = session.decode_one_token()
    monkeypatch.undo()
    verdicts = {p.name: p.verdict for p in step.proofs}
    assert verdicts["same_kv"] == "fails"
    assert verdicts["logits"] == "fails"
    assert verdicts["length"] == verdicts["bytes"] == "holds"


def test_half_precision_is_asked_for_by_name(story_gpt2):
    assert story_gpt2.facts.dtype == "float32"  # though the file holds float16
    assert next(story_gpt2.module.parameters()).dtype == torch.float32
    half = load("story-gpt2", device="cpu", dtype="bfloat16")
    run = Session(half, TALE).advance(4)
    assert run.steps[-1].kv_bytes == 12 * 6_144
    assert {p.verdict for s in run.steps for p in s.proofs} <= {"holds", "rounding"}
    with pytest.raises(Refusal, match="int4"):
        load("story-gpt2", device="cpu", dtype="int4")
