"""The player: a run, pass by pass, in the browser. Its own JS and CSS; see `message` for what travels."""

from __future__ import annotations

import hashlib
import math
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from kvviz.core import Run, lessons
from kvviz.player import message
from kvviz.player.view import View

_HERE = Path(__file__).parent
# Joined in this order into one ES module and one style sheet: the files share one scope.
_JS = (
    "numbers", "words", "store", "theme", "layout", "paint", "grid", "square", "layer", "head", "strip",
    "cards", "proof", "say", "hover", "help", "controls", "keys", "talk", "ready", "screen", "player", "main",
)  # fmt: skip
_CSS = ("theme", "frame", "parts")
_RUNS_REMEMBERED = 4
UNSENT_SECONDS = 1.0  # for so long a message may still wait in a busy server


@dataclass
class _Mount:
    """What Python remembers of one mounted player between reruns."""

    size: message.Size | None = None  # of the run last mounted; not the run, which a page left long ago must not hold
    passed: View | None = None  # the caller's last `view`
    returned: View | None = None  # ours: callers hand it back later, when the browser may have gone on
    reported: View | None = None  # the browser's last, on the run of `reported_run`
    reported_run: str = ""
    move: str = ""  # changes when the caller moves the player
    asks: int = 0
    answered: int = 0  # highest number of passes asked for and handled
    on_extend: Callable[[int], None] | None = None
    on_move: Callable[[View, bool], None] | None = None
    message: bytes = b""  # digest of the last one
    changed: float = -math.inf  # seconds: when a message last said something new


@cache
def _renderer() -> Any:
    """Register the component, once a process."""
    js = "\n".join(_lean((_HERE / "js" / f"{name}.js").read_text(encoding="utf-8")) for name in _JS)
    css = "\n".join(_lean((_HERE / "css" / f"{name}.css").read_text(encoding="utf-8")) for name in _CSS)
    return st.components.v2.component("kvviz_player", css=css, js=js, isolate_styles=False)


def _lean(source: str) -> str:
    """The source without indentation and lines of comment: Streamlit sends it with every rerun."""
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def player(
    run: Run,
    *,
    key: str,
    language: str,
    view: View,
    can_extend: bool,
    mode: Literal["run", "prefill"] = "run",
    presenter: bool = False,
    on_extend: Callable[[int], None] | None = None,
    on_move: Callable[[View, bool], None] | None = None,
    asks: int = 0,
    asked: bool = False,
    coming: bool = False,
    room: int = 0,
    busy: str | None = None,
    ahead: Sequence[Run] = (),
    preparing: bool = False,
) -> View:
    """Mount the player on `run` and return where the learner stands.

    `view` places the player when it is mounted, when it differs from the last one passed and the last one
    returned, or when `asks` has changed since (the same place asked for again); else the player keeps its own place.
    `on_extend(n)` is called when the learner asks for the run to reach n passes, n at most
    len(run.steps) + room; it is the caller's to grow the run and pass it in the rerun that follows.
    `on_move(view, unsure)` is called when the learner has come to rest elsewhere; it may end in `st.rerun`. Streamlit
    has then taken back what the player said and had not sent: `unsure` says that there may be such, so that the player
    has to be drawn too.
    `coming` says that another run will take this one's place: the browser asks after it every few seconds.
    `asked` says that the learner or a link chose this `view`: it wins over a place that the browser has not told yet.
    `busy` is a short text shown while the model is not ready.
    `ahead` is the run with one pass more, two more, ...: made already, shown at once when the learner asks for them, of
    which `on_extend` hears soon after. `preparing`: more of them are being made, so the browser asks again.
    """
    mount = _mount(key)
    identity = message.identity(run)
    fresh = key not in st.session_state  # Streamlit forgets a widget that the last run did not show
    if fresh or mount.reported_run != identity:
        mount.reported, mount.answered = None, 0
    if fresh or asks != mount.asks or view not in (mount.passed, mount.returned, mount.reported):
        mount.move = uuid.uuid4().hex[:8]
        mount.reported = None
    size = mount.size = message.Size.of(run)
    mount.passed, mount.reported_run, mount.asks = view, identity, asks
    mount.on_extend, mount.on_move = on_extend, on_move

    place = mount.returned = _clamped(mount.reported or view, size)
    have = _have(identity)
    # While passes are still being made, those asked for are on their way, not refused.
    answered = min(mount.answered, len(run.steps)) if busy else mount.answered
    header = {
        "key": key, "language": language, "mode": mode, "presenter": presenter, "move": mount.move,
        "canExtend": can_extend, "room": room, "busy": busy, "answered": answered, "asked": asked, "coming": coming,
        "view": [view.step, view.layer, view.head, view.opened, view.substep],
    }  # fmt: skip
    if have.language != language:
        header["words"] = lessons.sections(language, "player")
        have.language = language
    header["preparing"] = preparing
    focus = message.Focus(
        place.layer, place.head, place.opened == "head" or place.substep is not None or mode == "prefill"
    )
    blobs = [message.build(run, have, focus, header)]
    if have.passes == len(run.steps):
        blobs += message.build_ahead(ahead, have, focus, {**header, "words": None})
    have.offered = max(have.offered, len(run.steps) + len(blobs) - 1)
    data = message.pack(blobs)
    digest = hashlib.blake2b(data, digest_size=16).digest()
    if digest != mount.message:
        mount.message, mount.changed = digest, time.monotonic()
    _renderer()(
        key=key,
        data=data,
        on_view_change=lambda: _heard(key, "view"),
        on_extend_change=lambda: _heard(key, "extend"),
        on_want_change=lambda: _heard(key, "want"),
    )
    return place


