"""Work beside whoever asked for it, on threads. Nothing else in kvviz starts one.

The pools of `concurrent.futures` wait at the end of the process for what they have begun: Ctrl-C would wait for a
download. These threads end with it; their futures are the library's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P, T = ParamSpec("P"), TypeVar("T")


def beside(name: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Runs `work` on a thread of that name. The future has what it returns, or raises what it raised."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
