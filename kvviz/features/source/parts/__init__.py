"""The source walk: installed lines in a listing, the current one lit, and what its variables hold beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from kvviz.core import Run
from kvviz.core.tokens import label
from kvviz.features.source.parts.below import follow
from kvviz.features.source.parts.way import NAME, ten_lines, values, walk
from kvviz.features.source.record import installed as source
from kvviz.features.source.record.beside import beside
from kvviz.features.source.record.walk import Walk
from kvviz.features.source.spec import SPEC
from kvviz.player.view import View
from kvviz.ui import browser, kit, links, request, state
from kvviz.ui.fragment import fragment
from kvviz.ui.guard import guarded
from kvviz.ui.language import current, has, t

__all__ = ["follow", "go", "stage", "ten_lines", "values", "walk"]

POLL_SECONDS = 0.5
WORDS = ("label", "back", "on", "line", "keys", "folded", "version")
FRAGMENTS = ("walk", "below", "share")  # what follows a move
_HERE = Path(__file__).parent
_mount = st.components.v2.component(
    "kvviz_walk",
    css=(_HERE / "walk.css").read_text(encoding="utf-8"),
    js=(_HERE / "walk.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def stage() -> None:
    """Mounts the walk. While the worker is busy it looks for new passes, and for another run."""
    st.session_state.kv_drawn = state.current_run().key
    _take_link()
    busy = state.learner().progress().busy
    fragment(_stage, key="walk", run_every=POLL_SECONDS if busy else None)(busy)


def go(station: str, step: int | None = None) -> None:
    """Stands at a station, and at that pass as far as the run has it."""
    run = state.current_run()
    if step is not None:
        state.ask(links.Place(step=min(step, len(run.steps) - 1)))
    st.session_state.station = station
    st.session_state.kv_walk_move = st.session_state.get("kv_walk_move", 0) + 1


def _take_link() -> None:
    """A link's station, once: then the browser speaks."""
    asked = links.own(SPEC.fields, request.query_values()).get("station")
    if asked is not None and st.session_state.get("kv_took_station") != asked:
        st.session_state.station = st.session_state.kv_took_station = asked
        st.session_state.kv_walk_move = st.session_state.get("kv_walk_move", 0) + 1


@guarded
def _stage(was_busy: bool) -> None:
    run = state.current_run()
    if run.key != st.session_state.kv_drawn or was_busy != state.learner().progress().busy:
        st.rerun()  # the rest of the page still speaks of what was before
    if state.asked(run) is not None:
        st.session_state.kv_walk_move = st.session_state.get("kv_walk_move", 0) + 1
    view = state.view(run)
    way = walk(run, view)
    named = values(run, view)
    kit.answer(NAME, "answer_decode" if view.step else "answer_prefill", **named)
    if way.stations:
        _mount(key="walk-view", data=_data(run, view, way, named), on_place_change=_moved, on_extend_change=_extend)
    for section in notes(run, way):
        st.caption(t(NAME, section, **named))
    browser.show_in_address({"station": st.session_state.get("station") or SPEC.fields["station"].words[0]}, key="at")


def notes(run: Run, way: Walk) -> list[str]:
    """What has to be said about the lines: sections of the lesson."""
    if not way.stations:
        return ["note_none"]
    said = [] if way.known else ["note_unknown"]
    if way.missing:
        said.append("note_missing")
    if run.machine.transformers != way.version:
        said.append("note_version")
    return said


def _moved() -> None:
    """The browser says where it stands."""
    told = st.session_state["walk-view"].get("place")
    run = state.current_run()
    match told:
        case {"step": int(step), "layer": int(layer), "head": int(head), "station": int(at), "move": move}:
            if move != _identity(run):
                return  # said before it had heard where to go
            m = run.model
            asked = links.Place(max(0, step), max(0, layer), max(0, head))
            kept, _ = links.clamp(asked, len(run.steps), m.layers, m.heads)
            view = View(kept.step or 0, kept.layer or 0, kept.head or 0)
            stations = walk(run, view).stations
            if stations:
                st.session_state.station = stations[max(0, min(at, len(stations) - 1))].name
            state.told_elsewhere(view)
            if not request.whole_page():
                st.rerun(list(FRAGMENTS))


def _can_extend(run: Run) -> bool:
    progress = state.learner().progress()
    return state.is_live(run) and not progress.busy and not progress.at_limit


