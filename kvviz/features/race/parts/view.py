"""What the lanes show, as plain values: a race (or none yet) in, JSON for the component out. No Streamlit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from kvviz.core.lessons import text
from kvviz.core.tokens import label
from kvviz.features.race.record import ENOUGH, Lane, Race, Spread
from kvviz.theory.memory import human

STRETCHES = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
GAP = 1.25  # a repeat's time in parts of what the medians give, from which the difference is explained
SHORT_MS, LONG_MS = 2_000.0, 20_000.0  # outside of these a replay is shown slower or faster than measured
DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}  # as the player writes them


@dataclass(frozen=True)
class Plan:
    """A race that has no token yet: what it will be, and what it waits for."""

    P: int
    N: int
    stage: Literal["idle", "model", "waiting", "warming"] = "idle"
    before: int = 0  # races ahead of it


def milliseconds(ms: float) -> str:
    """Three figures: 2.31 ms, 48.3 ms, 1,204 ms; a dash where nothing was measured."""
    if math.isnan(ms):
        return "–"
    return f"{ms:,.{2 if ms < 10 else 1 if ms < 100 else 0}f} ms"


def times(ratio: float) -> str:
    """0.93×, 12.1×, 75×."""
    return "–" if math.isnan(ratio) else f"{ratio:,.{2 if ratio < 10 else 1 if ratio < 20 else 0}f}×"


def scientific(x: float) -> str:
    """A difference or a tolerance, as the player writes it: 2.9e-5, 1e-3, 0; 0.25 where it is large."""
    if x == 0 or not math.isfinite(x):
        return "0" if x == 0 else str(x)
    if x >= 0.01:
        return f"{float(f'{x:.1e}'):g}"
    digits, exponent = f"{x:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def between(spread: Spread) -> str:
    return f"{milliseconds(spread.low).removesuffix(' ms')} – {milliseconds(spread.high)}"


def stretch(total_ms: float) -> float:
    """How many times as long as measured a replay takes: above 1 for short races, below 1 for long ones."""
    if total_ms < SHORT_MS:
        return float(next((s for s in STRETCHES if total_ms * s >= 1.5 * SHORT_MS), STRETCHES[-1]))
    if total_ms > LONG_MS:
        return 1 / next((s for s in STRETCHES if total_ms / s <= LONG_MS), STRETCHES[-1])
    return 1.0


def answer(race: Race, language: str) -> str:
    """The one sentence: what this device showed, and why, also when the cache did not pay."""
    say = partial(text, language, "race")
    if race.outcome in ("first_only", "measuring"):
        return say(f"answer_{race.outcome}", n=race.n, passes=race.passes, enough=ENOUGH)
    without, with_ = race.rows

    def spoken(ms: float) -> str:  # with the unit as the language writes it
        return say("ms_n", ms=milliseconds(ms).removesuffix(" ms"))

    what = say(
        f"answer_{race.outcome}",
        device=race.machine.device_name,
        n=race.n,
        slow=spoken(race.uncached.cumulative[-1]),
        fast=spoken(race.cached.cumulative[-1]),
        ratio=times(race.ratio),
        work=times(race.work_ratio),
        without=f"{without:,}",
        cached=f"{with_:,}",
    )
    tail = race.tail
    numbers = {"rows": f"{tail.rows:,}", "slow": spoken(tail.uncached_ms), "fast": spoken(tail.cached_ms)}
    sentences = [what, say(why(race), **numbers)]
    side, lane = max((("uncached", race.uncached), ("cached", race.cached)), key=lambda one: abs(math.log(one[1].gap)))
    if abs(math.log(lane.gap)) > math.log(GAP):
        slow = lane.gap > 1
        later = lane.ms[:, 1:]
        told = {"expected": lane.by_medians, "total": lane.cumulative[-1], "ttft": lane.ttft.median,
                "tpot": lane.tpot.median, "edge": float(np.nanmax(later) if slow else np.nanmin(later))}  # fmt: skip
        sentences.append(
            say(
                "gap_slow" if slow else "gap_quick",
                name=say(f"lane_{side}"),
                later=f"{race.n - 1:,}",
                **{name: spoken(ms) for name, ms in told.items()},
            )
        )
    return ("" if language == "zh" else " ").join(sentences)


def why(race: Race) -> str:
    """Section that explains the ratio, from the race's own last passes: k rows against one.

    Nearly k times the time: rows are what costs. Below twice: fixed costs. Between: one row is dear for its size.
    A cache that lost has work of its own, which is more than the rows that it saves.
    """
    if race.outcome == "lost":
        return "why_lost"
    factor = race.tail.uncached_ms / race.tail.cached_ms
    if factor > race.tail.rows / 2:
        return "why_rows"
    if factor > 2:
        return "why_batch"
    return "why_launch" if race.machine.device.startswith("cuda") else "why_fixed"


def _headline(race: Race | Plan, language: str) -> tuple[str, str]:
    """Phase and sentence."""
    say = partial(text, language, "race")
    if isinstance(race, Plan):
        return say(f"phase_{race.stage}"), say(
            f"say_{race.stage}", P=f"{race.P:,}", N=f"{race.N:,}", before=race.before
        )
    if race.state != "running":
        return say(f"phase_{race.state}"), answer(race, language)
    repeat = len(race.uncached.ms)
    if repeat > 1:
        return say("phase_repeat", r=repeat, R=race.repeats), say("say_repeat", R=race.repeats)
    rows = race.P + race.n - 1
    numbers = {"P": f"{race.P:,}", "rows": f"{rows:,}", "again": f"{rows - 1:,}"}
    return say("phase_token", n=race.n, N=race.new), say("say_prefill" if race.n <= 1 else "say_running", **numbers)


def _facts(lane: Lane | None, race: Race | Plan, language: str) -> list[list[str]]:
    """Rows of a lane's card: label, value, and for times, on a line of their own, what they are."""
    say = partial(text, language, "race")
    if lane is None or isinstance(race, Plan):
        names = [say("fact_ttft"), say("fact_tpot"), say("fact_total", n=race.N), say("fact_held"), say("fact_rows")]
        return [[name, "–", ""] if i < 3 else [name, "–"] for i, name in enumerate(names)]
    measuring = say("measuring", n=race.passes, enough=ENOUGH)
    first, later, through = lane.ttft, lane.tpot, race.ratios.count
    enough = race.passes >= ENOUGH
    summed = say("sum_once") if through < 2 else say("sum_median", count=through)
    return [
        *(
            [say("fact_ttft"), milliseconds(first.median), say("median_of", count=first.count)]
            if first.count >= 3
            else [say("fact_ttft"), "–", ""],
        ),
        [
            say("fact_tpot"),
            milliseconds(later.median) if enough else "–",
            say("median_range", range=between(later)) if enough else measuring,
        ],
        [say("fact_total", n=race.n), milliseconds(lane.cumulative[-1] if race.n else 0.0), summed],
        [say("fact_held"), say("bytes_n", bytes=f"{int(lane.bytes_held[-1]) if race.n else 0:,}")],
        [say("fact_rows"), f"{int(lane.rows.sum()):,}"],
    ]


