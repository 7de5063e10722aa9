"""A link holds the whole state: reading one warily, and writing one that leaves nothing out.

Pure functions. Model, prompt, sampling, language and size reach their widgets through Streamlit's query
binding; what is here says in a sentence what was refused. Step, layer and head have no widget: they are read
here, wait until the run exists, and are clamped to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, urlencode

from kvviz.ui.settings import LANGUAGE_NAMES, Shared
from kvviz.ui.spec import Field, OneOf, Place, Real, Several, Text, Whole, fields_of

LINK_TOKENS = 256  # a step alone, without `new`, asks for no longer run than this

SHARED = fields_of(Shared) | {"lang": OneOf(tuple(LANGUAGE_NAMES.values()))}
PLACE = ("step", "layer", "head")


@dataclass(frozen=True)
class Note:
    """Something to tell the reader: a section of shell.md and what fills it. Strings in it are user text."""

    section: str
    values: Mapping[str, object]


def query(query_string: str) -> dict[str, str]:
    """Names and values of a query string; of a name given twice, the last value, as Streamlit takes it.

    A query of more than 100 fields is nobody's link: it says nothing.
    """
    try:
        parsed = parse_qs(query_string.removeprefix("?"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in parsed.items()}


def whole(text: str) -> int | None:
    """A non-negative whole number in ASCII digits, or None. `int` alone takes '１２', ' 7 ' and '1_0'."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def real(text: str) -> float | None:
    """A finite number as Streamlit's binding reads it, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def read_place(values: Mapping[str, str]) -> tuple[Place, list[Note]]:
    """Step, layer and head of a query, and a note for each that is no whole number."""
    found: dict[str, int] = {}
    notes = []
    for name in PLACE:
        if name not in values:
            continue
        number = whole(values[name])
        if number is None:
            notes.append(Note("note_unreadable", {"name": name, "value": shorten(values[name])}))
        else:
            found[name] = number
    return Place(**found), notes


def own(fields: Mapping[str, Field], values: Mapping[str, str]) -> dict[str, int | float | str | list[str]]:
    """A page's own settings in a query, as far as they can be used."""
    found = {name: _read(values[name], field) for name, field in fields.items() if name in values}
    return {name: value for name, value in found.items() if value is not None}


def check_own(fields: Mapping[str, Field], values: Mapping[str, str]) -> list[Note]:
    """Notes for a page's own settings in a query that can't be used."""
    notes = []
    for name in sorted(fields.keys() & values.keys() - own(fields, values).keys()):
        told = {"name": name, "value": shorten(values[name])}
        match fields[name]:
            case Text(most):
                notes.append(Note("note_own_long", told | {"limit": f"{most:,}"}))
            case Several(words):
                notes.append(Note("note_own_several", told | {"choices": ", ".join(words)}))
            case OneOf(words):
                notes.append(Note("note_own_choice", told | {"choices": ", ".join(words)}))
            case Whole(least, greatest):
                notes.append(Note("note_own_range", told | {"least": f"{least:,}", "greatest": f"{greatest:,}"}))
            case Real(least, greatest):
                notes.append(Note("note_own_real", told | {"least": f"{least:,}", "greatest": f"{greatest:,}"}))
    return notes


def _read(text: str, field: Field) -> int | float | str | list[str] | None:
    match field:
        case Text(most):
            return text if len(text) <= most else None
        case Several(words):
            asked = text.split(",") if text else []
            return [word for word in words if word in asked] if set(asked) <= set(words) else None
        case OneOf(words):
            return text if text in words else None
        case Whole(least, greatest):
            number = whole(text)
        case Real(least, greatest):
            number = real(text)
    return number if number is not None and least <= number <= greatest else None


def check_settings(values: Mapping[str, str], models: Sequence[str], dtypes: Sequence[str] = ()) -> list[Note]:
    """Notes for the settings of a query that can't be used as they stand."""
    notes = []
    for name, known in (("model", models), ("dtype", dtypes)):
        if (value := values.get(name)) is not None and value not in known:
            notes.append(Note(f"note_{name}", {"value": shorten(value)}))
    for name, field in SHARED.items():
        if name not in values:
            continue
        told = {"name": name, "value": shorten(values[name])}
        if isinstance(field, OneOf):
            good = language(values) if name == "lang" else values[name].lower() in field.words
            if not good:
                notes.append(Note("note_choice", told | {"choices": ", ".join(field.words)}))
            continue
        number, (least, greatest) = real(values[name]), field
        is_whole = isinstance(field, Whole)
        if number is None or not least <= number <= greatest or (is_whole and not number.is_integer()):
            limits = {"least": f"{least:,}", "greatest": f"{greatest:,}"}
            notes.append(Note("note_whole" if is_whole else "note_range", told | limits))
    return notes


def language(values: Mapping[str, str]) -> str | None:
    """The language a query asks for, by code or by its own name."""
    asked = values.get("lang", "").strip().lower()
    for code, name in LANGUAGE_NAMES.items():
        if asked == name.lower() or asked.split("-")[0] == code:
            return code
    return None


def tokens_for(place: Place, new: int) -> int:
    """How many tokens a link's run chooses: its `new`, or enough to reach its step if that is near."""
    if place.step is not None and place.step < LINK_TOKENS:
        return max(new, place.step + 1)
    return new


def clamp(place: Place, steps: int, layers: int, heads: int) -> tuple[Place, list[Note]]:
    """The place within a run of `steps` passes, and a note for each number that had to give way."""
    kept, notes = {}, []
    for name, size in zip(PLACE, (steps, layers, heads), strict=True):
        asked = getattr(place, name)
        if asked is None:
            continue
        kept[name] = min(asked, max(0, size - 1))
        if kept[name] != asked:
            notes.append(Note(f"note_{name}", {"asked": f"{asked:,}", "last": f"{kept[name]:,}"}))
    return Place(**kept), notes


def build(base: str, values: Mapping[str, object]) -> str:
    """`base` (scheme, host and page path) with every value in its query."""
    return f"{base.split('?')[0].split('#')[0]}?{urlencode(written(values), quote_via=quote)}"


def written(values: Mapping[str, object]) -> dict[str, str]:
    """As a query holds them, without those that are None. Booleans as Streamlit writes them, several words with
    commas."""

    def one(value: object) -> str:
        if isinstance(value, list):
            return ",".join(map(str, value))
        return str(value).lower() if isinstance(value, bool) else str(value)

    return {k: one(v) for k, v in values.items() if v is not None}
