"""Positions: the formulas by hand, against a second implementation, and against transformers' own output."""

from __future__ import annotations

import cmath
import dataclasses
import math

import numpy as np
import pytest
import torch

from kvviz.core.refusal import Refusal
from kvviz.engine import Session
from kvviz.features.positions.measure import lengths, positions
from kvviz.features.positions.record import SCALINGS
from kvviz.models.catalog import BUILTIN
from kvviz.theory import positions as theory
from tests.unit import numpy_models
from tests.unit.conftest import refused

TALE = "Once upon a time there was a king who had three sons"


def test_frequencies_by_hand():
    assert theory.frequencies(4, 10_000) == [1.0, 0.01]
    assert theory.frequencies(8, 16) == [1.0, 0.5, 0.25, 0.125]
    assert theory.wavelength(1.0) == pytest.approx(6.283185307)
    assert theory.wavelength(0.01) == pytest.approx(628.3185307)


def test_a_quarter_turn():
    assert theory.rotate((1.0, 0.0), math.pi / 2) == pytest.approx((0.0, 1.0))
    assert theory.rotate((0.0, 2.0), math.pi / 2) == pytest.approx((-2.0, 0.0))
    # (3, 4) at position 2 with frequencies (π/4): a quarter turn
    assert theory.rotated([3.0, 4.0], 2, [math.pi / 4]) == pytest.approx([-4.0, 3.0])


def test_rotation_is_multiplication_by_a_complex_number():
    """A second implementation: pair i is the number x_i + x_(i+D/2)·j, turned by e^(j·p·ω_i)."""
    rng = np.random.default_rng(0)
    x, freqs = rng.normal(size=16), theory.frequencies(16, 500.0)
    for p in (0, 1, 7, 300):
        turned = [complex(x[i], x[i + 8]) * cmath.exp(1j * p * freqs[i]) for i in range(8)]
        expected = [z.real for z in turned] + [z.imag for z in turned]
        assert theory.rotated(x.tolist(), p, freqs) == pytest.approx(expected)


@pytest.mark.parametrize("by", [0, 1, 50, 1000])
def test_a_score_knows_the_distance_only(by):
    rng = np.random.default_rng(1)
    q, k, freqs = rng.normal(size=32).tolist(), rng.normal(size=32).tolist(), theory.frequencies(32)
    for m, n in ((9, 2), (40, 40), (5, 30)):
        product = np.dot(theory.rotated(q, m + by, freqs), theory.rotated(k, n + by, freqs))
        assert theory.score(q, k, m - n, freqs) == pytest.approx(product)


