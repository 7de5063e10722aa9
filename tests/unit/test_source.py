"""The source walk against the package itself: its lines are those Python comes to, its values those found there."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from kvviz.features.source.record import installed as source
from kvviz.features.source.record.beside import beside, digits
from kvviz.features.source.record.walk import STATIONS
from kvviz.models.catalog import BUILTIN

HEAD = 2
PROMPT = "Once upon a time there was a little"
# What no variable holds at that line: the kernel's inner values, sums over the cache, candidates; and the mask, which
# kvviz hands in itself and the loop of transformers may leave out.
NOT_HELD = re.compile(r"….*|softmax.*|K, V|causal_mask.*")
GPT2 = "GPT2LMHeadModel"


class Trace:
    """What a real `generate` of transformers comes to: lines of the walks' functions, with the variables there."""

    def __init__(self, model, ids, passes: int, walks, rows) -> None:
        self.walks, self.rows = walks, rows
        self.step, self.lines = -1, [[] for _ in range(passes)]
        self.held: dict[tuple[int, str, str], object] = {}
        self.waiting: dict[int, tuple[int, str, tuple[int, int]]] = {}  # frame -> step, station, lines it stands on
        self.files = {(each.file.split("/", 1)[1], each.name.split(".")[1]) for w in walks for each in w.listings}
        self.seen: set[tuple[int, str]] = set()
        sys.settrace(self.called)
        try:
            model.generate(ids, max_new_tokens=passes, min_new_tokens=passes, do_sample=False, pad_token_id=0)
        finally:
            sys.settrace(None)

    def called(self, frame, event, _argument):
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        return self.line if any(file.endswith(f) and name == n for f, n in self.files) else None

    def line(self, frame, event, _argument):
        if event not in ("line", "return"):
            return self.line
        at = frame.f_lineno
        if (waits := self.waiting.get(id(frame))) and (event == "return" or not waits[2][0] <= at <= waits[2][1]):
            del self.waiting[id(frame)]
            self.look(frame, waits[0], waits[1], after=True)
        if event == "return":
            return self.line
        # the pass that the line belongs to: one begins where the loop takes up its ids
        if any(self.stands(frame, at, self.walks[0], s) for s in self.walks[0].stations[:1]) and self.step < 0:
            self.step = 0
        elif self.step >= 0 and self.stands(frame, at, self.walks[1], self.walks[1].stations[0]):
            self.step += 1
        walk = self.walks[min(self.step, 1)]
        for s in walk.stations if self.step >= 0 else ():
            if self.stands(frame, at, walk, s):
                self.lines[self.step].append(s.name)
                if (self.step, s.name) not in self.seen:  # layer 0
                    self.seen.add((self.step, s.name))
                    self.look(frame, self.step, s.name, after=False)
                    self.waiting[id(frame)] = self.step, s.name, s.lit
        return self.line

    @staticmethod
    def stands(frame, at, walk, station) -> bool:
        listing = walk.listings[station.listing]
        same = frame.f_code.co_filename.endswith(listing.file.split("/", 1)[1])
        return same and at == station.lit[0]

    def look(self, frame, step: int, station: str, *, after: bool) -> None:
        import torch

        for row in self.rows[step].get(station, ()):
            if NOT_HELD.fullmatch(row.name) or row.name.endswith(" =") != after:
                continue
            name = row.name.removesuffix(" =")
            value = eval(name, {}, {"torch": torch, **frame.f_locals})
            self.held[step, station, row.name] = as_shown(value, row.text)


def as_shown(value, like: str) -> object:
    """A variable the way the page writes it: a shape, an id, the first few values, a length, …"""
    import torch

    if isinstance(value, torch.nn.ModuleList):
        return str(len(value))
    if not isinstance(value, torch.Tensor):
        return (
            f"{value:,} bytes"
            if like.endswith("bytes")
            else str(value)
            if isinstance(value, int)
            else type(value).__name__
        )
    if like.startswith("("):
        return str(tuple(value.shape))
    return value.detach().float().numpy().ravel() if value.is_floating_point() else value.ravel().tolist()


def agrees(held: object, text: str) -> bool:
    if isinstance(held, np.ndarray):  # float16 in the record, three digits on the page
        told = np.array([float(x) for x in text.removesuffix(", …").split(", ")])
        return np.allclose(held[: len(told)], told, rtol=6e-3, atol=2e-3)
    if isinstance(held, list):
        if re.fullmatch(r"\d+( … \d+)?", text):
            return [held[0], held[-1]] == [int(text.split(" … ")[0]), int(text.split(" … ")[-1])]
        ids = [int(part.split(" ")[0]) for part in text.split(", ") if part != "…" and part[:1].isdigit()]
        return ids == held if "…" not in text else ids == [*held[: len(ids) - 1], held[-1]]
    return held == text


@pytest.fixture(scope="module", params=["story-gpt2", "story-llama"])
def traced(request):
    """Three passes by kvviz's engine, and the same three by transformers' own loop."""
    import torch
    from transformers import AutoModelForCausalLM

    from kvviz.engine import Session, load

    session = Session(load(request.param, device="cpu"), PROMPT, compare=False)
    run = session.advance(3)
    architecture = run.model.architecture
    walks = [source.walk(architecture, phase, greedy=True) for phase in ("prefill", "decode")]
    rows = [beside(run, i, 0, HEAD, walks[min(i, 1)]) for i in range(3)]
    model = AutoModelForCausalLM.from_pretrained(BUILTIN / request.param, dtype=torch.float32).eval()
    return run, walks, rows, Trace(model, torch.tensor(run.prompt_ids)[None], 3, walks, rows)


