"""What is raced, and the engine's functions that race it. Between tokens the model's lock is free, so that another
learner's single step waits for one token, never for a race."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, ClassVar

from kvviz.core import Sampling
from kvviz.features.race.record import Race, Waits
from kvviz.ui.job import PromptWish

if TYPE_CHECKING:
    from kvviz.models.loading import LoadedModel


@dataclass(frozen=True)
class WaitsWish(PromptWish):
    """First token against later ones, after prompts of several lengths."""

    timing: ClassVar[bool] = True
    unseen_seconds: ClassVar[float] = 20.0  # whoever waits in line behind a closed tab waits no longer


@dataclass(frozen=True)
class RaceWish(WaitsWish):
    """`length` None: the prompt as it is; else said again, or cut, to so many tokens."""

    new: int
    repeats: int | None = None  # None: as many as are cheap
    length: int | None = None
    sampling: Sampling = field(default_factory=Sampling)


def race(model: LoadedModel, wish: RaceWish, stop: Event) -> Iterator[Race]:
    from kvviz.features.race import measure as engine

    return engine.race(
        model, wish.prompt, wish.new, repeats=wish.repeats, length=wish.length, sampling=wish.sampling, stop=stop
    )


def waits(model: LoadedModel, wish: WaitsWish, stop: Event) -> Iterator[Waits]:
    from kvviz.features.race import measure as engine

    return engine.waits(model, wish.prompt, stop=stop)
