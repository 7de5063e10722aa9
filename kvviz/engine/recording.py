"""Making a recorded run: the same prompt several times, its times as medians."""

from __future__ import annotations

import dataclasses
import datetime
import statistics
from collections.abc import Callable

from kvviz.core import Run, Sampling
from kvviz.core.refusal import Refusal
from kvviz.engine.limits import KEEP_BYTES, check_prompt
from kvviz.engine.session import Session
from kvviz.models.loading import LoadedModel


def record(
    model: LoadedModel,
    prompt: str,
    new: int,
    sampling: Sampling | None = None,
    *,
    compare: bool = True,
    repeats: int = 1,
    keep_bytes: int = KEEP_BYTES,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Run:
    """A run of `new` tokens. With `repeats`, every pass's milliseconds are the median over so many runs.

    Raises a Refusal before the first pass if the run would not fit: "too_many_new", "run_full", …
    """
    check_prompt(model, prompt, new, keep_bytes=keep_bytes)
    if new < 1 or repeats < 1:
        raise Refusal("bad_count", new=new, repeats=repeats)
    first: Run | None = None
    times: list[list[tuple[float, float]]] = [[] for _ in range(new)]  # of each pass, and of its twin, in ms
    for r in range(repeats):
        session = Session(model, prompt, sampling, compare=compare, keep_bytes=keep_bytes)
        if session.room < new:
            raise Refusal("run_full", bytes=keep_bytes, limit=keep_bytes, step=session.room)
        for n in range(1, new + 1):
            session.advance(n)
            progress(r * new + n, repeats * new)
        first = first or session.run
        if session.run.new_ids.tolist() != first.new_ids.tolist():
            raise RuntimeError("two runs of one prompt chose different tokens")
        for known, step in zip(times, session.run.steps, strict=True):  # of a later run only its times are kept
            known.append((step.ms, step.twin.ms if step.twin else 0.0))
    steps = []
    for step, known in zip(first.steps, times, strict=True):
        ms, twin_ms = (statistics.median(column) for column in zip(*known, strict=True))
        twin = dataclasses.replace(step.twin, ms=twin_ms) if step.twin else None
        steps.append(dataclasses.replace(step, ms=ms, twin=twin))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return dataclasses.replace(first, steps=tuple(steps), repeats=repeats, created=today)
