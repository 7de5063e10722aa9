"""What a page declares of itself. `features/NAME/spec.py` holds one `SPEC`; navigation, links, sidebar, the reading of
the address, Try this and the tests take it from there. Nothing here imports Streamlit.

    @dataclass(frozen=True)
    class Own:
        work_P: int | None = setting(Whole(1, 1000))      # None: nobody has said
        work_N: int = setting(Whole(1, 200), 20)

    SPEC = PageSpec("problem", "idea", 2, own=Own, tries=(Try("small"), Try("long")), asks=("rope", "mask"))

The names of `own`'s fields are the names in links and the keys of the page's widgets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, TypeVar

# The chapters of the story, in their order; the sections chapter_NAME of words/shell are their titles.
Chapter = Literal["idea", "through", "price", "designs", "production", "practice"]
LAST = 10**6  # as a step: the run's last one


class Whole(NamedTuple):
    """A whole number, both ends included."""

    least: int
    greatest: int


class Real(NamedTuple):
    """A number, both ends included."""

    least: float
    greatest: float


@dataclass(frozen=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Several:
    """Some of a few words, with commas between them in a link; or none."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """Any text of so many characters at most."""

    most: int


Field = Whole | Real | OneOf | Several | Text


def setting(field: Field, first: Any = None) -> Any:
    """A field of a settings class, with what a link may say, and its value while nobody has said anything."""
    return dataclasses.field(default=first, metadata={"field": field})


def fields_of(kind: type) -> dict[str, Field]:
    """Name -> field, of a settings class."""
    return {f.name: f.metadata["field"] for f in dataclasses.fields(kind) if "field" in f.metadata}


@dataclass(frozen=True)
class Place:
    """Where in a run: pass, layer, head. None where nothing is said."""

    step: int | None = None
    layer: int | None = None
    head: int | None = None

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.step, self.layer, self.head))


@dataclass(frozen=True)
class Try:
    """A button that puts the app in a state worth seeing: sections try_NAME and try_NAME_says of the page's lesson.

    With a `place` it sends the player there (try_NAME_alone speaks where a run of its prefill alone has nothing of the
    kind to show); `opened` and `substep` say how the player shows it, and `recorded` shows the run that ships with
    kvviz, for what can only be promised there. Without one, the page says what it does: see `kit.tries`.
    """

    name: str
    place: Place | None = None
    opened: str | None = None
    substep: int | None = None
    recorded: bool = False


@dataclass(frozen=True)
class NoSettings:
    """A page with no settings of its own."""


Own = TypeVar("Own")


@dataclass(frozen=True)
class PageSpec(Generic[Own]):
    """A page: file pages/NAME.py, folder features/NAME, lesson NAME, address /NAME.

    `number` is its place in the story; the first is Home, at the root. `own` is a frozen dataclass of its settings in
    the address. `player`: the page has the player, on the whole run or on prefill alone; `begins` is the step at which
    that stands first. `follows` names the fragments that show the step. `asks`: the questions of words/five that the
    page does not answer itself. `former`: addresses it had before, which lead to it.
    """

    name: str
    chapter: Chapter
    number: int
    own: type[Own] = NoSettings  # type: ignore[assignment]
    tries: tuple[Try, ...] = ()
    player: Literal["run", "prefill"] | None = None
    begins: int = 0
    follows: tuple[str, ...] = ("below", "share")
    asks: tuple[str, ...] = ()
    former: tuple[str, ...] = ()

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Its settings in the address, by name."""
        return fields_of(self.own)
