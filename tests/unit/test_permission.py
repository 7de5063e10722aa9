"""An edited token: exact zeros before it under the causal mask, none without; against NumPy's own K and V."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from factories import model_facts

from kvviz.engine import cache_api
from kvviz.engine.feed import free_pass
from kvviz.features.permission.measure import permission
from kvviz.models.catalog import BUILTIN
from tests.unit.conftest import refused
from tests.unit.families import FAMILIES, write
from tests.unit.numpy_models import gpt2, llama

TALE = "Dorothy and the Tin Woodman"  # nine: D or othy ·and ·the ·T in ·Wood man


def compare(model, position=3, text=" or", how="replace"):
    (found,) = permission.compare(model, TALE, position, text, how)
    return found


def need_exact_zeros(found) -> None:
    """The theorem: before the edit nothing changes in any layer; in layer 0 the edited position alone; from layer 1
    on everything from it on."""
    at = found.position
    for change in (found.masked.dk, found.masked.dv):
        assert (change[:, :at] == 0.0).all()
        assert change[0, at] > 0 and (change[0, at + 1 :] == 0.0).all()
        assert (change[1:, at:] > 0).all()


@pytest.mark.parametrize("position", [0, 1, 3, 8])
def test_before_the_edit_nothing_changes(story, position):
    found = compare(story, position)
    assert found.position == position
    assert found.masked.dk.shape == found.masked.dv.shape == (6, 9)
    need_exact_zeros(found)
    assert all(c.verdict == "holds" for c in found.checks if c.name in ("before", "layer0", "after", "cached"))


def test_with_the_mask_removed_that_test_fails(story, monkeypatch):
    monkeypatch.setattr(permission, "_mask", lambda Tq, T, masked: torch.ones(Tq, T, dtype=torch.bool))
    found = compare(story)
    with pytest.raises(AssertionError):
        need_exact_zeros(found)
    verdicts = {c.name: c.verdict for c in found.checks}
    assert verdicts["before"] == "fails" and verdicts["cached"] == "fails"
    assert found.checks[0].value > 0.01


def test_the_zeros_are_those_of_the_live_tensors(story):
    """K and V of both prompts, taken here from the model itself and compared bit for bit."""
    found = compare(story)
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    for which in (0, 1):
        ours, theirs = (
            [(c.k, c.v)[which] for c in free_pass(story, ids.tolist(), range(9), mask, None)[1]]
            for ids in (found.ids, found.edited)
        )
        recorded = (found.masked.dk, found.masked.dv)[which]
        for layer, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert torch.equal(a[:, :, :3], b[:, :, :3])
            assert not torch.equal(a[:, :, 3], b[:, :, 3])
            assert float((a - b).abs().max()) == pytest.approx(recorded[layer].max(), rel=1e-6)


def test_the_changes_are_numpys(story):
    read = {"story-gpt2": gpt2, "story-llama": llama}[story.facts.name]
    found = compare(story, 5, " house")
    a, b = (read(BUILTIN / story.facts.name, ids.tolist()) for ids in (found.ids, found.edited))
    for recorded, ours, theirs in ((found.masked.dk, a.keys, b.keys), (found.masked.dv, a.values, b.values)):
        wanted = np.stack([np.abs(x - y).max(axis=(0, 2)) for x, y in zip(ours, theirs, strict=True)])  # (L, T)
        np.testing.assert_allclose(recorded, wanted, atol=2e-4)


def test_without_the_mask_the_edit_reaches_back(story):
    found = compare(story)
    for change in (found.unmasked.dk, found.unmasked.dv):
        assert (change[0, :3] == 0.0).all()  # layer 0 reads no other token
        assert (change[1:, :3] > 0).all()
    assert {c.name: c.verdict for c in found.checks}["unmasked"] == "holds"


def test_a_cache_is_right_with_the_mask_and_wrong_without(story):
    found = compare(story)
    assert (found.masked_run.dlogit <= 1e-3).all()
    assert (found.masked_run.ids == found.masked_run.cached_ids).all()
    assert found.unmasked_run.dlogit[0] == 0.0  # prefill is the same work
    assert (found.unmasked_run.dlogit[1:] > 0.1).all()
    verdicts = {c.name: c.verdict for c in found.checks}
    assert (verdicts["cached"], verdicts["cached_unmasked"]) == ("holds", "holds")


def test_shapes_of_a_decode_pass(story):
    """D02: one query against all keys that are kept."""
    found = compare(story)
    hkv = {"story-gpt2": 8, "story-llama": 2}[story.facts.name]
    assert found.q_shape == (1, 8, 1, 32)
    assert found.kv_shape == (1, hkv, 14, 32)  # 9 and 5 of the 6 tokens


def test_a_token_put_in_moves_the_others(story_gpt2):
    found = compare(story_gpt2, 3, " or", "insert")
    assert found.ids.tolist()[:3] == found.edited.tolist()[:3]
    assert found.edited.tolist()[4:] == found.ids.tolist()[3:-1]
    assert len(found.edited) == len(found.ids)
    assert (found.masked.dk[:, :3] == 0).all() and (found.masked.dk[:, 3:] > 0).all()
    assert {c.name: c.verdict for c in found.checks}["layer0"] == "holds"


def test_of_a_text_its_first_token_counts(story_gpt2):
    found = compare(story_gpt2, 3, " or something else")
    assert found.edited[3] == story_gpt2.encode(" or")[0]
    assert (found.ids != found.edited).sum() == 1


def test_what_cannot_be_edited_is_refused(story_gpt2):
    assert refused("no_such_position", compare, story_gpt2, 9).values == {"position": 9, "last": 8}
    refused("same_token", compare, story_gpt2, 3, " and")
    refused("empty_edit", compare, story_gpt2, 3, "")
    with pytest.raises(Exception, match="nothing to read"):
        next(permission.compare(story_gpt2, "", 0, "a"))


def test_reach_follows_windows():
    """Two layers' worth of a window of 2: a change at 1 is seen by 2 in layer 1, by 3 in layer 2."""
    facts = model_facts(3, 1, 1, 8, windows=(2, 2, 2))
    differs = np.array([False, True, False, False, False])
    assert permission.reach(facts, differs, masked=True).astype(int).tolist() == [
        [0, 1, 0, 0, 0],
        [0, 1, 1, 0, 0],
        [0, 1, 1, 1, 0],
    ]
    full = model_facts(2, 1, 1, 8)
    assert permission.reach(full, differs, masked=True)[1].astype(int).tolist() == [0, 1, 1, 1, 1]
    assert permission.reach(full, differs, masked=False)[1].all()


