"""The experiments of the pages: what each is asked to try, and the engine's function that tries it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvviz.core import Run

if TYPE_CHECKING:
    from kvviz.features.ladder.record.ladder import Ladder, Reads
    from kvviz.features.permission.record.breaks import Breaks
    from kvviz.features.permission.record.permission import Permission
    from kvviz.features.problem.record import Growth
    from kvviz.features.roofline.record import Roofline
    from kvviz.models.loading import LoadedModel
    from kvviz.ui.experimenter import State


@dataclass(frozen=True)
class _OnPrompt:
    model: str
    dtype: str
    prompt: str

    def about(self, run: Run) -> bool:
        """It is about that run's prompt and model."""
        return (self.model, self.dtype, self.prompt) == (run.model.name, run.model.dtype, run.prompt)


def found(now: State, run: Run) -> Any:
    """What the experiment has found about that run's prompt and model, or None."""
    return now.found if now.answers is not None and now.answers.about(run) else None


@dataclass(frozen=True)
class GrowthWish(_OnPrompt):
    """`length` None: the prompt as it is; else cut, or said again, to so many tokens."""

    new: int
    length: int | None = None


def growth(model: LoadedModel, wish: GrowthWish) -> Iterator[Growth]:
    from kvviz.features.problem import measure as engine

    return engine.generate(model, wish.prompt, wish.new, wish.length)


@dataclass(frozen=True)
class EditWish(_OnPrompt):
    """The prompt with `text`'s first token at `position`."""

    position: int
    text: str
    how: str


def edited(model: LoadedModel, wish: EditWish) -> Iterator[Permission]:
    from kvviz.features.permission.measure import permission as engine

    return engine.compare(model, wish.prompt, wish.position, wish.text, wish.how)


def middle(run: Run) -> int:
    """Where an edit is worth seeing: there is something before it, and more after it."""
    return min(run.P - 1, run.P // 3)


def usual_edit(run: Run, position: int) -> str:
    """What is put in until the learner types something: not what stands there already."""
    there = run.pieces[int(run.prompt_ids[position])] if position < run.P else b""
    return " the" if there != b" the" else " and"


@dataclass(frozen=True)
class BreakWish(_OnPrompt):
    """Every fault on that prompt."""


def broken(model: LoadedModel, wish: BreakWish) -> Iterator[Breaks]:
    from kvviz.features.permission.measure import breaks as engine

    return engine.all_kinds(model, wish.prompt)


@dataclass(frozen=True)
class LadderWish(_OnPrompt):
    """`length` as in GrowthWish; `lanes` are (cache, kernel, precision or "" for the model's own, compiled)."""

    new: int
    length: int | None
    batch: int
    lanes: tuple[tuple[str, str, str, bool], ...]
    generate: bool


def ladder(model: LoadedModel, wish: LadderWish) -> Iterator[Ladder]:
    from kvviz.features.ladder.measure import ladder as engine

    return engine.climb(
        model, wish.prompt, wish.length, wish.new, rungs=wish.lanes, batch=wish.batch, beside_generate=wish.generate
    )


@dataclass(frozen=True)
class ReadsWish(_OnPrompt):
    """K and V of `length` tokens."""

    length: int


def reads(model: LoadedModel, wish: ReadsWish) -> Iterator[Reads]:
    from kvviz.features.ladder.measure import reads as engine

    return engine.reads(model, wish.prompt, wish.length)


@dataclass(frozen=True)
class RooflineWish:
    """Prefill of `length` tokens and decode steps after it: by formula alone, or `timed`."""

    model: str
    dtype: str
    length: int
    timed: bool = False


def roofline(model: LoadedModel, wish: RooflineWish) -> Iterator[Roofline]:
    from kvviz.features.roofline import measure as engine

    return engine.points(model, wish.length) if wish.timed else engine.plan(model, wish.length)
