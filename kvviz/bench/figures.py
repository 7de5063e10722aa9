"""The figures that follow a step: how long each takes to build, and how large it is."""

from __future__ import annotations

import time

import numpy as np

from kvviz.bench.passes import text_of
from kvviz.bench.report import ms, not_measured, show
from kvviz.core import Run, lessons
from kvviz.engine.session import Session
from kvviz.features.race.record import Spread
from kvviz.models.loading import LoadedModel

FIGURE_STEPS = 20


def figures(model: LoadedModel, P: int = 9, N: int = 100) -> list[dict]:
    """Every figure that follows a step, on a run of N passes at 20 steps: time to build, size of its JSON."""
    try:
        from kvviz.figures.plots import PLOTS as plots
    except ModuleNotFoundError:  # a GPU machine may lack Plotly
        not_measured("figures", "Plotly is not installed")
        return []
    sections = lessons.sections("en", "figures")
    words = {name.removeprefix("word."): body for name, body in sections.items() if name.startswith("word.")}
    recorded: Run = Session(model, text_of(model, P), compare=True).advance(N)
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
        show(name, f"{ms(spread)}   slowest {max(times):.0f} ms   JSON up to {max(sizes):,} bytes")
        found.append({"figure": name, "ms": spread._asdict(), "slowest_ms": max(times), "json_bytes": max(sizes)})
    return found
