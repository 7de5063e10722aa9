"""What a session holds, by type: the only door to `st.session_state` for features and pages.

`held(Kind)` is this session's one object of a dataclass whose fields all have defaults; it lives as long as the session
and no page change drops it. `values(Kind)` reads widgets: a frozen dataclass whose field names are the widgets' keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import streamlit as st

from kvviz.ui.spec import Whole

KEY = "kv_held"
Kind = TypeVar("Kind")


def held(kind: type[Kind]) -> Kind:
    """This session's `kind`, made when it is first asked for. Change its fields as you like."""
    if KEY not in st.session_state:
        st.session_state[KEY] = {}
    every: dict[type, Any] = st.session_state[KEY]
    if kind not in every:
        every[kind] = kind()
    return every[kind]


def values(kind: type[Kind]) -> Kind:
    """The widgets of that settings class as they stand; a field's default where nobody has said anything."""
    return kind(**{f.name: _read(f) for f in dataclasses.fields(kind)})  # type: ignore[arg-type]


def put(kind: type, **chosen: object) -> None:
    """Sets widgets by the names of that class's fields: from a callback, or before they are drawn. None: unset.
    TypeError for a name that the class does not have."""
    if unknown := chosen.keys() - {f.name for f in dataclasses.fields(kind)}:
        raise TypeError(f"{kind.__qualname__} has no {', '.join(sorted(unknown))}")
    for name, value in chosen.items():
        st.session_state[name] = list(value) if isinstance(value, tuple) else value


def reset(kind: type, **chosen: object) -> None:
    """As `put`; those not named go back to what nobody has touched."""
    put(kind, **{f.name: f.default for f in dataclasses.fields(kind)} | chosen)


def begin(kind: type) -> None:
    """Gives a widget that nothing has set its default, where that is something."""
    for f in dataclasses.fields(kind):
        if f.default is not None and f.name not in st.session_state:
            put(kind, **{f.name: f.default})


def _read(f: dataclasses.Field) -> Any:
    found = st.session_state.get(f.name)
    if isinstance(found, list):
        return tuple(found)
    if isinstance(found, str) and isinstance(f.metadata.get("field"), Whole):
        # Of a list, browser and link keep the line's text, its number first.
        number = found.partition(" ")[0]
        found = int(number) if number.lstrip("+-").isdecimal() else None
    return f.default if found is None else found
