"""Measures this machine: what capture costs, a whole run against transformers' own, a new token, the race, the
ladder of ways to run a model beside the least time that this device could take, and reading K and V as they lie.

Everything to be compared is interleaved round by round in alternating order; load and warm-up are left out, and
figures are medians with quartiles. Runs without Streamlit.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from kvviz.core import Run, lessons
from kvviz.core.refusal import Refusal
from kvviz.engine.session import Session
from kvviz.features.ladder.measure import ladder as _ladder
from kvviz.features.ladder.measure import reads as _reads
from kvviz.features.ladder.record.file import MOST_REPEATS, to_json, to_markdown
from kvviz.features.ladder.record.ladder import VALUE_BYTES, Ladder, Reads
from kvviz.features.race.measure import race
from kvviz.features.race.record import Spread
from kvviz.measure.clock import timed
from kvviz.models.loading import LoadedModel, load, random_gpt2_small
from kvviz.player import message

PROMPT = "Once upon a time there was an old man who lived in a little house by the wood with his wife and a cat. "
CAPTURE_LIMIT, RUN_LIMIT = 1.2, 1.05
JOBS = ("capture", "run", "token", "race", "figures", "ladder", "reads")
BOTH = ("story", "small")
MEASURED = {"capture": BOTH, "run": BOTH[1:], "token": BOTH, "race": BOTH, "figures": BOTH[:1]}  # others: as asked for
CACHED = tuple(_ladder.Way(*rung) for rung in _ladder.RUNGS if rung[0] != "none")  # the others take minutes a round
ROUNDS = 7
LADDER_ROUNDS = 5
STEPS = 8  # decode steps a round
FIGURE_STEPS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="F", help="also write everything to F")
    parser.add_argument("--markdown", metavar="F", help="also write the ladder's table to F")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no long race at GPT-2 small's size")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, mps (default: KVVIZ_DEVICE, else the best there is)")
    parser.add_argument("--dtype", help="float32, float16 or bfloat16 (default: KVVIZ_DTYPE, else float32)")
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument(
        "--model", help="of the ladder and the reads, by its name (default: random weights, GPT-2 small's size)"
    )
    parser.add_argument(
        "--lanes", nargs="+", type=_lane, default=CACHED, metavar="CACHE,KERNEL[,DTYPE][,compiled]",
        help="of the ladder: none, concatenated or preallocated with eager or sdpa, in another precision, compiled "
        "(default: all with a cache)",
    )  # fmt: skip
    parser.add_argument("--prompt-tokens", type=_from(1), default=256, help="of ladder and reads (default 256)")
    parser.add_argument("--new-tokens", type=_from(2), default=128, help="of the ladder, 2 or more (default 128)")
    parser.add_argument("--batch", type=_from(1), default=1, help="of the ladder: the prompt so many times")
    parser.add_argument("--rounds", type=_from(1, MOST_REPEATS), default=LADDER_ROUNDS, help="of the ladder")


def _from(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number from `least` up, for argparse."""
    end = f"to {most}" if most else "up"

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least or (most and int(text) > most):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} {end}")
        return int(text)

    return number


def _lane(text: str) -> _ladder.Way:
    """One of the ladder's lanes: "preallocated,sdpa,bfloat16", say."""
    parts = text.split(",")
    rung, rest = tuple(parts[:2]), parts[2:]
    compiled = rest[-1:] == ["compiled"]
    dtypes = rest[:-1] if compiled else rest
    if rung not in _ladder.RUNGS or len(dtypes) > 1 or not {*dtypes} <= VALUE_BYTES.keys():
        raise argparse.ArgumentTypeError(f"{text!r} is no lane, as preallocated,sdpa or none,eager,bfloat16 are")
    if compiled and rung != ("preallocated", "sdpa"):
        raise argparse.ArgumentTypeError(f"{text!r}: only preallocated,sdpa can be compiled")
    return _ladder.Way(*rung, *(dtypes or [""]), compiled)


