"""The ladder on real models: every lane writes the same tokens, in turn, and stops between two of them."""

from __future__ import annotations

import contextlib
import copy
import json
import threading

import numpy as np
import pytest
import torch
from paper_ladder import KNOWN

from kvviz import cli
from kvviz.bench import engine as bench
from kvviz.core.refusal import Refusal
from kvviz.engine import lanes, load
from kvviz.features.ladder.measure import ladder
from kvviz.features.ladder.measure.ladder import Way
from kvviz.features.ladder.record.file import from_json, read, to_json, to_markdown
from kvviz.features.problem import measure as growth
from kvviz.measure import rates
from kvviz.models import catalog, memory
from tests.unit.families import FAMILIES, write

P, N = 12, 6
TEXT = "Once upon a time"
ONE = (("concatenated", "sdpa"),)
TWO = (("none", "sdpa"), ("preallocated", "eager"))
TOKEN = {"story_gpt2": 12_288, "story_llama": 3_072}  # bytes of K and V a position, float32


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch):
    """Copying 256 MB says nothing about the ladder."""
    monkeypatch.setattr(rates, "measure", lambda *_, **__: KNOWN)
    monkeypatch.setattr(rates, "_known", {})


def climb(model, P=P, N=N, **options):
    """All that it yields."""
    return list(ladder.climb(model, TEXT, P, N, **({"rungs": ONE, "beside_generate": False, "repeats": 1} | options)))


def written_by_generate(model, batch=1) -> list[int]:
    said = model.encode(TEXT)
    ids = torch.tensor([(said * P)[:P]] * batch)
    whole = model.module.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=N,
                                  min_new_tokens=N, pad_token_id=0)  # fmt: skip
    return whole[0, P:].tolist()


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["story_gpt2", "story_llama"])
def test_every_lane_writes_what_generate_writes(name, batch, request):
    model = request.getfixturevalue(name)
    found = climb(model, rungs=ladder.RUNGS, batch=batch, repeats=2, beside_generate=True)[-1]
    assert [(r.cache, r.kernel) for r in found.rungs] == list(ladder.RUNGS) and len(found.rungs) == 6
    tokens = written_by_generate(model, batch)
    for rung in found.rungs:
        assert rung.chosen.tolist() == tokens, rung.name
        assert rung.ms.shape == (2, N) and (rung.ms > 0).all() and len(rung.warm_up) == 4
        assert (rung.allocate_ms >= 0) == (rung.cache == "preallocated") and rung.ready_ms > 0
        # 12 prompt tokens and 5 more: the last one chosen is never fed; a preallocated cache holds it all at once
        positions = {"none": [0] * 6, "concatenated": range(12, 18), "preallocated": [17] * 6}[rung.cache]
        assert rung.held.tolist() == [batch * t * TOKEN[name] for t in positions], rung.name
    assert found.generate.shape == (2,) and found.same.all() and len(found.same) == N
    assert (found.state, found.complete, found.batch, found.rates) == ("done", 2, batch, KNOWN)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_writes_the_same_in_every_lane(name, tmp_path):
    """Windows shorter than the text, several kinds of layers, keys and values shared: 30 + 6 tokens."""
    family = FAMILIES[name]
    folder = write(tmp_path / name, family.config_class, family.config)
    model = load(catalog.name_owner_folder(folder, default=False), device="cpu")
    there = ladder.kernels(model)
    with contextlib.nullcontext() if "sdpa" in there else pytest.raises(ValueError):  # by transformers' version
        copy.deepcopy(model.module).set_attn_implementation("sdpa")
    assert there[0] == "eager" and ("sdpa" in there or name == "gemma2")
    ways = ladder.available(model.device, "float32", there)
    found = climb(model, 30, rungs=[w for w in ways if w.dtype == "float32"], beside_generate=True)[-1]
    assert found.same.all() and len(found.rungs) == 3 * len(there) and len(found.generate) == 1
    if "sdpa" not in there:
        with pytest.raises(Refusal) as refused:
            climb(model, rungs=ONE)
        assert refused.value.code == "no_such_kernel" and "Gemma2ForCausalLM" in str(refused.value)