def test_a_free_pass_holds_its_caller_to_the_shapes(story_gpt2):
    cache = cache_api.new_cache()
    with pytest.raises(ValueError, match="mask"):
        free_pass(story_gpt2, [1, 2], [0, 1], torch.ones(2, 3, dtype=torch.bool), cache)
    refused("id_out_of_range", free_pass, story_gpt2, [5000], [0], torch.ones(1, 1, dtype=torch.bool), None)
    refused("too_long", free_pass, story_gpt2, [1], [1024], torch.ones(1, 1, dtype=torch.bool), None)


def test_what_has_no_cells_is_not_claimed(story_gpt2):
    names = [c.name for c in compare(story_gpt2, 0).checks]
    assert names == ["layer0", "after", "cached", "cached_unmasked"]


@pytest.mark.parametrize("name", ["mistral", "gemma3", "qwen2"])
def test_in_layers_with_windows_the_change_travels_as_far_as_they_see(name, tmp_path):
    """20 tokens through windows of 8: cells out of reach are exactly 0 as well."""
    from kvviz.engine import load
    from kvviz.features.permission.measure import breaks
    from kvviz.features.problem import measure as growth
    from kvviz.models import catalog

    family = FAMILIES[name]
    folder = write(tmp_path / name, family.config_class, family.config)
    model = load(catalog.name_owner_folder(folder, default=False), device="cpu")
    (found,) = permission.compare(model, (TALE + " and ") * 2, 4, " or")
    reach = permission.reach(model.facts, found.ids != found.edited, masked=True)
    for change in (found.masked.dk, found.masked.dv):
        assert (change[~reach] == 0.0).all()
        assert (change[reach] > 0).all()
    if name == "mistral":  # two layers that see 8: layer 1 reaches position 4 + 7
        assert reach[1].nonzero()[0].tolist() == list(range(4, 12))
    verdicts = {c.name: c.verdict for c in found.checks}
    assert {v for n, v in verdicts.items() if n != "cached_unmasked"} == {"holds"}
    *_, grown = growth.generate(model, TALE, 4)
    assert {c.verdict for c in grown.checks} == {"holds"}
    *_, broken = breaks.all_kinds(model, TALE, 3)
    assert (broken.right.dlogit <= 1e-3).all()


def test_zeros_are_exact_in_half_precision_too():
    from kvviz.engine import load

    found = compare(load("story-llama", device="cpu", dtype="bfloat16"))
    assert (found.masked.dk[:, :3] == 0.0).all() and (found.masked.dv[:, :3] == 0.0).all()
    assert {c.name: c.verdict for c in found.checks}["before"] == "holds"
