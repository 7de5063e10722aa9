"""A figure as the browser gets it, for tests that look at what is drawn where."""

from __future__ import annotations

import base64
import json

import numpy as np

from kvviz.core import lessons
from kvviz.figures.plots import PLOTS

WORDS = {
    name.removeprefix("word."): body
    for name, body in lessons.sections("en", "figures").items()
    if name.startswith("word.")
}


def array(field) -> np.ndarray:
    """A Plotly JSON array, whether a list or base64."""
    if not isinstance(field, dict):
        return np.array(field, dtype=float)
    flat = np.frombuffer(base64.b64decode(field["bdata"]), dtype=np.dtype(field["dtype"]))
    return flat.reshape([int(n) for n in field["shape"].split(",")]) if "shape" in field else flat


def drawn(name: str, run, step: int = 0, layer: int = 0, head: int = 0, dark: bool = False) -> dict:
    figure = PLOTS[name].figure(run, step, layer, head, words=WORDS, dark=dark)
    return json.loads(figure.to_json())


def trace(figure: dict, name: str) -> dict:
    return next(t for t in figure["data"] if t.get("name") == name)


def ends(axis: dict) -> list[float]:
    limits = axis["autorangeoptions"]
    low_high = [limits["minallowed"], limits["maxallowed"]]
    return low_high[::-1] if axis["autorange"] == "reversed" else low_high
