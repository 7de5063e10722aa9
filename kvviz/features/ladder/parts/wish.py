"""What Ladder asks for, and the engine's functions that measure it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, ClassVar

from kvviz.features.ladder.record.ladder import Ladder, Reads
from kvviz.ui.job import PromptWish, Wish

if TYPE_CHECKING:
    from kvviz.models.loading import LoadedModel


@dataclass(frozen=True)
class LadderWish(Wish):
    """`length` None: the prompt as it is; else cut, or said again, to so many tokens. `lanes` are (cache, kernel,
    precision or "" for the model's own, compiled)."""

    prompt: str
    new: int
    length: int | None
    batch: int
    lanes: tuple[tuple[str, str, str, bool], ...]
    generate: bool

    timing: ClassVar[bool] = True


def ladder(model: LoadedModel, wish: LadderWish, stop: Event) -> Iterator[Ladder]:
    from kvviz.features.ladder.measure import ladder as engine

    return engine.climb(
        model, wish.prompt, wish.length, wish.new, rungs=wish.lanes, batch=wish.batch, beside_generate=wish.generate,
        stop=stop,
    )  # fmt: skip


@dataclass(frozen=True)
class ReadsWish(PromptWish):
    """K and V of `length` tokens."""

    length: int

    timing: ClassVar[bool] = True


def reads(model: LoadedModel, wish: ReadsWish, stop: Event) -> Iterator[Reads]:
    from kvviz.features.ladder.measure import reads as engine

    return engine.reads(model, wish.prompt, wish.length, stop=stop)