def run(chosen: argparse.Namespace) -> int:
    """Prints a table; exit status 0 also when a target is missed: a busy machine is not a fault."""
    for file in (chosen.json, chosen.markdown):
        if file and not Path(file).parent.is_dir():  # not after minutes of work
            raise Refusal("folder_missing", path=str(Path(file).parent))
    wanted = set(chosen.only or JOBS)
    rounds = 5 if chosen.quick else ROUNDS
    models = _models(chosen, wanted)
    m, dtype = next((each.machine, each.facts.dtype) for each in models.values())
    own = {"capture_rounds": rounds} if wanted & {"capture", "run", "token"} else {}
    found: dict[str, object] = {"machine": asdict(m), "dtype": dtype, **own}
    print(f"{m.device_name} (device {m.device}, dtype {dtype}), {m.threads} threads, {m.system}")
    print(f"Python {m.python}, torch {m.torch}, transformers {m.transformers}")
    print("; ".join(each.facts.name for each in models.values()) + "\n")
    for name, job in (
        ("capture", lambda: [capture(models[each], rounds) for each in reversed(BOTH)]),
        ("run", lambda: [whole_run(models["small"], rounds)]),
        ("token", lambda: [new_token(models[each], rounds) for each in BOTH]),
        ("race", lambda: races(models["story"], models["small"], quick=chosen.quick)),
        ("figures", lambda: figures(models["story"])),
        ("ladder", lambda: ladder(models.get("asked") or models["small"], chosen)),
        ("reads", lambda: reads(models.get("asked") or models["small"], chosen)),
    ):
        if name in wanted:
            found[name] = job()
            print()
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def _models(chosen: argparse.Namespace, wanted: set[str]) -> dict[str, LoadedModel]:
    """Those that the wanted jobs measure, and no other."""
    where = {"device": chosen.device, "dtype": chosen.dtype}
    loading = {
        "story": lambda: load("story-gpt2", **where),
        "small": lambda: random_gpt2_small(**where),
        "asked": lambda: load(chosen.model, **where),
    }
    used = {name for job in wanted for name in MEASURED.get(job, ["asked" if chosen.model else "small"])}
    return {name: begin() for name, begin in loading.items() if name in used}


def interleaved(rounds: int, tasks: dict[str, Callable[[], float]]) -> dict[str, np.ndarray]:
    """(rounds,) milliseconds of each task, as it returns them; the order turns with every round."""
    names = list(tasks)
    times: dict[str, list[float]] = {name: [] for name in names}
    for r in range(rounds):
        for name in names if r % 2 == 0 else reversed(names):
            times[name].append(tasks[name]())
    return {name: np.array(ms) for name, ms in times.items()}


def _text(model: LoadedModel, tokens: int) -> str:
    """A prompt of exactly so many tokens."""
    text = " the" * tokens
    if (found := len(model.encode(text))) != tokens:
        raise RuntimeError(f"the text of {tokens} tokens reads as {found}")
    return text


def _ms(spread: Spread) -> str:
    return f"{spread.median:8.2f} ms ({spread.low:.2f} - {spread.high:.2f})"


def _show(label: str, value: str) -> None:
    print(f"  {label:<46} {value}", flush=True)


def _target(ratio: Spread, limit: float) -> str:
    verdict = "met" if ratio.median <= limit else "MISSED"
    return f"{ratio.median:8.3f} x  ({ratio.low:.3f} - {ratio.high:.3f})   target <= {limit}: {verdict}"


def _clocked(model: LoadedModel, work: Callable[[], object]) -> float:
    with timed(model.device) as watch:
        work()
    return watch.ms


