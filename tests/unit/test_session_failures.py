"""What a pass that raises leaves behind: the last step's end, or a session that says it is over."""

from __future__ import annotations

import pytest

from kvviz.core import Sampling
from kvviz.core.refusal import Refusal
from kvviz.engine import Session, cache_api

TALE = "Dorothy and the Tin Woodman"


def fail(*_):
    raise RuntimeError("on purpose")


class Stop(BaseException):
    """Thrown into a pass from outside, as Ctrl-C or a web server's stop would be."""


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, Stop])
@pytest.mark.parametrize("layer", [0, 3, 5])
def test_a_pass_that_fails_leaves_the_last_step(story_gpt2, error, layer):
    """C20: never layers of different lengths. The run can go on as if nothing had been tried."""
    wanted = Session(story_gpt2, TALE, Sampling(temperature=0.8, seed=1)).advance(6)
    session = Session(story_gpt2, TALE, Sampling(temperature=0.8, seed=1))
    session.advance(3)

    def stop(*_):
        raise error("on purpose")

    hook = story_gpt2.module.transformer.h[layer].mlp.register_forward_pre_hook(stop)  # its K, V are in by now
    with pytest.raises(error, match="on purpose"):
        session.decode_one_token()
    hook.remove()
    assert len(session.run.steps) == 3
    assert {t.shape[2] for t in cache_api.tensors(session._cache)} == {11}
    assert cache_api.nbytes(session._cache) == 11 * 12_288
    assert session.advance(6).new_ids.tolist() == wanted.new_ids.tolist()
    assert all(p.verdict == "holds" for s in session.run.steps for p in s.proofs)


def test_a_prefill_that_fails_can_be_tried_again(story_gpt2):
    session = Session(story_gpt2, TALE)
    Session(story_gpt2, TALE).prefill()  # warmed up, so that the failure hits the pass itself

    hook = story_gpt2.module.transformer.h[2].mlp.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        session.prefill()
    hook.remove()
    assert session.prefill().length_after == 9


def test_a_twin_that_fails_takes_its_step_with_it(story_gpt2, monkeypatch):
    session = Session(story_gpt2, TALE)
    session.advance(2)

    monkeypatch.setattr(session, "_twin", fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        session.decode_one_token()
    monkeypatch.undo()
    assert cache_api.length(session._cache) == 10
    assert session.advance(3).new_ids.tolist() == Session(story_gpt2, TALE).advance(3).new_ids.tolist()


def test_a_cache_that_cannot_be_put_back_ends_the_session(story_gpt2, monkeypatch):
    session = Session(story_gpt2, TALE)
    session.advance(2)

    monkeypatch.setattr(session, "_twin", fail)
    monkeypatch.setattr(cache_api, "cut_back", fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        session.decode_one_token()
    monkeypatch.undo()
    assert session.room == 0
    with pytest.raises(Refusal, match="Start a new run") as refusal:
        session.decode_one_token()
    assert refusal.value.code == "session_broken"
    assert len(session.run.steps) == 2  # what was recorded stays
