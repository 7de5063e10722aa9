"""The command line: `record` makes a file the app can open, `bench` measures this machine."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kvviz.records import Sampling
from kvviz.refusal import Refusal


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="kvviz", description="Step a language model through prefill and decode.")
    commands = top.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="run a prompt, save the run, print a summary as JSON")
    record.add_argument("prompt", help="the prompt, taken literally")
    record.add_argument("--model", help="a catalogue name or a folder in Hugging Face layout (default: as the app)")
    record.add_argument("--new", type=int, default=20, metavar="N", help="tokens to choose (default: 20)")
    record.add_argument("--compare", action="store_true", help="run every pass again without a cache, and compare")
    record.add_argument("--out", metavar="F", help="where to save the run (.npz); without it, only the summary")
    record.add_argument("--repeats", type=int, default=1, metavar="R", help="times are medians over R runs")
    record.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    record.add_argument("--top-k", type=int, default=0, help="0: off (default)")
    record.add_argument("--top-p", type=float, default=1.0, help="1: off (default)")
    record.add_argument("--seed", type=int, default=0)
    record.add_argument("--device", help="cpu, cuda:0, … (default: CUDA where there is one)")
    record.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    record.set_defaults(run=_record)
    bench = commands.add_parser("bench", help="measure this machine", add_help=False)
    bench.set_defaults(run=_bench)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 with one sentence on standard error when kvviz declines."""
    top = parser()
    chosen, rest = top.parse_known_args(arguments)
    if rest and chosen.command != "bench":
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    chosen.rest = rest  # bench's own options: they are read once torch is there
    try:
        return int(chosen.run(chosen) or 0)
    except Refusal as refusal:
        print(f"kvviz: {refusal}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `kvviz record … | head` closed its end: nobody is reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a full disk, a file that may not be written
        print(f"kvviz: {error}", file=sys.stderr)
        return 1


def _record(chosen: argparse.Namespace) -> int:
    from kvviz.engine import load
    from kvviz.engine.recording import record
    from kvviz.models import catalog
    from kvviz.records import storage
    from kvviz.records.summary import summary

    if chosen.out and not Path(chosen.out).parent.is_dir():  # not after minutes of work
        raise Refusal("folder_missing", path=str(Path(chosen.out).parent))
    name = catalog.name_owner_folder(chosen.model) if chosen.model else catalog.default_name()
    sampling = Sampling(chosen.temperature, chosen.top_k, chosen.top_p, chosen.seed)
    model = load(name, device=chosen.device, dtype=chosen.dtype)
    run = record(model, chosen.prompt, chosen.new, sampling, compare=chosen.compare, repeats=chosen.repeats)
    if chosen.out:
        storage.save(run, chosen.out)
    print(json.dumps({**summary(run), "file": chosen.out}, ensure_ascii=True, indent=2))
    return 0


def _bench(chosen: argparse.Namespace) -> int:
    bench = importlib.import_module("kvviz.engine.bench")
    options = argparse.ArgumentParser(prog="kvviz bench", description=bench.__doc__)
    bench.add_arguments(options)
    return bench.run(options.parse_args(chosen.rest)) or 0
