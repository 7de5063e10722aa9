"""What a session holds: the learner's run, what is shown, and where the learner stands in it.

Widgets of the sidebar keep their own values under the names that links use (`prompt`, `model`, ...). Everything
else is under `kv_...` keys here, so that no page change drops it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import streamlit as st

from kvviz.core import Run, Sampling, storage
from kvviz.models import catalog, device
from kvviz.player.view import View
from kvviz.ui import links
from kvviz.ui.held import values
from kvviz.ui.learner import Learner, Settings
from kvviz.ui.settings import Shared

if TYPE_CHECKING:
    from kvviz.engine import Session

FIRST_VIEW = links.Place(step=0, layer=3, head=2)


def shared() -> Shared:
    """The sidebar's settings, also before its widgets have run."""
    return values(Shared)


def model_name() -> str:
    """The model chosen, or the default while none is."""
    return st.session_state.get("model") or default_model()


def default_model() -> str:
    """This machine's default as it was when the session began: a download that ends changes nobody's model."""
    return st.session_state.setdefault("kv_default", catalog.default_name())


def dtype() -> str:
    """The precision chosen, or this machine's default."""
    return st.session_state.get("dtype") or device.owner_dtype()


def settings() -> Settings:
    """What Run would start. Sampling reads as greedy, with nothing else in it, at temperature 0."""
    now = shared()
    sampling = Sampling()
    if now.temperature > 0:
        sampling = Sampling(float(now.temperature), int(now.top_k), float(now.top_p), int(now.seed))
    return Settings(model_name(), now.prompt, sampling, int(now.new), dtype())


def learner() -> Learner:
    """The session's live run and its worker."""
    if "kv_learner" not in st.session_state:
        st.session_state.kv_learner = Learner()
    return st.session_state.kv_learner


def session() -> Session | None:
    """The engine's session behind the live run, or None. Only the learner's worker may step it."""
    return learner().session


def live_run() -> Run | None:
    return learner().run


def opened_run() -> Run | None:
    """The recorded run the learner opened from a file, while it is the one shown."""
    return st.session_state.get("kv_opened")


@st.cache_resource(show_spinner=False)
def bundled_run() -> Run:
    return storage.bundled()


def current_run() -> Run:
    """The run all pages show: an opened file, else the learner's own, else the recorded one that ships."""
    return opened_run() or live_run() or bundled_run()


def is_live(run: Run) -> bool:
    """It is the learner's own run and can grow."""
    return learner().owns(run)


# Where the learner stands. The player in the browser is ahead of this by a moment; it tells us once it rests.


def view(run: Run) -> View:
    """The place last told, within `run`."""
    held: View | None = st.session_state.get("kv_view")
    place = links.Place(held.step, held.layer, held.head) if held else FIRST_VIEW
    kept, _ = links.clamp(place, len(run.steps), run.model.layers, run.model.heads)
    return dataclasses.replace(held or View(0, 0, 0), step=kept.step, layer=kept.layer, head=kept.head)


def told(told_view: View) -> bool:
    """The player says where it is. True if that is news."""
    news = st.session_state.get("kv_view") != told_view
    st.session_state.kv_view = told_view
    return news


def told_elsewhere(told_view: View) -> bool:
    """As `told`, by a page that has no player: the next player begins there, whatever its browser remembers."""
    st.session_state.kv_elsewhere = (told_view.step, told_view.layer, told_view.head)
    return told(told_view)


def from_elsewhere(run: Run) -> bool:
    """The place that all share was chosen on a page without a player, and no player has moved since."""
    here = view(run)
    return st.session_state.get("kv_elsewhere") == (here.step, here.layer, here.head)


def leave_player() -> None:
    """Another page begins: where a player stood holds no longer, for this page may move the place that all share."""
    st.session_state.kv_stands = None


def ask(place: links.Place, *, opened: str | None = None, substep: int | None = None) -> None:
    """Sends the player to a place once the run has it. Parts that are None stay as they are."""
    waiting: links.Place = st.session_state.get("kv_pending") or links.Place()
    merged = {n: getattr(place, n) if getattr(place, n) is not None else getattr(waiting, n) for n in links.PLACE}
    st.session_state.kv_pending = links.Place(**merged)
    st.session_state.kv_pending_opened = (opened, substep)
    st.session_state.kv_pending_for = None


def place_is_for(settings: Settings) -> None:
    """The place that waits belongs to the run of these settings: it says nothing about any other."""
    st.session_state.kv_pending_for = settings


def forget_place() -> None:
    st.session_state.kv_pending = None


def place_waits() -> bool:
    """A place was asked for and has not been reached."""
    return bool(st.session_state.get("kv_pending"))


def settle_place(run: Run) -> None:
    """If a place was asked for and `run` has it (or will not grow to have it), stand there, clamped, with notes.

    A place that waits is not for the run still shown while the one asked for is on its way. If that never comes, the
    place is dropped without a word: what it asked for is not to be measured by another run.
    """
    place: links.Place | None = st.session_state.get("kv_pending")
    coming = learner().progress().busy and opened_run() is None
    if not place or (coming and not is_live(run)):
        return
    meant: Settings | None = st.session_state.get("kv_pending_for")
    if meant and not (is_live(run) and meant.same_run(learner().settings)):
        forget_place()
        return
    if coming and place.step is not None and place.step >= len(run.steps):
        return
    kept, found = links.clamp(place, len(run.steps), run.model.layers, run.model.heads)
    add_notes(found)
    here = view(run)
    chosen = {n: getattr(kept, n) if getattr(kept, n) is not None else getattr(here, n) for n in links.PLACE}
    opened, substep = st.session_state.get("kv_pending_opened") or (None, None)
    moved = dataclasses.replace(here, **chosen, opened=opened or "all", substep=substep)
    st.session_state.kv_pending = None
    st.session_state.kv_view = st.session_state.kv_asked = moved
    st.session_state.kv_asks = asks() + 1


def asked(run: Run) -> View | None:
    """Where the player has to go now, once; None while it may keep its own place."""
    settle_place(run)
    return st.session_state.pop("kv_asked", None)


def asks() -> int:
    """How often a place has been asked for: tells the same place asked for again from nothing asked."""
    return st.session_state.get("kv_asks", 0)


def add_notes(notes: list[links.Note]) -> None:
    held: list[links.Note] = st.session_state.setdefault("kv_notes", [])
    held.extend(n for n in notes if n not in held)


def notes() -> list[links.Note]:
    return list(st.session_state.get("kv_notes", []))


def say_what_is_used(used: Mapping[str, str]) -> None:
    """Completes the notes about settings, once those have their values."""
    st.session_state.kv_notes = [
        dataclasses.replace(n, values={**n.values, "used": used[str(n.values["name"])]})
        if n.values.get("name") in used
        else n
        for n in notes()
    ]


def clear_notes() -> None:
    st.session_state.kv_notes = []


def start(*, wanted: int | None = None) -> None:
    """Run: drops what was shown and starts the settings of the sidebar."""
    st.session_state.kv_opened = None
    learner().start(settings(), compare=bool(shared().compare), wanted=wanted)


def show_recorded(run: Run | None) -> None:
    """Shows a run from a file on all pages, or (None) goes back to the learner's own."""
    st.session_state.kv_opened = run