def test_half_precision_has_weights_and_cache_of_its_own(story_gpt2):
    ways = [Way(cache, "sdpa", "bfloat16") for cache in ("none", "concatenated", "preallocated")]
    found = climb(story_gpt2, rungs=[*ONE, *ways])[-1]
    assert [r.dtype for r in found.rungs] == ["float32", "bfloat16", "bfloat16", "bfloat16"]
    assert [int(r.held[-1]) for r in found.rungs] == [17 * 12_288, 0, 17 * 6_144, 17 * 6_144]
    assert found.other_rates == {"bfloat16": KNOWN} and found.floor_ms(found.rungs[2]) > 0
    assert story_gpt2.module.dtype == torch.float32


def test_copies_share_the_weights(story_gpt2, story_llama):
    for model in (story_gpt2, story_llama):
        modules = lanes.Modules(model)
        here = {n: t.data_ptr() for n, t in model.module.state_dict().items()}
        for kernel in ("eager", "sdpa"):
            made, _ = modules.get(kernel, "float32")
            assert made is not model.module and made.config._attn_implementation == kernel
            assert {n: t.data_ptr() for n, t in made.state_dict().items()} == here
        halves = [modules.get(kernel, "bfloat16")[0] for kernel in ("eager", "sdpa")]
        there = [{n: t.data_ptr() for n, t in made.state_dict().items()} for made in halves]
        assert there[0] == there[1] and not {*there[0].values()} & {*here.values()}
        assert {p.dtype for p in halves[0].parameters()} == {torch.bfloat16}
        assert {p.dtype for p in model.module.parameters()} == {torch.float32}


def test_the_shared_model_is_left_as_it_was(story_gpt2):
    before = story_gpt2.module.config._attn_implementation
    weights = {n: t.clone() for n, t in story_gpt2.module.state_dict().items()}
    climb(story_gpt2, 3, 2, rungs=(("concatenated", "eager"), Way("none", "sdpa", "bfloat16")))
    assert story_gpt2.module.config._attn_implementation == before
    assert all(torch.equal(t, weights[n]) for n, t in story_gpt2.module.state_dict().items())


def test_the_compiled_lane_writes_what_generate_writes(story_gpt2):
    """Without a GPU: traced and run by the compiler's own interpreter."""
    way = Way("preallocated", "sdpa", compiled=True)
    found = climb(story_gpt2, rungs=[way, *ONE], repeats=2, backend="eager")[-1]
    assert found.rungs[0].compiled and found.rungs[0].name == "preallocated, sdpa, compiled"
    assert found.rungs[0].chosen.tolist() == written_by_generate(story_gpt2) and found.same.all()
    with pytest.raises(Refusal) as refused:
        climb(story_gpt2, rungs=[way])
    assert refused.value.code == "no_compiler" and "cpu" in str(refused.value)


def test_what_may_be_chosen_on_a_device(monkeypatch):
    monkeypatch.setattr(lanes.devices, "dtypes", lambda device: ("float32", "bfloat16"))
    cpu, cuda = (ladder.available(torch.device(name), "float32") for name in ("cpu", "cuda"))
    assert len(cpu) == 12 and {w.dtype for w in cpu} == {"float32", "bfloat16"} and not any(w.compiled for w in cpu)
    assert cuda[:12] == cpu and [w[:2] for w in cuda[12:]] == [("preallocated", "sdpa")] * 2
    assert {w.dtype for w in ladder.available(torch.device("cpu"), "bfloat16")} == {"bfloat16"}


def watched(monkeypatch) -> list[tuple[str, int]]:
    """Each pass as (cache, positions it attends to), in the order they run."""
    seen = []
    step = lanes.Lane.step

    def spied(lane):
        seen.append((lane.way.cache, len(lane.prefix)))
        return step(lane)

    monkeypatch.setattr(lanes.Lane, "step", spied)
    return seen