def test_alibi_slopes_and_bias_by_hand():
    """Press et al. 2021: 1/2, 1/4, … 1/256 for 8 heads; for 12 those of 8 and every other of 16."""
    assert theory.alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert theory.alibi_slopes(12)[8:] == pytest.approx([2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    assert theory.alibi_slopes(1) == [1 / 256]
    assert theory.alibi(0.5, 3) == [[0.0, None, None], [-0.5, 0.0, None], [-1.0, -0.5, 0.0]]


def test_scalings_by_hand():
    assert theory.linear([1.0, 0.5], 4) == [0.25, 0.125]
    # D = 4: θ · s^(4/2): 10 · 9 = 90 for s = 3
    assert theory.ntk_theta(10.0, 4, 3.0) == pytest.approx(90.0)
    assert theory.dynamic_ntk(4, 10.0, 2.0, 100, 80) == theory.frequencies(4, 10.0)  # within the trained length
    # 150 of 100 tokens, factor 2: s = 2 · 1.5 - 1 = 2, θ = 10 · 4
    assert theory.dynamic_ntk(4, 10.0, 2.0, 100, 150) == pytest.approx(theory.frequencies(4, 40.0))
    freqs, more = theory.yarn(32, 10_000.0, 4.0, 256)
    plain = theory.frequencies(32)
    assert more == pytest.approx(0.1 * math.log(4) + 1)
    assert freqs[0] == plain[0] and freqs[-1] == pytest.approx(plain[-1] / 4)
    assert all(p / 4 <= f <= p for f, p in zip(freqs, plain, strict=True))
    same, once = theory.yarn(32, 10_000.0, 1.0, 256)
    assert same == pytest.approx(plain) and once == 1.0


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scalings_are_those_of_transformers(story_llama, scaling):
    """The frequencies in the rotary module of each second model object; dynamic ones at 300 tokens."""
    rotary = lengths.scaled(story_llama, scaling).module.base_model.rotary_emb
    expected = {
        "none": (theory.frequencies(32), 1.0),
        "linear": (theory.linear(theory.frequencies(32), 4), 1.0),
        "yarn": theory.yarn(32, 10_000.0, 4.0, 256),
        "dynamic": (theory.dynamic_ntk(32, 10_000.0, 4.0, 256, 300), 1.0),
    }[scaling]
    rotary(torch.zeros(1, 300, 4), torch.arange(300)[None])
    np.testing.assert_allclose(rotary.inv_freq.double().numpy(), expected[0], rtol=1e-5)
    assert rotary.attention_scaling == pytest.approx(expected[1])


def test_a_scaled_model_is_an_object_of_its_own(story_llama):
    """Same weights, another rotary module; the first model and its config are what they were."""
    before = Session(story_llama, TALE).advance(4)
    rope = dict(story_llama.module.config.rope_parameters)
    other = lengths.scaled(story_llama, "yarn")
    assert other.module is not story_llama.module
    assert other.module.base_model.rotary_emb is not story_llama.module.base_model.rotary_emb
    one, two = (m.module.get_input_embeddings().weight for m in (story_llama, other))
    assert one.data_ptr() == two.data_ptr()
    assert other.module.get_output_embeddings().weight.data_ptr() == two.data_ptr()  # still tied
    scaled_run = Session(other, TALE).advance(4)
    after = Session(story_llama, TALE).advance(4)
    assert dict(story_llama.module.config.rope_parameters) == rope
    for a, b in zip(before.steps, after.steps, strict=True):
        np.testing.assert_array_equal(a.k, b.k)
    assert np.abs(scaled_run.steps[0].k[1] - before.steps[0].k[1]).max() > 0.01


def test_editing_a_config_changes_nothing(story_llama):
    """Why a scaling needs a module of its own."""
    before = Session(story_llama, TALE).advance(2)
    kept = story_llama.module.config.rope_parameters
    try:
        story_llama.module.config.rope_parameters = {**kept, "rope_type": "linear", "factor": 4.0}
        after = Session(story_llama, TALE).advance(2)
    finally:
        story_llama.module.config.rope_parameters = kept
    np.testing.assert_array_equal(before.steps[1].k, after.steps[1].k)


# On models


@pytest.mark.parametrize("layer", [0, 3, 5])
def test_the_cache_holds_the_rotated_k(story_llama, layer):
    ids = story_llama.encode(TALE)
    found = positions.rotation(story_llama, ids, layer)
    assert {c.name: c.verdict for c in found.checks} == dict.fromkeys(
        ("rotation", "stored", "unrotated", "shift"), "holds"
    )
    np.testing.assert_array_equal(found.cached, found.k_rotated)
    np.testing.assert_array_equal(found.k[:, 0], found.k_rotated[:, 0])  # position 0 is not turned
    assert np.abs(found.k[:, 1:] - found.k_rotated[:, 1:]).max() > 1
    # The length of every pair stays.
    for a, b in ((found.k, found.k_rotated), (found.q, found.q_rotated)):
        np.testing.assert_allclose(np.hypot(a[..., :16], a[..., 16:]), np.hypot(b[..., :16], b[..., 16:]), atol=1e-4)


def test_rotated_keys_are_those_of_a_model_written_out_in_numpy(story_llama):
    ids = story_llama.encode(TALE)
    seen = numpy_models.llama(BUILTIN / "story-llama", ids)
    for layer in (0, 4):
        found = positions.rotation(story_llama, ids, layer)
        np.testing.assert_allclose(found.cached, seen.keys[layer], atol=1e-3)
    np.testing.assert_allclose(found.frequencies, theory.frequencies(32), rtol=1e-6)


def test_the_rotation_checks_can_fail(story_llama, monkeypatch):
    """Wrong angles, and a cache that holds K from before the rotation."""
    ids = story_llama.encode(TALE)
    whole = theory.rotated
    monkeypatch.setattr(theory, "rotated", lambda x, p, f: whole(x, p + 1, f))
    checks = {c.name: c for c in positions.rotation(story_llama, ids, 2).checks}
    assert checks["rotation"].verdict == "fails" and checks["stored"].verdict == "holds"
    monkeypatch.setattr(theory, "rotated", whole)
    right = positions.rotation(story_llama, ids, 2)
    unturned = torch.from_numpy(right.k.copy())[None]
    monkeypatch.setattr(positions.cache_api, "layer", lambda cache, index: (unturned, None))
    checks = {c.name: c for c in positions.rotation(story_llama, ids, 2).checks}
    assert checks["stored"].verdict == "fails" and checks["unrotated"].verdict == "fails"


def test_scores_do_not_change_when_all_moves_on(story_llama):
    moved = positions.shift(story_llama, story_llama.encode(TALE), 200)
    assert moved.by == 200
    assert moved.max_abs_dscore < 1e-3 < moved.largest_score
    assert moved.max_abs_dlogit < 1e-3 and moved.same_token


def test_to_a_learned_table_a_text_further_on_is_another_text(story_gpt2):
    moved = positions.shift(story_gpt2, story_gpt2.encode(TALE), 200)
    assert moved.max_abs_dscore > 1 and moved.max_abs_dlogit > 0.5
    ids = story_gpt2.encode(TALE)
    assert positions.shift(story_gpt2, ids, 5000).by == 1024 - len(ids)  # cut to what there is


def test_the_table_is_the_checkpoint_s(story_gpt2):
    _, tensors = numpy_models.read(BUILTIN / "story-gpt2")
    found = positions.table(story_gpt2, story_gpt2.encode(TALE))
    np.testing.assert_array_equal(found.values, tensors["transformer.wpe.weight"].astype(np.float32))
    cosine = found.cosine(8)
    rows = tensors["transformer.wpe.weight"][::8]
    assert cosine.shape == (128, 128)
    a, b = rows[3], rows[100]
    assert cosine[3, 100] == pytest.approx(a @ b / math.sqrt((a @ a) * (b @ b)), abs=1e-5)


def test_a_model_of_the_other_kind_is_refused(story_gpt2, story_llama):
    refused("no_table", positions.table, story_llama, [1, 2])
    refused("no_rotation", positions.rotation, story_gpt2, [1, 2], 0)
    refused("no_rotation", lengths.scaled, story_gpt2, "linear")
    refused("no_rotation", lengths.scaled, lengths.scaled(story_llama, "linear"), "yarn")


def test_misplaced_tokens_against_passes_made_by_hand(story):
    """Offset +3: the first new token at P + 3, over the prompt's K and V. And 0 is the run as it is."""
    ids = story.encode(TALE)
    found = positions.misplaced(story, ids, (-2, 3), new=5)
    assert found.offsets.tolist() == [-2, 0, 3]
    run = Session(story, TALE).advance(6)
    assert found.chosen[found.at(0)].tolist() == run.new_ids.tolist()
    assert found.max_abs_dlogit[found.at(0)] == 0
    from kvviz.engine import cache_api, masks

    P, first = len(ids), int(run.new_ids[0])
    logits = {}
    for at in (P, P + 3):
        cache = cache_api.new_cache()
        with torch.inference_mode():
            cache_api.forward(story.module, torch.tensor([ids]), torch.arange(P)[None], masks.causal(P, P), cache)
            out = cache_api.forward(
                story.module, torch.tensor([[first]]), torch.tensor([[at]]), masks.causal(1, P + 1), cache
            )
        logits[at] = out[0, -1]
    by_hand = float((logits[P] - logits[P + 3]).abs().max())
    assert found.max_abs_dlogit[found.at(3)] == pytest.approx(by_hand, rel=1e-4) and by_hand > 0.05


def test_offsets_beyond_the_models_positions_are_left_out(story_gpt2):
    ids = [5] * 1020
    found = positions.misplaced(story_gpt2, ids, (-2, 8, 64), new=12)
    assert found.offsets.tolist() == [-2, 0]
    assert found.chosen.shape == (2, 5)  # 1,020 + 4 positions


def test_after_eviction_the_position_is_that_of_the_text(story):
    """A16: 8 cached, 1 first and 3 last kept: the next token stands at 8, not at 4; fed there it gives other logits."""
    from kvviz.engine import cache_api, masks

    ids = story.encode(TALE)[:9]
    found = positions.misplaced(story, ids, (), new=1).evicted
    assert (found.held, found.first, found.last, found.right, found.default) == (8, 1, 3, 8, 4)
    assert found.max_abs_dlogit > 0.05 > found.limit
    out = {}
    for at in (8, 4):
        cache = cache_api.new_cache()
        with torch.inference_mode():
            mask = masks.causal(8, 8)
            cache_api.forward(story.module, torch.tensor([ids[:8]]), torch.arange(8)[None], mask, cache)
            k = cache_api.layer(cache, 0)[0].clone()
            cache_api.keep(cache, [0, 5, 6, 7])
            assert torch.equal(cache_api.layer(cache, 0)[0], k[:, :, [0, 5, 6, 7]])
            assert cache_api.length(cache) == 4
            out[at] = cache_api.forward(
                story.module, torch.tensor([ids[8:]]), torch.tensor([[at]]), masks.causal(1, 5), cache
            )[0, -1]
    assert found.max_abs_dlogit == pytest.approx(float((out[8] - out[4]).abs().max()), rel=1e-4)


# Past the trained length


def test_losses_against_numpy(story_llama):
    ids = story_llama.encode(TALE + ", and the youngest of them was called Simpleton.")
    seen = numpy_models.llama(BUILTIN / "story-llama", ids[:-1])
    e = np.exp(seen.logits - seen.logits.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    expected = [-math.log(p[i, ids[i + 1]]) for i in range(len(ids) - 1)]
    np.testing.assert_allclose(lengths.losses(story_llama, ids), expected, atol=2e-3)


def test_the_held_out_text_is_there_and_not_cut(story):
    rows = lengths.heldout(story, 8, 1024)
    assert [len(r) for r in rows] == [1025] * 8
    text = b"".join(story.piece(t) for row in rows for t in row).decode()
    assert text == lengths.TEXT.read_text(encoding="utf-8")[: len(text)]


def test_a_table_ends_and_a_rotation_goes_on(story_gpt2, story_llama):
    row = lengths.heldout(story_llama, 1, 320)[0]
    assert len(lengths.losses(story_llama, row)) == 320  # past its 256
    refused("limit_reached", lengths.losses, story_gpt2, [1] * 1026)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_cache_follows_every_scaling_but_the_dynamic_one(story_llama, scaling):
    row = lengths.heldout(story_llama, 1, 300)[0]
    found = lengths.kept(story_llama, scaling, row)
    assert found.lengths.tolist() == [250, 256, 257, 264, 280]
    within = found.lengths <= 256
    assert (found.max_abs_dlogit[within] <= 1e-3).all()
    if scaling == "dynamic":
        assert (found.max_abs_dlogit[~within] > 0.05).all()
        assert found.check.verdict == "fails"
    else:
        assert (found.max_abs_dlogit <= 1e-3).all()
        assert found.check.verdict == "holds"
    assert found.check.name == f"kept_{scaling}"


def test_the_study_of_lengths_says_how_far_it_is(story_gpt2, story_llama):
    steps = list(lengths.study(story_llama, story_gpt2, rows=1, length=320))
    assert [s.done for s in steps] == list(range(1, 9)) and steps[-1].of == 8
    last = steps[-1]
    assert [(c.model, c.scaling, c.rows) for c in last.curves] == [
        ("story-llama", "none", 1), ("story-llama", "linear", 1), ("story-llama", "yarn", 1), ("story-gpt2", "none", 1)
    ]  # fmt: skip
    assert last.table_end == ("story-gpt2", 1025)
    row = lengths.heldout(story_llama, 1, 320)[0]
    np.testing.assert_allclose(last.curve("story-llama").loss, lengths.losses(story_llama, row))
    half = dataclasses.replace(last.curves[0], loss=np.array([1.0, 2.0, 3.0, 4.0, 6.0]))
    assert half.blocks(2).tolist() == [1.5, 3.5, 6.0]


@pytest.mark.parametrize("failing", ["story-llama", "story-gpt2"])
def test_memory_that_runs_out_is_told_of_the_model_whose_pass_it_was(story_gpt2, story_llama, monkeypatch, failing):
    real = lengths.losses

    def losses(model, row):
        if model.facts.name == failing:
            raise MemoryError
        return real(model, row)

    monkeypatch.setattr(lengths, "losses", losses)
    with pytest.raises(Refusal) as caught:
        list(lengths.study(story_llama, story_gpt2, rows=1, length=320))
    assert (caught.value.code, caught.value.values["model"]) == ("out_of_memory", failing)
