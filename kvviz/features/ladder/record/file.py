"""A ladder as JSON, exactly: a time that is not there (NaN) is null; and as a table for reading.

A file may come from anybody, so nothing in it is believed: types, lengths, ranges and what contradicts what are looked
at before anything is made of it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, NoReturn

import numpy as np

from kvviz.core.facts import MachineFacts, ModelFacts
from kvviz.core.refusal import Refusal
from kvviz.core.untrusted import Damaged, facts, model_facts, need, text
from kvviz.features.ladder.record.ladder import CACHES, KERNELS, VALUE_BYTES, Ladder, Rates, Rung
from kvviz.features.race.record import Allocator, Spread

FORMAT, VERSION = "kvviz ladder", 1
LARGEST = 10_000_000  # bytes
LONGEST = 200  # characters of a text
MOST_LANES, MOST_REPEATS, MOST_PASSES, MOST_BATCH = 24, 1_000, 100_000, 65_536
MOST = 10**15  # of any other count
_NAMES = {"key", "model", "machine", "P", "N", "rungs", "matrix_values", "batch", "repeats", "generate", "rates",
           "other_rates", "state", "allocator", "title"}  # fmt: skip


def to_json(ladder: Ladder) -> dict[str, Any]:
    """Plain dicts, lists, texts and numbers, as `from_json` takes them back."""
    return {"format": FORMAT, "version": VERSION, **_plain(ladder)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Spread):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, str):
        return str(value)  # torch's version is a class of its own
    return None if isinstance(value, float) and math.isnan(value) else value


def to_markdown(ladder: Ladder) -> str:
    """A table of its lanes, with the line that says what was run where: for documentation."""
    m, machine = ladder.model, ladder.machine
    said = (
        f"{m.name}, {m.dtype}, {ladder.P:,} + {ladder.N:,} tokens, batch {ladder.batch:,}; "
        f"{machine.device_name}, {machine.threads} threads, torch {machine.torch}, "
        f"transformers {machine.transformers}; medians of {ladder.complete} rounds, quartiles in brackets."
    )
    lines = [
        "| Lane | TTFT, ms | TPOT, ms | whole round, ms a token | × floor | MBU | K and V held, bytes |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for rung in ladder.rungs:
        dtype = "" if rung.dtype == m.dtype else f", {rung.dtype}"
        cells = [f"{rung.name}{dtype}", *map(_written, (rung.ttft, rung.tpot, Spread.of(rung.means)))]
        if rung.cache == "none" or ladder.rates_of(rung) is None:
            cells += ["", "", ""]
        else:
            far, share = rung.tpot.median / ladder.floor_ms(rung), 100 * ladder.bandwidth_share(rung)
            cells += [f"{far:.2f}", f"{share:.0f} %", f"{int(rung.held[-1]):,}"]
        lines.append("| " + " | ".join(cells) + " |")
    if len(ladder.generate):
        lines.append(f"| transformers' `generate` | | | {_written(Spread.of(ladder.generate))} | | | |")
    return "\n".join([said, "", *lines]) + "\n"


def _written(spread: Spread) -> str:
    return f"{spread.median:,.1f} ({spread.low:,.1f} – {spread.high:,.1f})"


def read(data: bytes) -> Ladder:
    """The ladder of a file: its own, or what `python -m kvviz bench --json` wrote. Raises a Refusal:

    "ladder_too_big" {bytes, limit}, "not_a_ladder", "ladder_version" {version, known}, "ladder_damaged" {part}.
    """
    if len(data) > LARGEST:
        raise Refusal("ladder_too_big", bytes=len(data), limit=LARGEST)
    try:
        raw = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
    except (ValueError, RecursionError):  # no UTF-8, no JSON, a number of thousands of digits
        raise Refusal("not_a_ladder") from None
    return from_json(raw)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def from_json(data: Any) -> Ladder:
    """What `to_json` gave, or a dict that holds it under "ladder". Raises a Refusal as `read` does."""
    if isinstance(data, dict) and "format" not in data:
        data = data.get("ladder")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise Refusal("not_a_ladder")
    if data.get("version") != VERSION:
        raise Refusal("ladder_version", version=str(data.get("version"))[:20], known=VERSION)
    try:
        return _ladder({name: value for name, value in data.items() if name not in ("format", "version")})
    except Damaged as part:
        raise Refusal("ladder_damaged", part=str(part)) from None
    except Exception:  # what a crafted file can raise in Python and NumPy has no end
        raise Refusal("ladder_damaged", part="values") from None


def _ladder(raw: dict[str, Any]) -> Ladder:
    need(raw.keys() == _NAMES, "names")
    model = model_facts(raw["model"], longest=LONGEST)
    need(VALUE_BYTES.get(model.dtype) == model.value_bytes, "model.value_bytes")
    need(all(v <= MOST for v in vars(model).values() if type(v) is int), "model")
    machine = facts(MachineFacts, raw["machine"], "machine", longest=LONGEST)
    need(machine.threads >= 1, "machine.threads")
    P, N = _count(raw["P"], "P", 1), _count(raw["N"], "N", 2, MOST_PASSES)
    need(P + N - 1 <= model.max_positions <= MOST, "P")
    repeats = _count(raw["repeats"], "repeats", 1, MOST_REPEATS)
    need(isinstance(raw["rungs"], list) and 0 < len(raw["rungs"]) <= MOST_LANES, "rungs")
    rungs = tuple(_rung(r, model, N, repeats) for r in raw["rungs"])
    need(len({(r.cache, r.kernel, r.dtype, r.compiled) for r in rungs}) == len(rungs), "rungs")
    need(len({len(r.ms) for r in rungs}) == 1, "rungs.ms")
    need(raw["state"] in ("running", "done", "stopped"), "state")
    need(raw["state"] != "done" or all(r.complete for r in rungs), "state")
    generate = _times(raw["generate"], "generate")
    need(len(generate) <= len(rungs[0].ms) and bool((generate > 0).all()), "generate")
    others = raw["other_rates"]
    need(isinstance(others, dict) and others.keys() <= VALUE_BYTES.keys(), "other_rates")
    return Ladder(
        key=text(raw["key"], "key", LONGEST),
        model=model,
        machine=machine,
        P=P,
        N=N,
        rungs=rungs,
        matrix_values=_count(raw["matrix_values"], "matrix_values", 1),
        batch=_count(raw["batch"], "batch", 1, MOST_BATCH),
        repeats=repeats,
        generate=generate,
        rates=None if raw["rates"] is None else _rates(raw["rates"], "rates"),
        other_rates={name: _rates(r, "other_rates") for name, r in others.items()},
        state=raw["state"],
        allocator=_allocator(raw["allocator"]),
        title=text(raw["title"], "title", LONGEST),
    )


def _rung(raw: Any, model: ModelFacts, N: int, repeats: int) -> Rung:
    need(isinstance(raw, dict) and raw.keys() == {f.name for f in dataclasses.fields(Rung)}, "rungs")
    need(raw["cache"] in CACHES and raw["kernel"] in KERNELS and raw["dtype"] in VALUE_BYTES, "rungs.cache")
    need(type(raw["compiled"]) is bool, "rungs.compiled")
    need(type(raw["N"]) is int and raw["N"] == N, "rungs.N")
    held, chosen = _counts(raw["held"], "rungs.held"), _counts(raw["chosen"], "rungs.chosen", -1)
    n = len(chosen)
    need(n <= N and len(held) == n, "rungs.held")
    need(bool((chosen < model.vocab_size).all()), "rungs.chosen")
    need(isinstance(raw["ms"], list) and len(raw["ms"]) <= repeats, "rungs.ms")
    rows = [_times(row, "rungs.ms") for row in raw["ms"]]
    need(all(len(row) == n for row in rows) and (bool(rows) or n == 0), "rungs.ms")
    ms = np.array(rows, dtype=np.float64).reshape(len(rows), n)
    need(not (ms <= 0).any() and not np.isnan(ms[:1]).any(), "rungs.ms")  # n is how far the first repeat has come
    warm_up = _times(raw["warm_up"], "rungs.warm_up")
    spent = {name: _time(raw[name], f"rungs.{name}") for name in ("ready_ms", "allocate_ms")}
    need(not (warm_up < 0).any() and not any(v < 0 for v in spent.values()), "rungs.warm_up")
    names = ("cache", "kernel", "dtype", "compiled")
    return Rung(**{k: raw[k] for k in names}, **spent, N=N, ms=ms, warm_up=warm_up, held=held, chosen=chosen)


def _rates(raw: Any, part: str) -> Rates:
    need(isinstance(raw, dict) and raw.keys() == {"bandwidth", "flop_rate"}, part)
    return Rates(_spread(raw["bandwidth"], part), _spread(raw["flop_rate"], part))


def _spread(raw: Any, part: str) -> Spread:
    need(isinstance(raw, dict) and raw.keys() == set(Spread._fields), part)
    count = _count(raw["count"], part, 1)
    low, median, high = (_time(raw[name], part) for name in ("low", "median", "high"))
    need(0 < low <= median <= high, part)
    return Spread(median, low, high, count)


def _allocator(raw: Any) -> Allocator | None:
    if raw is None:
        return None
    need(isinstance(raw, dict) and raw.keys() == {"allocated", "reserved", "peak"}, "allocator")
    peak = None if raw["peak"] is None else _count(raw["peak"], "allocator")
    return Allocator(_count(raw["allocated"], "allocator"), _count(raw["reserved"], "allocator"), peak)


def _count(value: Any, part: str, least: int = 0, most: int = MOST) -> int:
    need(type(value) is int and least <= value <= most, part)
    return value


def _counts(values: Any, part: str, least: int = 0) -> np.ndarray:
    """(n,) int64."""
    need(isinstance(values, list) and len(values) <= MOST_PASSES, part)
    return np.array([_count(v, part, least) for v in values], dtype=np.int64)


def _time(value: Any, part: str) -> float:
    """Finite, or NaN for null."""
    if value is None:
        return math.nan
    need(type(value) in (int, float) and abs(value) < 1e18, part)  # not infinite
    return float(value)


def _times(values: Any, part: str) -> np.ndarray:
    """(n,) float64."""
    need(isinstance(values, list) and len(values) <= MOST_PASSES, part)
    return np.array([_time(v, part) for v in values], dtype=np.float64)