def test_lanes_take_turns_and_the_order_turns_with_the_round(story_gpt2, monkeypatch):
    seen = watched(monkeypatch)
    monkeypatch.setattr(ladder, "CHUNK", 2)
    climb(story_gpt2, 3, 5, rungs=TWO, repeats=2)
    a, b = "none", "preallocated"
    warm = [(x, t) for x in (a, b) for t in (3, 4, 5, 6)]
    there = [(a, 3), (a, 4), (b, 3), (b, 4), (a, 5), (a, 6), (b, 5), (b, 6), (a, 7), (b, 7)]
    back = [(b, 3), (b, 4), (a, 3), (a, 4), (b, 5), (b, 6), (a, 5), (a, 6), (b, 7), (a, 7)]
    assert seen == warm + there + back


def test_it_tells_each_pass_of_the_first_round_and_holds_no_lock(story_gpt2):
    passes, told = [], []
    for found in ladder.climb(story_gpt2, TEXT, P, N, rungs=TWO, repeats=2, beside_generate=False, clock=lambda: 0.0):
        assert not story_gpt2.lock.taken
        passes.append([r.n for r in found.rungs])
        told.append((found.state, found.complete, found.rates))
    # two lanes made ready, four passes of warm-up each, then six passes each
    assert passes[:10] == [[0, 0]] * 10
    assert passes[10:22] == [[n, 0] for n in range(1, 7)] + [[6, n] for n in range(1, 7)]
    # the device's rates come after the first round, and a clock that stands still lets nothing be told in the second
    assert [rates for *_, rates in told[:22]] == [None] * 22
    assert told[-2:] == [("running", 1, KNOWN), ("done", 2, KNOWN)] and len(told) == 25


def test_known_rates_are_there_from_the_start(story_gpt2, monkeypatch):
    monkeypatch.setattr(rates, "measure", lambda *_, **__: pytest.fail("measured again"))
    assert all(found.rates is KNOWN for found in climb(story_gpt2, known=KNOWN))
    assert climb(story_gpt2, measure_rates=False)[-1].rates is None
    monkeypatch.setattr(memory, "there", lambda name: 2**29)  # enough for the lane, not for the copy
    assert climb(story_gpt2)[-1].rates is None


def test_repeats_are_added_while_they_fit(story_gpt2):
    assert climb(story_gpt2, repeats=None, budget_s=0.0)[-1].repeats == 4  # sixteen passes after the first token
    found = climb(story_gpt2, 3, 2, repeats=None, clock=lambda: 0.0)[-1]
    assert (found.repeats, found.complete) == (25, 25)


@pytest.mark.parametrize(("after", "warm", "passes", "repeats"), [
    (1, [0, 0], [0, 0], 0),  # the first lane is ready
    (5, [3, 0], [0, 0], 0),
    (10, [4, 4], [0, 0], 0),
    (12, [4, 4], [2, 0], 1),
    (22, [4, 4], [6, 6], 1),
])  # fmt: skip
def test_stopping_leaves_what_was_measured(story_gpt2, after, warm, passes, repeats):
    stop = threading.Event()
    found = []
    for so_far in ladder.climb(story_gpt2, TEXT, P, N, rungs=TWO, repeats=2, stop=stop, clock=lambda: 0.0,
                               beside_generate=False, measure_rates=False):  # fmt: skip
        found.append(so_far)
        if len(found) == after:
            stop.set()
    last = found[-1]
    assert last.state == "stopped"
    assert [len(r.warm_up) for r in last.rungs] == warm and [r.n for r in last.rungs] == passes
    assert [len(r.ms) for r in last.rungs] == [repeats] * 2
    assert to_json(from_json(to_json(last))) == to_json(last)  # which looks for contradictions


def test_stopping_ends_generate_after_the_pass_it_is_in(story_gpt2, monkeypatch):
    """20 tokens take 20 passes; set in the third, Stop leaves no fourth. The round that it cut has no time of it."""
    stop, passes = threading.Event(), []
    own = type(story_gpt2.module).generate

    def counted(module, *args, **options):
        def third(*_):
            passes.append(1)
            if len(passes) == 3:
                stop.set()

        hook = module.register_forward_pre_hook(third)
        try:
            return own(module, *args, **options)
        finally:
            hook.remove()

    monkeypatch.setattr(type(story_gpt2.module), "generate", counted)
    last = list(ladder.climb(story_gpt2, TEXT, P, 20, rungs=ONE, repeats=2, stop=stop, measure_rates=False))[-1]
    # The first token alone, which is taken from the time of all, is one pass more, if it is asked for at all.
    assert 3 <= len(passes) <= 4 and last.state == "stopped" and len(last.generate) == 0
    assert [r.n for r in last.rungs] == [20]
    assert to_json(from_json(to_json(last))) == to_json(last)


