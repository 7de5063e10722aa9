"""Plain values from a file that may come from anybody: each of its type, and within what can be meant."""

from __future__ import annotations

import dataclasses
from typing import Any

from kvviz.core.facts import ModelFacts

_LATER = {"attention_scale", "windows"}  # facts that files of earlier days do not have


class Damaged(Exception):
    """A part of the file that contradicts another, or itself. The argument names it."""


def need(right: bool, part: str) -> None:
    if not right:
        raise Damaged(part)


def text(value: Any, part: str, longest: int) -> str:
    """A text of at most so many characters, none of them half of one: such a text cannot be shown."""
    need(isinstance(value, str) and len(value) <= longest, part)
    need(not any("\ud800" <= c <= "\udfff" for c in value), part)
    return value


def facts(kind: type, raw: Any, part: str, *, longest: int = 500) -> Any:
    """A dataclass of plain values from a dict with exactly its fields, each of its type; `_LATER` may be missing.

    Texts have at most `longest` characters.
    """
    need(isinstance(raw, dict), part)
    fields = {f.name: f.type for f in dataclasses.fields(kind)}
    need(raw.keys() <= fields.keys() and fields.keys() - raw.keys() <= _LATER, part)
    raw = dict(raw)
    for name, value in raw.items():
        declared = str(fields[name])
        if declared == "tuple[int, ...]":
            need(isinstance(value, list) and len(value) <= 10_000, f"{part}.{name}")
            need(all(type(v) is int and 0 <= v < 2**63 for v in value), f"{part}.{name}")
            raw[name] = tuple(value)
            continue
        kinds: tuple[type, ...] = (str,)
        if declared.startswith("int"):
            kinds = (int, type(None)) if "None" in declared else (int,)
        elif declared == "float":
            kinds = (int, float)
        elif declared == "bool":
            kinds = (bool,)
        need(isinstance(value, kinds) and (declared == "bool" or not isinstance(value, bool)), f"{part}.{name}")
        if isinstance(value, str):
            text(value, f"{part}.{name}", longest)
        need(not isinstance(value, int | float) or abs(value) < 2**63, f"{part}.{name}")  # also NaN
    return kind(**raw)


def model_facts(raw: Any, *, longest: int = 500) -> ModelFacts:
    """The facts of a model that there can be."""
    model = facts(ModelFacts, raw, "model", longest=longest)
    need(model.positions in ("learned", "rotary"), "model.positions")
    need(min(model.layers, model.heads, model.kv_heads, model.head_dim, model.vocab_size) > 0, "model")
    need(model.heads % model.kv_heads == 0, "model.kv_heads")
    need(model.attention_scale > 0, "model.attention_scale")
    need(len(model.windows) in (0, model.layers), "model.windows")
    need(all(v >= 0 for v in vars(model).values() if type(v) is int), "model")
    return model
