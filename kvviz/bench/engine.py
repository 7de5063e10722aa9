"""Measures this machine: what capture costs, a whole run against transformers' own, a new token, the race, the
ladder of ways to run a model beside the least time that this device could take, and reading K and V as they lie.

Everything to be compared is interleaved round by round in alternating order; load and warm-up are left out, and
figures are medians with quartiles. Runs without Streamlit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from kvviz.bench import report
from kvviz.bench.figures import figures
from kvviz.bench.lanes import ladder, reads
from kvviz.bench.passes import capture, new_token, whole_run
from kvviz.bench.races import races
from kvviz.core.refusal import Refusal
from kvviz.features.ladder.measure import ladder as _ladder
from kvviz.features.ladder.record.file import MOST_REPEATS
from kvviz.features.ladder.record.ladder import VALUE_BYTES
from kvviz.models.loading import LoadedModel, load, random_gpt2_small

JOBS = ("capture", "run", "token", "race", "figures", "ladder", "reads")
BOTH = ("story", "small")
MEASURED = {"capture": BOTH, "run": BOTH[1:], "token": BOTH, "race": BOTH, "figures": BOTH[:1]}  # others: as asked for
CACHED = tuple(_ladder.Way(*rung) for rung in _ladder.RUNGS if rung[0] != "none")  # the others take minutes a round
ROUNDS = 7
LADDER_ROUNDS = 5


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
    print("; ".join(each.facts.name for each in models.values()))
    found["pace_seconds"] = report.pace()
    print()
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