def _extend() -> None:
    """N: the worker makes a pass; the walk looks for it while it is busy."""
    told, run = st.session_state["walk-view"].get("extend"), state.current_run()
    match told:
        case {"passes": int(passes)} if _can_extend(run) and passes == len(run.steps) + 1:
            state.learner().extend(passes)
            st.rerun()


def _identity(run: Run) -> str:
    """Changes when Python moves the walk, or shows another run."""
    return f"{run.key}-{current()}-{st.session_state.get('kv_walk_move', 0)}"


def _data(run: Run, view: View, way: Walk, named: Mapping[str, object]) -> dict[str, Any]:
    """What the browser gets: the lines of both kinds of pass, and what is said at this place and those next to it."""
    m, last, asked = run.model, len(run.steps) - 1, st.session_state.get("station")
    names = [s.name for s in way.stations]
    words = {n: t(NAME, f"word_{n}", **named) for n in WORDS}
    words["pass"] = t(NAME, "word_pass", last=f"{last:,}", step="{step}", layer="{layer}", head="{head}")
    return {
        "run": f"{run.key}-{current()}",
        "move": _identity(run),
        "words": words,
        "last": last,
        "layers": m.layers,
        "heads": m.heads,
        "canExtend": _can_extend(run),
        "place": {
            "step": view.step,
            "layer": view.layer,
            "head": view.head,
            "station": names.index(asked) if asked in names else 0,
        },
        "walks": {phase: _lines(run, phase) for phase in ("prefill", "decode")},
        "places": {f"{v.step},{v.layer},{v.head}": _said(run, v) for v in _around(run, view)},
    }


def _around(run: Run, view: View) -> list[View]:
    """The place, and where one press leads from it."""
    m, s = run.model, view.step
    places = [(s, view.layer, view.head)]
    places += [(s + by, view.layer, view.head) for by in (1, -1) if 0 <= s + by < len(run.steps)]
    places += [(s, view.layer + by, view.head) for by in (1, -1) if 0 <= view.layer + by < m.layers]
    places += [(s, view.layer, view.head + by) for by in (1, -1) if 0 <= view.head + by < m.heads]
    return [View(*place) for place in places]


def _lines(run: Run, phase: str) -> dict[str, Any]:
    way = source.walk(run.model.architecture, phase, greedy=run.sampling.greedy)
    return {
        "listings": [
            {"name": each.name, "file": each.file, "first": each.first, "lines": each.lines, "prose": each.prose}
            for each in way.listings
        ],
        "stations": [
            {"listing": s.listing, "lit": s.lit, "depth": s.depth, "title": t(NAME, f"title_{s.name}")}
            for s in way.stations
        ],
    }


def _said(run: Run, view: View) -> list[dict[str, Any]]:
    """For each station of that place, its sentences and its variables."""
    way, named = walk(run, view), values(run, view)
    rows = beside(run, view.step, view.layer, view.head, way)
    return [
        {
            "says": sentence(run, view, _section(run, view, s.name), named),
            "rows": [(r.name, r.text, r.kind) for r in rows[s.name]],
        }
        for s in way.stations
    ]


def _section(run: Run, view: View, station: str) -> str:
    """The station's sentences: for the phase or the kind of positions, where they have their own."""
    for kind in (run.steps[view.step].phase, run.model.positions):
        if has(NAME, f"at_{station}_{kind}"):
            return f"at_{station}_{kind}"
    return f"at_{station}"


def sentence(run: Run, view: View, section: str, named: Mapping[str, object]) -> list[tuple[str, str]]:
    """A section as pieces of text, each with its kind: plain, or "code". Tokens are literal, whatever they hold."""
    record = run.steps[view.step]
    tokens = {"token": int(record.ids[-1]), "chosen": record.chosen}
    pieces: list[tuple[str, str]] = []
    template = t(NAME, section, **{n: f"{{{n}}}" for n in (*named, *tokens)})
    for i, part in enumerate(template.split("`")):
        for j, text in enumerate(re.split(r"\{(\w+)\}", part)):
            if j % 2 and text in tokens:
                pieces.append((label(run.pieces[tokens[text]]), "code"))
            elif text:
                pieces.append((str(named[text]) if j % 2 else text, "code" if i % 2 else ""))
    return pieces