def capture(model: LoadedModel, rounds: int) -> dict:
    """A decode step recorded with its tensors against the same step without them, from 64 to about 128 tokens."""
    print(f"A decode step with capture, {model.facts.name}")
    sessions = {on: Session(model, _text(model, 64), compare=False, capture=on) for on in (True, False)}
    for session in sessions.values():
        session.prefill()
        session.advance(4)

    def steps(on: bool) -> float:
        times = [_clocked(model, sessions[on].decode_one_token) for _ in range(STEPS)]
        return float(np.median(times))

    times = interleaved(rounds, {"with": lambda: steps(True), "without": lambda: steps(False)})
    ratio = Spread.of(times["with"] / times["without"])
    _show("without capture", _ms(Spread.of(times["without"])))
    _show("with capture", _ms(Spread.of(times["with"])))
    _show("with / without", _target(ratio, CAPTURE_LIMIT))
    return _report(model, times, ratio, CAPTURE_LIMIT)


def whole_run(model: LoadedModel, rounds: int, P: int = 64, N: int = 64) -> dict:
    """P + N tokens recorded with all weights against `generate(output_attentions=True)` on an eager copy."""
    print(f"A whole captured run, {P} + {N} tokens, {model.facts.name}")
    text = _text(model, P)
    eager = copy.deepcopy(model.module)
    eager.set_attn_implementation("eager")
    ids = torch.tensor([model.encode(text)], device=model.device)
    options = {"do_sample": False, "max_new_tokens": N, "min_new_tokens": N, "pad_token_id": 0}

    def generate() -> None:
        with torch.inference_mode():
            out = eager.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                output_attentions=True,
                return_dict_in_generate=True,
                **options,
            )
        assert len(out.attentions) == N and out.attentions[0][0].shape[-1] == P

    def record() -> None:
        recorded = Session(model, text, compare=False).advance(N)
        assert len(recorded.steps) == N and recorded.steps[0].attention.shape[-1] == P

    generate(), record()  # warm-up
    tasks = {"kvviz": record, "generate": generate}
    times = interleaved(rounds, {name: lambda work=work: _clocked(model, work) for name, work in tasks.items()})
    ratio = Spread.of(times["kvviz"] / times["generate"])
    _show("generate(output_attentions=True)", _ms(Spread.of(times["generate"])))
    _show("kvviz, recorded", _ms(Spread.of(times["kvviz"])))
    _show("kvviz / generate", _target(ratio, RUN_LIMIT))
    return _report(model, times, ratio, RUN_LIMIT)


def new_token(model: LoadedModel, rounds: int) -> dict:
    """N on the keyboard, as far as Python goes: one more token, compare off, and the message that tells the player."""
    print(f"A new token and its message, {model.facts.name}")
    session = Session(model, _text(model, 64), compare=False)
    session.prefill()
    have, focus = message.Have(), message.Focus()
    header = {"key": "bench", "language": "en", "mode": "run", "view": [0, 0, 0, "all", None]}
    message.build(session.run, have, focus, header)
    decode, encode, sizes = [], [], []
    for _ in range(rounds * STEPS):
        decode.append(_clocked(model, session.decode_one_token))
        start = time.perf_counter()
        sizes.append(len(message.build(session.run, have, focus, header)))
        encode.append((time.perf_counter() - start) * 1e3)
    both = Spread.of(np.array(decode) + np.array(encode))
    _show("decode_one_token, recorded", _ms(Spread.of(np.array(decode))))
    _show("its message", _ms(Spread.of(np.array(encode))))
    _show("together", _ms(both))
    _show("largest message", f"{max(sizes):,} bytes")
    return {"model": model.facts.name, "ms": both._asdict(), "largest_message_bytes": max(sizes)}


