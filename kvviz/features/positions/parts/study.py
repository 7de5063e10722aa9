"""What this page measures, on which model: the run's own where it is of that kind, else the built-in one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any, ClassVar

from kvviz.core import Run, lessons
from kvviz.features.positions.spec import OFFSETS
from kvviz.player.view import View
from kvviz.ui import browser, experiment, links, sentences, state, warm
from kvviz.ui.job import Wish

NAME = "positions"
BUILTIN = {"rotary": "story-llama", "learned": "story-gpt2"}
TOKENS = 40  # of the run's text, at most
OFFSET = -4  # the one shown first


@dataclass(frozen=True)
class RotationWish(Wish):
    text: str
    layer: int

    @property
    def meanwhile(self) -> object:
        return type(self), self.model, self.dtype


@dataclass(frozen=True)
class TableWish(Wish):
    text: str

    @property
    def meanwhile(self) -> object:
        return type(self), self.model, self.dtype


@dataclass(frozen=True)
class MisplacedWish(Wish):
    """A run with tokens in the wrong place."""

    text: str


@dataclass(frozen=True)
class LengthWish(Wish):
    """`model` is the rotary one. It keeps the device busy for a long time: nobody times anything meanwhile."""

    learned: str

    timing: ClassVar[bool] = True


def rotate(model: Any, wish: RotationWish, stop: Event) -> Iterator[Any]:
    from kvviz.features.positions.measure import positions

    yield positions.rotation(model, _ids(model, wish.text), min(wish.layer, model.facts.layers - 1))


def read_table(model: Any, wish: TableWish, stop: Event) -> Iterator[Any]:
    from kvviz.features.positions.measure import positions

    yield positions.table(model, _ids(model, wish.text))


def misplace(model: Any, wish: MisplacedWish, stop: Event) -> Iterator[Any]:
    from kvviz.features.positions.measure import positions

    yield positions.misplaced(model, _ids(model, wish.text), OFFSETS)


def go_far(model: Any, wish: LengthWish, stop: Event) -> Iterator[Any]:
    from kvviz.features.positions.measure import lengths

    for found in lengths.study(model, warm.model(wish.learned, wish.dtype)):
        yield found
        if stop.is_set():
            return


def _ids(model: Any, text: str) -> list[int]:
    """The text's first tokens; one more if it is a single one, so that there is a distance."""
    ids = model.encode(text)[:TOKENS]
    return ids if len(ids) > 1 else ids * 2


def text_of(run: Run) -> str:
    """What has been read so far, without what came after the first TOKENS."""
    return b"".join(run.pieces[int(i)] for i in run.ids[:TOKENS]).decode("utf-8", errors="replace")


def model_of(run: Run, kind: str) -> tuple[str, str]:
    """(name, dtype) of the model on which something of that kind is shown."""
    if run.model.positions == kind:
        return run.model.name, run.model.dtype
    return BUILTIN[kind], state.dtype()


def rotation_wish(run: Run, here: View) -> RotationWish:
    return RotationWish(*model_of(run, "rotary"), text_of(run), here.layer)


def table_wish(run: Run) -> TableWish:
    return TableWish(*model_of(run, "learned"), run.prompt)


def misplaced_wish(run: Run) -> MisplacedWish:
    return MisplacedWish(run.model.name, run.model.dtype, run.prompt)


def length_wish() -> LengthWish:
    return LengthWish(BUILTIN["rotary"], state.dtype(), BUILTIN["learned"])


def found(name: str, work: Any, wish: Wish) -> Any:
    """What that experiment has found about just this wish, or None."""
    now = experiment.at_hand(name, work, wish, by_itself=False)
    return now.found if now.about(wish) else None


def bring_up(run: Run, here: View) -> None:
    """Last on the page: the address, and both kinds of model. They are small, and the page speaks of both."""
    if not state.place_waits():
        browser.show_address(links.Place(here.step, here.layer, here.head), key="address")
    for kind in BUILTIN:
        warm.request(*model_of(run, kind))


def values_of(run: Run, here: View) -> dict[str, object]:
    """What sentences may name besides what `sentences.step_facts` has."""
    m, record = run.model, run.steps[here.step]
    position = int(record.positions[-1])
    return sentences.step_facts(run, here) | {
        "position": f"{position:,}",
        "trained": f"{m.trained_positions:,}",
        "pairs": m.head_dim // 2,
        "room": f"{m.max_positions - record.length_after:,}",
        "rope_model": lessons.literal(model_of(run, "rotary")[0]),
        "table_model": lessons.literal(model_of(run, "learned")[0]),
    }