def test_stopping_in_a_later_round_leaves_holes(story_gpt2, monkeypatch):
    stop, seen = threading.Event(), watched(monkeypatch)
    for found in ladder.climb(story_gpt2, TEXT, P, N, rungs=TWO, repeats=3, stop=stop, beside_generate=False):
        last = found
        if len(seen) >= 8 + 12 + 3:  # warm-up, a round, and three passes of the second
            stop.set()
    assert last.state == "stopped" and last.complete >= 1
    assert to_json(from_json(to_json(last))) == to_json(last)
    assert all(np.isfinite(r.ms[0]).all() and r.n == N for r in last.rungs)
    assert sum(int(np.isfinite(r.ms).sum()) for r in last.rungs) == len(seen) - 8


def test_a_row_that_differs_is_seen(story_gpt2, monkeypatch):
    step = lanes.Lane.step

    def odd(lane):
        done = step(lane)
        return lanes.Passed(done.ms, done.held, done.chosen, len(lane.prefix) != P + 3)  # after the third pass

    monkeypatch.setattr(lanes.Lane, "step", odd)
    assert climb(story_gpt2)[-1].same.tolist() == [True, True, False, True, True, True]


def test_a_repeat_that_differs_is_seen(story_gpt2, monkeypatch):
    step, passes = lanes.Lane.step, []

    def odd(lane):
        passes.append(lane)
        done = step(lane)
        other = (done.chosen + 1) % 100 if len(passes) == 4 + N + 2 else done.chosen  # the second round's second
        return lanes.Passed(done.ms, done.held, other, True)

    monkeypatch.setattr(lanes.Lane, "step", odd)
    found = climb(story_gpt2, repeats=3)[-1]
    assert found.same.tolist() == [True, False, True, True, True, True] and found.rungs[0].chosen[1] == -1


def test_refusals_come_before_anything_runs(story_gpt2):
    for text, length, code in (("", 5, "empty_prompt"), ("Once", 1025, "too_long"), ("Once", 1020, "too_many_new")):
        with pytest.raises(Refusal) as refused:
            next(ladder.climb(story_gpt2, text, length, N))
        assert refused.value.code == code
    with pytest.raises(Refusal) as refused:
        climb(story_gpt2, rungs=[Way("none", "sdpa", "int4")])
    assert refused.value.code == "bad_dtype"
    unrunnable = [{"N": 1}, {"batch": 0}, {"rungs": []}, {"rungs": ONE * 2}, {"rungs": [("paged", "sdpa")]},
                  {"rungs": [Way("concatenated", "sdpa", compiled=True)]}]  # fmt: skip
    for options in unrunnable:
        with pytest.raises(ValueError) as wrong:
            climb(story_gpt2, **options)
        assert not isinstance(wrong.value, Refusal), options


def test_memory_is_looked_at_first(story_gpt2, monkeypatch):
    """17 positions for the lane and for `generate`, twice; arrays of a prefill of 12 rows twice; a copy in bfloat16."""
    V, weights = story_gpt2.facts.vocab_size, story_gpt2.facts.parameters
    arrays = 4 * (2 * 12 * 256 + 2 * 8 * 12 * 32 + 2 * 8 * 12 * 17 + V) + 16 * 256 * 12 * 4
    needed = 2 * (2 * 17 * 12_288 + arrays) + 256 * 2**20
    way = ladder.checked(story_gpt2, ONE, compiler=False)
    half = ladder.checked(story_gpt2, [*ONE, Way("concatenated", "sdpa", "bfloat16")], compiler=False)
    monkeypatch.setattr(memory, "there", lambda name: needed)
    ladder.check_memory(story_gpt2, way, P, N, 2)
    with pytest.raises(Refusal) as refused:
        ladder.check_memory(story_gpt2, half, P, N, 2)
    assert refused.value.code == "no_room_for_lanes" and "17 positions and a batch of 2" in str(refused.value)
    monkeypatch.setattr(memory, "there", lambda name: needed + 2 * 17 * 6_144 + 2 * weights)
    ladder.check_memory(story_gpt2, half, P, N, 2)
    monkeypatch.setattr(memory, "there", lambda name: needed - 1)
    with pytest.raises(Refusal):
        climb(story_gpt2, batch=2)
    monkeypatch.setattr(memory, "there", lambda name: None)  # not known is no reason
    ladder.check_memory(story_gpt2, half, P, N, 2)


