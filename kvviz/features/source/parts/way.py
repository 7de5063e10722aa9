"""The walk of the pass in view, and the numbers its sentences name."""

from __future__ import annotations

from kvviz.core import Check, Run
from kvviz.features.source.record import installed as source
from kvviz.features.source.record.walk import Walk
from kvviz.player.view import View
from kvviz.ui import sentences
from kvviz.ui.language import t

NAME = "source"
PROVED = ("length", "bytes", "same_kv")  # of a pass's proofs, those that the lines beside them speak of
TEN = {"GPT2LMHeadModel": "ten_gpt2", "LlamaForCausalLM": "ten_llama"}


def walk(run: Run, view: View) -> Walk:
    """The way of the pass in view through the installed package."""
    return source.walk(run.model.architecture, run.steps[view.step].phase, greedy=run.sampling.greedy)


def values(run: Run, view: View) -> dict[str, object]:
    """sentences.step_facts, and what only this page names."""
    m, record, way = run.model, run.steps[view.step], walk(run, view)
    before = [int(i) for i in run.ids[: record.length_before]]
    mine = {
        "version": sentences.plain(way.version or "?"),
        "name": sentences.plain(way.argument),
        "renamed": sentences.plain(way.renamed or "?"),
        "architecture": sentences.plain(m.architecture),
        "recorded": sentences.plain(run.machine.transformers),
        "missing": ", ".join(way.missing),
        "last_position": f"{int(record.positions[-1]):,}",
        "folder": repr(m.name),
        "fed": str([int(i) for i in record.ids]),
        "start": record.length_before,
        "before": str(before),
        "rows": record.rows,
        "stored": record.length_after,
        "W": m.width,
        "V": m.vocab_size,
        "chosen_id": record.chosen,
        "scale": "/ D**0.5" if abs(m.attention_scale * m.head_dim**0.5 - 1) < 1e-6 else f"* {m.attention_scale!r}",
    }
    return sentences.step_facts(run, view) | mine


def ten_lines(run: Run, view: View) -> str | None:
    """The lines of this pass, to be run as they stand; None for a kind of model they are not written for."""
    section = TEN.get(run.model.architecture)
    if section is None:
        return None
    named = values(run, view)
    fill = t(NAME, "ten_fill" if view.step else "ten_fill_none", **named)
    return t(NAME, section, **named, fill=fill)


def checks(run: Run, view: View) -> list[Check]:
    """That every station was found, and what the engine asserted on this pass's tensors."""
    way = walk(run, view)
    found, wanted = len(way.stations), len(way.stations) + len(way.missing)
    own = Check("found", "holds" if found == wanted else "fails", found, wanted)
    return [own, *(Check(p.name, p.verdict, p.value, p.limit) for p in run.steps[view.step].proofs if p.name in PROVED)]
