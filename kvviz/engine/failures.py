"""When memory runs out or a device fails in the middle of a run: that run ends with a sentence, the others go on.

An error holds the frames it came through, and these hold tensors. So they are emptied here, and the Refusal that is
raised instead knows nothing of them: whoever keeps it to show it keeps no memory.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar

from kvviz.core.refusal import Refusal
from kvviz.models import device, loading
from kvviz.models.loading import LoadedModel

P, T = ParamSpec("P"), TypeVar("T")


def explain(error: BaseException, model: LoadedModel) -> Refusal | None:
    """The sentence for an error of memory or device, its frames emptied; None for any other error.

    A device that does not answer any more is given up for the whole process: models are loaded elsewhere from then on.
    """
    where = model.device
    if device.is_out_of_memory(error):
        refusal = Refusal("out_of_memory", model=model.facts.name, device=str(where))
    elif device.is_failure(error):
        if lost := not device.answers(where):
            device.lost.add(where.type)
            loading.forget(where.type)
        refusal = Refusal("device_lost" if lost else "device_failed", device=str(where))
    else:
        return None
    seen: BaseException | None = error
    while seen is not None:  # an error that came while another was dealt with holds that one too
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
    return refusal


def run_or_end(model: LoadedModel, work: Callable[[], T], end: Callable[[], None] = lambda: None) -> T:
    """`work()`. Should memory or device fail in it: `end()`, then what nobody holds is freed, and a Refusal raised
    ("out_of_memory", "device_failed", "device_lost")."""
    try:
        return work()
    except Exception as error:
        refusal = explain(error, model)
        if refusal is None:
            raise
    end()
    device.free(model.device)
    raise refusal  # outside of `except`: else it would hold the error


def each_or_end(model: LoadedModel, steps: Iterator[T]) -> Iterator[T]:
    """What `steps` yields, each step as in `run_or_end`."""
    none = object()
    try:
        while (made := run_or_end(model, lambda: next(steps, none))) is not none:
            yield made
    finally:
        steps.close()


def ends_with_a_sentence(
    steps: Callable[Concatenate[LoadedModel, P], Iterator[T]],
) -> Callable[Concatenate[LoadedModel, P], Iterator[T]]:
    """Makes `each_or_end` of a generator function whose first argument is the model."""

    @functools.wraps(steps)
    def told(model: LoadedModel, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return each_or_end(model, steps(model, *args, **kwargs))

    return told