def races(story: LoadedModel, small: LoadedModel, *, quick: bool) -> list[dict]:
    """The race's own medians."""
    found = []
    for model, P, N in ((story, 5, 20), (story, 100, 100), (small, 5, 20), (small, 100, 100)):
        if quick and model is small and P == 100:
            continue
        print(f"Race, {P} + {N} tokens, {model.facts.name}")
        *_, last = race(model, PROMPT, N, length=P, repeats=5 if N == 20 else 3)
        without, with_ = last.rows
        for name, lane in (("no cache", last.uncached), ("with the cache", last.cached)):
            _show(f"{name}: first token (TTFT)", _ms(lane.ttft))
            _show(f"{name}: a later token (TPOT)", _ms(lane.tpot))
            _show(f"{name}: all {N} tokens", f"{lane.cumulative[-1]:8.1f} ms")
        spread = f"({last.ratios.low:.2f} - {last.ratios.high:.2f}, {last.complete} repeats)"
        _show("ratio, no cache / cache", f"{last.ratio:8.2f} x  {spread}")
        _show("work saved, rows", f"{last.work_ratio:8.1f} x  ({without:,} / {with_:,})")
        _show(
            "max |logit difference|", f"{last.max_abs_dlogit.max():8.1e}, {last.same_token.sum()} of {N} tokens equal"
        )
        found.append(
            {
                "model": model.facts.name,
                "P": P,
                "N": N,
                "ttft_ms": {"uncached": last.uncached.ttft._asdict(), "cached": last.cached.ttft._asdict()},
                "tpot_ms": {"uncached": last.uncached.tpot._asdict(), "cached": last.cached.tpot._asdict()},
                "ratio": last.ratio,
                "rows": [without, with_],
            }
        )
    return found


def figures(model: LoadedModel, P: int = 9, N: int = 100) -> list[dict]:
    """Every figure that follows a step, on a run of N passes at 20 steps: time to build, size of its JSON."""
    try:
        from kvviz.figures.plots import PLOTS as plots
    except ModuleNotFoundError:  # a GPU machine may lack Plotly
        print("Figures: Plotly is not installed")
        return []
    sections = lessons.sections("en", "figures")
    words = {name.removeprefix("word."): body for name, body in sections.items() if name.startswith("word.")}
    recorded: Run = Session(model, _text(model, P), compare=True).advance(N)
    print(f"Figures of a run of {len(recorded.steps)} passes, {FIGURE_STEPS} steps each")
    found = []
    for name, plot in plots.items():
        times, sizes = [], []
        for step in np.linspace(0, N - 1, FIGURE_STEPS).astype(int).tolist():
            start = time.perf_counter()
            figure = plot.figure(recorded, step, 0, 0, words=words, dark=False)
            sizes.append(len(figure.to_json(validate=False)))
            times.append((time.perf_counter() - start) * 1e3)
        spread = Spread.of(np.array(times))
        _show(name, f"{_ms(spread)}   slowest {max(times):.0f} ms   JSON up to {max(sizes):,} bytes")
        found.append({"figure": name, "ms": spread._asdict(), "slowest_ms": max(times), "json_bytes": max(sizes)})
    return found


def ladder(model: LoadedModel, chosen: argparse.Namespace) -> dict:
    """Every lane's time a token, against `generate` and against the floor that bytes and arithmetic set."""
    P, N, batch = chosen.prompt_tokens, chosen.new_tokens, chosen.batch
    print(f"Ladder, {P} + {N} tokens, batch {batch}, {model.facts.name}; transformers' own module and kernels")
    steps = _ladder.climb(model, PROMPT, P, N, rungs=chosen.lanes, batch=batch, repeats=chosen.rounds)
    found = _last(steps, lambda so_far: f"round {min(so_far.complete + 1, so_far.repeats)} of {so_far.repeats}")
    _rates(found)
    for rung in found.rungs:
        tpot = rung.tpot
        more = f"   TTFT {rung.ttft.median:.1f} ms"
        if rung.cache != "none":
            more += f"   {tpot.median / found.floor_ms(rung):.2f} x the floor, "
            more += f"{100 * found.bandwidth_share(rung):.0f} % of the bandwidth, {rung.held[-1]:,} bytes"
        _show(f"{_name(rung, found)}: a later token (TPOT)", _ms(tpot) + more)
    _show("generate: a later token", _ms(Spread.of(found.generate)))
    if any(rung.cache != "none" and rung.dtype == model.facts.dtype for rung in found.rungs):
        _show(f"fastest ({found.fastest.name}) / generate", _target(found.to_generate, RUN_LIMIT))
    if any(rung.cache == "concatenated" for rung in found.rungs):
        _show("concatenation copies, by the formula", f"{found.copied:,} bytes; the passes write {found.written:,}")
    _show("tokens", "equal in all lanes" if found.same.all() else "NOT equal in all lanes")
    if chosen.markdown:
        Path(chosen.markdown).write_text(to_markdown(found), encoding="utf-8")
    return to_json(found)


