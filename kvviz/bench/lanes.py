"""The ladder of ways to run a model beside the least time that this device could take; reading K and V as they lie."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kvviz.bench.passes import RUN_LIMIT
from kvviz.bench.races import PROMPT
from kvviz.bench.report import ms, show, target
from kvviz.features.ladder.measure import ladder as _ladder
from kvviz.features.ladder.measure import reads as _reads
from kvviz.features.ladder.record.file import to_json, to_markdown
from kvviz.features.ladder.record.ladder import Ladder, Reads
from kvviz.features.race.record import Spread
from kvviz.models.loading import LoadedModel


def ladder(model: LoadedModel, chosen: argparse.Namespace) -> dict:
    """Every lane's time a token, against `generate` and against the floor that bytes and arithmetic set."""
    P, N, batch = chosen.prompt_tokens, chosen.new_tokens, chosen.batch
    print(f"Ladder, {P} + {N} tokens, batch {batch}, {model.facts.name}; transformers' own module and kernels")
    steps = _ladder.climb(model, PROMPT, P, N, rungs=chosen.lanes, batch=batch, repeats=chosen.rounds)
    found = last(steps, lambda so_far: f"round {min(so_far.complete + 1, so_far.repeats)} of {so_far.repeats}")
    _rates(found)
    for rung in found.rungs:
        tpot = rung.tpot
        more = f"   TTFT {rung.ttft.median:.1f} ms"
        if rung.cache != "none":
            more += f"   {tpot.median / found.floor_ms(rung):.2f} x the floor, "
            more += f"{100 * found.bandwidth_share(rung):.0f} % of the bandwidth, {rung.held[-1]:,} bytes"
        show(f"{_name(rung, found)}: a later token (TPOT)", ms(tpot) + more)
    show("generate: a later token", ms(Spread.of(found.generate)))
    if any(rung.cache != "none" and rung.dtype == model.facts.dtype for rung in found.rungs):
        show(f"fastest ({found.fastest.name}) / generate", target(found.to_generate, RUN_LIMIT))
    if any(rung.cache == "concatenated" for rung in found.rungs):
        show("concatenation copies, by the formula", f"{found.copied:,} bytes; the passes write {found.written:,}")
    show("tokens", "equal in all lanes" if found.same.all() else "NOT equal in all lanes")
    if chosen.markdown:
        Path(chosen.markdown).write_text(to_markdown(found), encoding="utf-8")
    return to_json(found)


def _rates(found: Ladder) -> None:
    """What the device was measured to do, and the floor that follows for each precision."""
    for rung in {r.dtype: r for r in found.rungs if r.cache != "none"}.values() or found.rungs[:1]:
        if (rates := found.rates_of(rung)) is None:
            show(f"rates in {rung.dtype}", "not measured: too little memory is free")
            continue
        show("bandwidth of a copy, measured", f"{rates.bandwidth.median / 1e9:8.1f} GB/s")
        show(f"matrix product, measured in {rung.dtype}", f"{rates.flop_rate.median / 1e9:8.1f} GFLOP/s")
        parts = f"{found.moved(rung):,} bytes, {found.flops(rung):,} FLOP"
        show("floor, the middle token", f"{found.floor_ms(rung):8.2f} ms: {parts}")


def _name(rung, found: Ladder) -> str:
    """With the precision, where it is not the model's own."""
    return rung.name if rung.dtype == found.model.dtype else f"{rung.name}, {rung.dtype}"


def reads(model: LoadedModel, chosen: argparse.Namespace) -> dict:
    """One query over K and V of every layer, as they lie: in one tensor, in a larger buffer, in blocks."""
    T = chosen.prompt_tokens
    print(f"Reading K and V of {T} positions, {model.facts.name}")
    found: Reads = last(
        _reads.reads(model, PROMPT, T), lambda so_far: f"round {len(so_far.layouts[0].times)} of {so_far.repeats}"
    )
    for read in found.layouts:
        gather = f"   {read.gather_ms.median:.2f} ms of it to gather" if read.gather_ms.count else ""
        show(read.layout, ms(read.ms) + f"   {read.read:,} bytes read, {read.moved:,} moved{gather}")
    show("max |difference| of the results", f"{found.max_abs:8.1e}")
    layouts = {r.layout: {"ms": r.times.tolist(), "gather_ms": r.gathers.tolist(), "read": r.read, "moved": r.moved}
               for r in found.layouts}  # fmt: skip
    return {"model": model.facts.name, "T": T, "room": found.room, "block": found.block, "max_abs": found.max_abs,
            "layouts": layouts}  # fmt: skip


def last(steps: Iterator, where: Callable[[object], str]):
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