def _ratio(race: Race | Plan, language: str) -> dict[str, str]:
    """The measured ratio in large, with its spread; a dash until it may be said."""
    say = partial(text, language, "race")
    if isinstance(race, Plan) or race.passes < ENOUGH:
        return {"value": "–", "note": say("ratio_none")}
    spread = race.ratios
    if spread.count < 2:
        return {"value": times(race.ratio), "note": say("ratio_once")}
    low, high = times(spread.low).removesuffix("×"), times(spread.high)
    return {"value": times(race.ratio), "note": say("ratio_note", low=low, high=high, count=spread.count)}


def _proofs(race: Race, language: str) -> list[list[str]]:
    """The strip: name, numbers, verdict ("holds", "rounding", "fails", "plain")."""
    say = partial(text, language, "race")
    held, formula = int(race.cached.bytes_held[-1]), race.bytes_formula
    same = int(race.same_token.sum())
    logits, tolerance = scientific(float(race.max_abs_dlogit.max())), scientific(race.tolerance)
    dtype = DTYPES.get(race.model.dtype, race.model.dtype)
    section = "proof_rounding" if race.verdict == "rounding" else "proof_equal"
    equal = say(section, same=same, n=race.n, d=logits, tolerance=tolerance, dtype=dtype)
    strip = [
        [say("proof_equal_name" if race.verdict != "fails" else "proof_unequal_name"), equal, race.verdict],
        [
            say("proof_bytes_name"),
            say("proof_bytes" if held == formula else "proof_bytes_fails", held=f"{held:,}", formula=f"{formula:,}"),
            "holds" if held == formula else "fails",
        ],
    ]
    memory = race.allocator
    if memory is None:
        strip.append([say("allocator_name"), say("allocator_none"), "plain"])
    else:
        sizes = {name: human(getattr(memory, name)) for name in ("allocated", "reserved", "peak")}
        strip.append([say("allocator_name"), say("allocator", **sizes), "plain"])
    return strip


def view(race: Race | Plan, *, key: str, language: str, presenter: bool = False) -> dict:
    """The component's `data`. `key` names the race, so that its end is replayed once."""
    say = partial(text, language, "race")
    phase, sentence = _headline(race, language)
    plan = isinstance(race, Plan)
    N = race.N if plan else race.new
    tokens = [] if plan else [label(race.pieces[int(i)]) for i in race.ids]
    sides: dict[str, Lane | None] = {
        "uncached": None if plan else race.uncached,
        "cached": None if plan else race.cached,
    }
    lanes = {
        side: {
            "name": say(f"lane_{side}"),
            "note": say(f"note_{side}"),
            "time": say(f"time_{side}"),
            "alt": say(f"alt_{side}", P=race.P, N=N),
            "facts": _facts(lane, race, language),
            "ends": [] if lane is None else [round(float(t), 4) for t in lane.cumulative],
        }
        for side, lane in sides.items()
    }
    over = not plan and race.state != "running" and race.n > 0
    replay, first = None, None
    if over:
        totals = {side: lane["ends"][-1] for side, lane in lanes.items()}
        factor = stretch(max(totals.values()))
        kind: Literal["slower", "faster", "as_measured"]
        kind = "slower" if factor > 1 else "faster" if factor < 1 else "as_measured"
        replay = {"stretch": factor, "text": say(f"replay_{kind}", factor=f"{max(factor, 1 / factor):,.0f}")}
        first = {"paid": "cached", "lost": "uncached"}.get(race.outcome)
    return {
        "id": key,
        "state": race.stage if plan else race.state,
        "language": language,
        "presenter": presenter,
        "P": race.P,
        "N": N if not over else race.n,
        "tokens": tokens,
        "phase": phase,
        "say": sentence,
        "lanes": lanes,
        "replay": replay,
        "first": first,
        "ratio": _ratio(race, language),
        "proofs": _proofs(race, language) if over else [],
        "words": {w: say(f"word_{w}") for w in ("count", "replay", "skip", "again", "first", "live")},
    }