def _rates(found: Ladder) -> None:
    """What the device was measured to do, and the floor that follows for each precision."""
    for rung in {r.dtype: r for r in found.rungs if r.cache != "none"}.values() or found.rungs[:1]:
        if (rates := found.rates_of(rung)) is None:
            _show(f"rates in {rung.dtype}", "not measured: too little memory is free")
            continue
        _show("bandwidth of a copy, measured", f"{rates.bandwidth.median / 1e9:8.1f} GB/s")
        _show(f"matrix product, measured in {rung.dtype}", f"{rates.flop_rate.median / 1e9:8.1f} GFLOP/s")
        parts = f"{found.moved(rung):,} bytes, {found.flops(rung):,} FLOP"
        _show("floor, the middle token", f"{found.floor_ms(rung):8.2f} ms: {parts}")


def _name(rung, found: Ladder) -> str:
    """With the precision, where it is not the model's own."""
    return rung.name if rung.dtype == found.model.dtype else f"{rung.name}, {rung.dtype}"


def reads(model: LoadedModel, chosen: argparse.Namespace) -> dict:
    """One query over K and V of every layer, as they lie: in one tensor, in a larger buffer, in blocks."""
    T = chosen.prompt_tokens
    print(f"Reading K and V of {T} positions, {model.facts.name}")
    found: Reads = _last(
        _reads.reads(model, PROMPT, T), lambda so_far: f"round {len(so_far.layouts[0].times)} of {so_far.repeats}"
    )
    for read in found.layouts:
        gather = f"   {read.gather_ms.median:.2f} ms of it to gather" if read.gather_ms.count else ""
        _show(read.layout, _ms(read.ms) + f"   {read.read:,} bytes read, {read.moved:,} moved{gather}")
    _show("max |difference| of the results", f"{found.max_abs:8.1e}")
    layouts = {r.layout: {"ms": r.times.tolist(), "gather_ms": r.gathers.tolist(), "read": r.read, "moved": r.moved}
               for r in found.layouts}  # fmt: skip
    return {"model": model.facts.name, "T": T, "room": found.room, "block": found.block, "max_abs": found.max_abs,
            "layouts": layouts}  # fmt: skip


def _last(steps: Iterator, where: Callable[[object], str]):
    """The last of what a measurement yields. Meanwhile stderr says how far it is: a terminal in one line with the
    seconds, a file once for each round."""
    begun, shown, live = time.monotonic(), "", sys.stderr.isatty()
    for so_far in steps:
        line = f"  {where(so_far)}" + (f", {time.monotonic() - begun:.0f} s" if live else "")
        if line != shown:
            print(f"\r{line:<{len(shown)}}" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)
            shown = line
    if live:
        print(f"\r{'':<{len(shown)}}\r", end="", file=sys.stderr, flush=True)
    return so_far


def _report(model: LoadedModel, times: dict[str, np.ndarray], ratio: Spread, limit: float) -> dict:
    assert not math.isnan(ratio.median)
    return {
        "model": model.facts.name,
        "ms": {name: ms.round(3).tolist() for name, ms in times.items()},
        "ratio": ratio._asdict(),
        "limit": limit,
        "met": ratio.median <= limit,
    }