def _mount(key: str) -> _Mount:
    return st.session_state.setdefault(f"kvviz.player.{key}", _Mount())


def _have(identity: str) -> message.Have:
    """What this browser tab holds of a run. A page's players share it, as they share the tab."""
    runs: OrderedDict[str, message.Have] = st.session_state.setdefault("kvviz.player", OrderedDict())
    have = runs.setdefault(identity, message.Have())
    runs.move_to_end(identity)
    while len(runs) > _RUNS_REMEMBERED:
        runs.popitem(last=False)
    return have


def _heard(key: str, event: str) -> None:
    """A word from the browser: where the learner stands, what it holds, what it asks for."""
    mount = _mount(key)
    said = st.session_state[key].get(event)
    size = mount.size
    if not isinstance(said, dict) or size is None or said.get("run") != mount.reported_run:
        return  # about a run that has gone since
    have = _have(mount.reported_run)
    passes, target = said.get("passes"), said.get("to") if event == "extend" else None
    if isinstance(passes, int) and size.passes < passes <= have.offered:
        size = size.with_passes(passes)  # what was made ahead has been asked for
    place = _view(said.get("view"))
    if said.get("move") != mount.move:
        place = None  # said before the browser had heard where to go
    if place is not None:
        mount.reported = _clamped(place, size)
    if "have" in said:
        have.take(said["have"], size)
    wanted = size.passes
    if isinstance(target, int):
        mount.answered, wanted = max(mount.answered, target), max(wanted, target)
    if mount.on_extend is not None and wanted > mount.size.passes:
        mount.on_extend(wanted)
    behind = isinstance(passes, int) and 0 <= passes < have.passes
    if behind:
        have.back_to(passes)
    if event == "view" and place is not None and mount.reported is not None and mount.on_move is not None:
        mount.on_move(mount.reported, behind or time.monotonic() - mount.changed < UNSENT_SECONDS)


def _view(raw: Any) -> View | None:
    """A browser's [step, layer, head, opened, substep]; None when it is anything else."""
    match raw:
        case [int(step), int(layer), int(head), "all" | "layer" | "head" as opened, int() | None as substep]:
            return View(step, layer, head, opened, substep)
    return None


def _clamped(view: View, size: message.Size) -> View:
    """The view with every index in the run's range."""
    return View(
        min(max(0, view.step), max(0, size.passes - 1)),
        min(max(0, view.layer), size.layers - 1),
        min(max(0, view.head), size.heads - 1),
        view.opened,
        view.substep if view.substep is None else min(max(0, view.substep), 9),
    )