def test_bench_prints_and_writes_the_ladder(monkeypatch, capsys, tmp_path, story_gpt2):
    monkeypatch.setattr(bench, "random_gpt2_small", lambda **_: story_gpt2)
    file = tmp_path / "ladder.json"
    arguments = ["--only", "ladder", "--prompt-tokens", "5", "--new-tokens", "20", "--lanes", "none,sdpa",
                 "concatenated,sdpa", "preallocated,eager,bfloat16", "--device", "cpu", "--rounds", "2",
                 "--json", str(file), "--markdown", str(tmp_path / "ladder.md")]  # fmt: skip
    assert cli.main(["bench", *arguments]) == 0
    found = read(file.read_bytes())
    assert [(r.name, r.dtype) for r in found.rungs] == [
        ("none, sdpa", "float32"), ("concatenated, sdpa", "float32"), ("preallocated, eager", "bfloat16")
    ]  # fmt: skip
    assert found.rungs[1].held[-1] == 24 * 12_288 and (found.complete, found.state) == (2, "done")
    assert found.copied == 266 * 12_288 and found.written == 19 * 12_288
    assert json.loads(file.read_text())["ladder"] == to_json(found)
    assert (tmp_path / "ladder.md").read_text() == to_markdown(found)
    said = capsys.readouterr()
    assert f"{266 * 12_288:,} bytes" in said.out and "x the floor" in said.out and "in all lanes" in said.out
    assert "concatenation copies" in said.out
    assert "round 1 of 2" in said.err and "round 2 of 2" in said.err


def test_bench_says_nothing_of_copies_that_no_lane_makes(monkeypatch, capsys, story_gpt2):
    monkeypatch.setattr(bench, "random_gpt2_small", lambda **_: story_gpt2)
    arguments = ["--prompt-tokens", "5", "--new-tokens", "3", "--rounds", "1", "--device", "cpu"]
    assert cli.main(["bench", "--only", "ladder", "--lanes", "none,sdpa", *arguments]) == 0
    said = capsys.readouterr().out
    assert "none, sdpa: a later token" in said and "concatenation" not in said


def test_bench_names_what_it_can_not_run(capsys):
    for wrong, sentence in ((["--new-tokens", "1"], "no whole number from 2 up"),
                            (["--rounds", "1001"], "no whole number from 1 to 1000"),
                            (["--lanes", "paged,sdpa"], "'paged,sdpa' is no lane"),
                            (["--lanes", "none,sdpa,int4"], "is no lane"),
                            (["--lanes", "none,sdpa,compiled"], "only preallocated,sdpa")):  # fmt: skip
        with pytest.raises(SystemExit):
            cli.main(["bench", "--only", "ladder", *wrong])
        assert sentence in capsys.readouterr().err
    lane = bench._lane("preallocated,sdpa,bfloat16,compiled")
    assert lane == Way("preallocated", "sdpa", "bfloat16", True)
    assert (bench._lane("none,eager"), bench._lane("preallocated,sdpa,compiled")) == (
        Way("none", "eager"), Way("preallocated", "sdpa", "", True)
    )  # fmt: skip


def test_matrix_values_of_gpt2_small_on_paper(story_gpt2):
    """12 · width² in each layer, of story-gpt2: 6 layers of 256."""
    assert growth.matrix_values(story_gpt2) == 6 * 12 * 256**2


def test_memory_that_runs_out_ends_it_with_a_sentence(story_gpt2, monkeypatch):
    def full(lane):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(lanes.Lane, "step", full)
    with pytest.raises(Refusal) as refused:
        climb(story_gpt2)
    assert refused.value.code == "out_of_memory" and not story_gpt2.lock.taken