@pytest.mark.parametrize("step", range(3))
def test_generate_comes_to_the_stations_in_their_order(traced, step):
    _, walks, _, trace = traced
    wanted = [s.name for s in walks[min(step, 1)].stations]
    came = iter(trace.lines[step])
    assert [name for name in wanted if name in came] == wanted, trace.lines[step]


def test_the_variables_hold_what_stands_beside_them(traced):
    """Every shape and value of layer 0, looked up in the running frames of transformers itself."""
    run, _, rows, trace = traced
    shown = {(i, s, r.name): r.text for i, each in enumerate(rows) for s, rs in each.items() for r in rs}
    checked = {key for key in shown if not NOT_HELD.fullmatch(key[2])}
    assert checked == set(trace.held)
    assert len(checked) > 120
    wrong = {key: (trace.held[key], shown[key]) for key in checked if not agrees(trace.held[key], shown[key])}
    assert not wrong
    assert [int(s.chosen) for s in run.steps] == [trace.held[i, "choose", "next_tokens ="][0] for i in range(3)]


@pytest.mark.parametrize("architecture", [GPT2, "LlamaForCausalLM"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_listing_is_the_installed_function(architecture, phase):
    from transformers import cache_utils
    from transformers.generation import utils
    from transformers.models.gpt2 import modeling_gpt2
    from transformers.models.llama import modeling_llama

    walk = source.walk(architecture, phase, greedy=False)
    assert walk.known and not walk.missing
    for listing in walk.listings:
        owner, name = listing.name.split(".")
        home = next(m for m in (cache_utils, utils, modeling_gpt2, modeling_llama) if m.__file__.endswith(listing.file))
        lines, first = inspect.getsourcelines(inspect.unwrap(getattr(getattr(home, owner), name)))
        assert listing.first == first
        assert [text.strip() for text in listing.lines] == [text.strip() for text in lines]
    assert {s.name for s in walk.stations} <= set(STATIONS)


def test_sampling_is_another_line():
    lines = {}
    for greedy in (True, False):
        walk = source.walk(GPT2, "decode", greedy=greedy)
        (station,) = [s for s in walk.stations if s.name == "choose"]
        listing = walk.listings[station.listing]
        lines[greedy] = listing.lines[station.lit[0] - listing.first]
    assert "argmax" in lines[True] and "multinomial" in lines[False]


def test_the_old_name_is_read_from_the_source():
    from transformers import GPT2LMHeadModel

    walk = source.walk(GPT2, "decode", greedy=True)
    assert walk.argument in inspect.signature(inspect.unwrap(GPT2LMHeadModel.forward)).parameters
    decorated = "deprecate_kwarg" in inspect.getsource(GPT2LMHeadModel.forward)
    assert (walk.renamed is not None) == decorated


@pytest.fixture
def other_package(tmp_path) -> Path:
    """A transformers whose cache grows by another statement, and without a Llama."""
    root = tmp_path / "transformers"
    for file in (source.UTILS, source.CACHE, source.GPT2):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.package() / file, root / file)
    cache = (root / source.CACHE).read_text(encoding="utf-8")
    assert "self.keys = torch.cat([self.keys, key_states], dim=-2)" in cache
    changed = cache.replace("self.keys = torch.cat([self.keys, key_states], dim=-2)", "self.keys = grown(self.keys)")
    (root / source.CACHE).write_text(changed, encoding="utf-8")
    return root


def test_a_line_that_is_not_there_is_named_and_not_invented(other_package):
    walk = source.walk(GPT2, "decode", greedy=True, root=other_package)
    assert walk.missing == ("DynamicLayer.update: append_k",)
    assert "append_k" not in [s.name for s in walk.stations] and len(walk.stations) == 19
    llama = source.walk("LlamaForCausalLM", "decode", greedy=True, root=other_package)
    assert not llama.known
    assert {m.split(".")[0] for m in llama.missing} >= {"LlamaModel", "LlamaAttention"}


def test_a_file_that_does_not_parse_has_no_lines(other_package):
    (other_package / source.CACHE).write_text("class DynamicLayer:\n  def update(self:\n", encoding="utf-8")
    walk = source.walk(GPT2, "decode", greedy=True, root=other_package)
    assert {s.name for s in walk.stations} & {"cache", "append_k", "append_v", "hand_back"} == set()
    assert walk.known


def test_other_models_share_the_loop_and_the_cache():
    walk = source.walk("MistralForCausalLM", "prefill", greedy=True)
    names = [s.name for s in walk.stations]
    assert names == ["loop", "feed", "cache", "append_k", "append_v", "hand_back", "choose", "lengthen"]
    assert not walk.known and not walk.missing


def test_digits():
    assert digits([0.12345, -3.0, 1e-5], 2) == "0.123, -3, …"
    assert digits([2.0]) == "2"


@pytest.mark.parametrize("model", ["story-gpt2", "story-llama"])
def test_the_line_that_grows_the_cache_changes_no_old_row(model):
    """What the page says of K and V: added to, never rewritten. Exactly, in every layer, over five passes."""
    import torch

    from kvviz.engine import Session, cache_api, load
    from kvviz.engine import feed as passes

    loaded = load(model, device="cpu")
    run = Session(loaded, PROMPT, compare=False).advance(5)
    cache, held = cache_api.new_cache(), []
    for record in run.steps:
        passes.run_pass(loaded, [int(i) for i in record.ids], record.length_before, cache, listen=False)
        now = cache_api.tensors(cache)
        assert len(now) == 2 * run.model.layers
        for before, after in zip(held, now, strict=False):
            assert torch.equal(before, after[:, :, : record.length_before])
        held = [each.clone() for each in now]
