"""A class at once, in the engine: many threads on one model, each with the result of the same run alone."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from kvviz.core import Sampling
from kvviz.core.refusal import Refusal
from kvviz.engine import Session, load
from kvviz.models import catalog, loading
from tests.unit.families import FAMILIES, write

THREADS, ROUNDS = 60, 50
LONG = "Once upon a time there lived a poor man and his wife, who had nothing to eat but bread and water. " * 3
TOO_LONG = "Dorothy and the Tin Woodman " * 400
SHORT = ("Once", "a", " The", "Dorothy and", "<|endoftext|>", "中国", "Oz\n", "é")
LIMITED = "gpt2"  # of the families: 64 learned positions


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("threads") / "tiny"
    family = FAMILIES[LIMITED]
    write(folder, family.config_class, family.config | {"n_layer": 1, "n_head": 2})
    return load(catalog.name_owner_folder(folder, default=False), device="cpu")


def job(k: int) -> tuple[str, Sampling, int]:
    """The k-th of 40 different short runs: every other with a long prompt, half of them drawn at random."""
    half, kind = k // 2, k % 2
    prompt = (LONG[half * 3 : half * 3 + 90 + 9 * (half % 5)]) if kind else SHORT[half % len(SHORT)]
    sampling = Sampling() if half % 2 else Sampling(temperature=0.9, top_k=50, top_p=0.95, seed=half)
    return prompt, sampling, 2 + half % 2


def outcome(model, k: int, **how) -> tuple:
    """Everything a run leaves, times and its random key apart."""
    prompt, sampling, new = job(k)
    session = Session(model, prompt, sampling, **how)
    run = session.advance(new)
    assert len(run.steps) == new
    assert run.length == run.P + new - 1
    return (
        run.ids.tolist(),
        [s.kv_bytes for s in run.steps],
        [s.top_ids.tolist() for s in run.steps],
        [[(p.name, p.verdict) for p in s.proofs] for s in run.steps],
        [None if s.twin is None else (s.twin.chosen, s.twin.same_token) for s in run.steps],
        np.concatenate([s.attention.ravel() for s in run.steps]),
    )


def same(one: tuple, other: tuple) -> bool:
    return one[:5] == other[:5] and np.allclose(one[5], other[5], atol=1e-3)


def all_at_once(threads: int, work) -> list[BaseException]:
    """`work(i)` in so many threads that start together; what they raised."""
    gate, errors = threading.Barrier(threads), []

    def go(i: int) -> None:
        try:
            gate.wait()
            work(i)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=go, args=(i,)) for i in range(threads)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    return errors


def test_sixty_threads_of_fifty_runs_each(model):
    """3,000 sessions on one model; every tenth with its no-cache twin and its pictures."""
    alone = [(outcome(model, k), outcome(model, k, compare=False, capture=False)) for k in range(40)]
    assert len({tuple(a[0][0]) for a in alone}) >= 30  # different runs, or mixing them up would go unseen
    assert max(len(a[0][0]) for a in alone) > 30
    done = [0] * THREADS
    wrong: list[tuple[int, int]] = []

    def work(i: int) -> None:
        for r in range(ROUNDS):
            k = (i * 7 + r) % 40
            with_all = (i + r) % 10 == 0
            got = outcome(model, k) if with_all else outcome(model, k, compare=False, capture=False)
            if not same(got, alone[k][not with_all]):
                wrong.append((i, r))
            done[i] += 1

    errors = all_at_once(THREADS, work)
    assert errors == []
    assert wrong == []
    assert sum(done) == 3_000


def test_refusals_in_the_middle_of_a_crowd(model):
    """Half of the threads ask for too much; the other half get what they would have got alone."""
    alone = [outcome(model, k) for k in range(8)]
    codes: list[str] = []

    def work(i: int) -> None:
        for r in range(5):
            if i % 2:
                with pytest.raises(Refusal) as refusal:
                    Session(model, TOO_LONG if r % 2 else "").advance(2)
                codes.append(refusal.value.code)
            else:
                assert same(outcome(model, (i + r) % 8), alone[(i + r) % 8])

    assert all_at_once(16, work) == []
    assert sorted(set(codes)) == ["empty_prompt", "too_long"]
    assert len(codes) == 8 * 5


def test_eight_threads_of_fifty_rounds_share_a_tokenizer(story_gpt2):
    """C09: half of the texts are longer than the model, so are told to be cut; none is 'already borrowed'."""
    texts = [(TOO_LONG if k % 2 else LONG)[k * 5 : k * 5 + (4_000 if k % 2 else 200)] for k in range(16)]
    alone = [story_gpt2.encode(t) for t in texts]
    pieces = [b"".join(story_gpt2.piece(i) for i in ids) for ids in alone]
    assert [p.decode() for p in pieces] == texts
    rounds = []

    def work(i: int) -> None:
        for r in range(50):
            k = (i + r) % 16
            ids = story_gpt2.encode(texts[k])
            assert ids == alone[k]
            assert b"".join(story_gpt2.piece(t) for t in ids) == pieces[k]
            rounds.append(k)
            if k % 2 and r % 5 == 0:
                with pytest.raises(Refusal, match="positions"):
                    Session(story_gpt2, TOO_LONG)

    assert all_at_once(8, work) == []
    assert len(rounds) == 8 * 50


def test_sessions_of_one_model_run_one_pass_at_a_time(model, monkeypatch):
    """Times stay honest: no two forwards of a model overlap, however many ask."""
    from kvviz.engine import cache_api

    real, inside, most = cache_api.forward, [], []

    def watched(*args, **kwargs):
        inside.append(threading.get_ident())
        most.append(len(inside))
        os.sched_yield()
        try:
            return real(*args, **kwargs)
        finally:
            inside.remove(threading.get_ident())

    monkeypatch.setattr(cache_api, "forward", watched)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda k: outcome(model, k), range(40)))
    assert len(most) == 2 * (20 * 2 + 20 * 3)  # each pass and its twin
    assert max(most) == 1


def test_different_models_that_load_at_once_are_whole(monkeypatch):
    """transformers changes process-wide state while it reads: two readers at once left each other's dtype."""
    wanted = (("story-gpt2", "float32"), ("story-llama", "bfloat16"), ("story-gpt2", "bfloat16"))
    for _ in range(3):
        monkeypatch.setattr(loading, "_loaded", OrderedDict())
        found, start = {}, threading.Barrier(len(wanted))

        def load(name: str, dtype: str, found=found, start=start) -> None:
            start.wait(30)
            found[name, dtype] = loading.load(name, device="cpu", dtype=dtype)

        threads = [threading.Thread(target=load, args=each) for each in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert found.keys() == set(wanted)
        for (_, dtype), model in found.items():
            assert {str(p.dtype) for p in model.module.parameters()} == {f"torch.{dtype}"}
            assert model.module.get_output_embeddings().weight is model.module.get_input_embeddings().weight
    assert torch.get_default_dtype() == torch.float32


def test_a_run_does_not_depend_on_the_default_dtype(story):
    """Which another model's loading changes for a moment."""
    alone = Session(story, "Once upon a time").advance(6)
    torch.set_default_dtype(torch.bfloat16)
    try:
        beside = Session(story, "Once upon a time").advance(6)
    finally:
        torch.set_default_dtype(torch.float32)
    assert beside.ids.tolist() == alone.ids.tolist()
    for a, b in zip(alone.steps, beside.steps, strict=True):
        assert np.array_equal(a.attention, b.attention)
        assert np.array_equal(a.top_probs, b.top_probs)
        assert all(p.verdict == "holds" for p in b.proofs)
