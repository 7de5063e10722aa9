"""A job that neither begins nor ends, for pages that are looked at without a model."""

from __future__ import annotations

from kvviz.ui.job import Job, State


class Still(Job):
    """A job that stands in one state and writes down what it is asked for."""

    def __init__(self, state: State) -> None:
        super().__init__(lambda model, wish, stop: iter(()))
        self._state = state
        self.asked: list[object] = []
        self.stopped = 0

    def start(self, wish: object, *, by_itself: bool = False) -> None:
        self.asked.append(wish)

    def stop(self) -> None:
        self.stopped += 1
