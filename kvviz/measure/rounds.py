"""Rounds of a measurement that shares its device with other people.

Somebody else's pass may come between two of a round's own: it takes the processor's caches, or runs beside them at
another model. Such a round is thrown away and made again, a bounded number of times; both are counted and told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

MOST_THROWN = 8  # rounds of one measurement; from then on a disturbed one is kept
CLEAR_SECONDS = 1.0  # before a round, others' passes are waited for so long at most


class Traffic(Protocol):
    """Whose turns there are at a device's models: `models.turns.Traffic`."""

    def of_others(self) -> int: ...

    def clear(self, seconds: float) -> bool: ...


@dataclass(frozen=True)
class Disturbed:
    """Rounds into which others' passes came: thrown away and made again, and kept for all that."""

    thrown: int = 0
    kept: int = 0


class Rounds:
    """Decides which rounds count. `columns` gives lists that have one entry a round, this one's last; what is thrown
    away is taken out of them. One stays as long as there is no other, so that there is always something to show."""

    def __init__(self, traffic: Traffic, columns: Callable[[], Iterable[list]] = tuple) -> None:
        self._traffic, self._columns = traffic, columns
        self.count = 0  # rounds that count
        self._thrown = self._kept = 0
        self._spare = False  # the first entry of each column is of a round that was thrown away
        self._quiet, self._mark = True, 0

    @property
    def disturbed(self) -> Disturbed:
        return Disturbed(self._thrown - self._spare, self._kept + self._spare)

    def begin(self) -> None:
        """Others go first. Only the thread that measures may call this, and `end`."""
        self._quiet = self._traffic.clear(CLEAR_SECONDS)
        self._mark = self._traffic.of_others()

    def end(self) -> bool:
        """The round is through, and counts. If not, it is to be made again."""
        quiet = self._quiet and self._traffic.of_others() == self._mark
        if not quiet and self._thrown < MOST_THROWN:
            self._thrown += 1
            if self._spare or self.count:
                self._drop(-1)
            self._spare = self._spare or not self.count
            return False
        if self._spare:
            self._drop(0)
            self._spare = False
        self._kept += not quiet
        self.count += 1
        return True

    def _drop(self, at: int) -> None:
        for column in self._columns():
            if column:
                del column[at]
