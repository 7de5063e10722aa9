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

from kvviz.features.ladder.record.ladder import CACHES, KERNELS
from kvviz.features.memory.record.architectures import FORMATS, MOST, MOST_BATCH, MOST_POSITIONS
from kvviz.features.memory.record.gpus import GPUS
from kvviz.features.memory.record.presets import PRESETS
from kvviz.features.memory.record.sizes import MOST_MEMORY
from kvviz.features.roofline.record import BATCHES
from kvviz.features.source.record.walk import STATIONS
from kvviz.models.device import DTYPES

LANGUAGE_NAMES = {"en": "English", "zh": "中文"}  # as the language control shows them, and as its query value
LANES = tuple(f"{cache}-{kernel}" for cache in CACHES for kernel in KERNELS)
MAX_NEW = 1024  # the longest run there is: one prompt token, and all but the last of these are fed too
LINK_TOKENS = 256  # a step alone, without `new`, asks for no longer run than this

# name -> (least, greatest), inclusive; whole numbers first
WHOLE = {"top_k": (0, 1000), "seed": (0, 2**31 - 1), "new": (1, MAX_NEW)}
REAL = {"temperature": (0.0, 2.0), "top_p": (0.05, 1.0)}
CHOICE = {"compare": ("true", "false"), "presenter": ("true", "false"), "lang": tuple(LANGUAGE_NAMES.values())}
PLACE = ("step", "layer", "head")


# What single pages have of their own, unset or: a whole number (least, greatest), a number where both are written with
# a point, one of a few words, several of them, or any text of so many characters at most.
@dataclass(frozen=True)
class Several:
    """Some of a few words, with commas between them; or none."""

    words: tuple[str, ...]


Field = tuple[int, int] | tuple[float, float] | tuple[str, ...] | int | Several
OWN: Mapping[str, Mapping[str, Field]] = {
    "attention": {
        "attention_order": ("place", "previous", "first", "itself", "entropy", "induction"),
        "attention_rows": ("all", "one"),
        "attention_stage": ("scores", "scaled", "masked", "softmax", "values"),
        "attention_query": (0, 1023),
    },
    "positions": {
        "positions_pair": (0, 511),
        "positions_key": (0, 1023),
        "positions_offset": ("-64", "-16", "-8", "-4", "-2", "-1", "0", "1", "2", "4", "8", "16", "64"),
    },
    "problem": {"work_P": (1, 1000), "work_N": (1, 200)},
    "permission": {
        "edit": (0, 1023),
        "edit_to": 40,
        "edit_how": ("replace", "insert"),
        "causal": ("on", "off"),
        "broken": ("twice", "stale", "narrow", "shifted", "restart"),
    },
    "source": {"station": STATIONS},
    "race": {"race_P": (1, 1023), "race_N": (1, MAX_NEW), "race_repeats": (1, 25)},
    "ladder": {
        "ladder_P": (1, 1023),
        "ladder_N": (2, MAX_NEW),
        "ladder_B": (1, 64),
        "ladder_lanes": Several(LANES),
        "ladder_more": Several(("half", "generate", "compiled")),
        "ladder_view": ("time", "clock", "tokens", "bytes"),
        "ladder_T": (1, 1023),
    },
    "roofline": {
        "roofline_P": (1, 1023),
        "roofline_dtype": tuple(DTYPES),
        "roofline_B": tuple(map(str, BATCHES)),
    },
    "memory": {
        "memory_model": ("run", *PRESETS, "own", "config"),
        "memory_T": (1, MOST_POSITIONS),
        "memory_B": (1, MOST_BATCH),
        "memory_kv": tuple(FORMATS),
        "memory_by": ("dtype", "batch"),
        "memory_L": (0, MOST["layers"]),  # zero gets a sentence
        "memory_H": (0, MOST["heads"]),
        "memory_Hkv": (0, MOST["kv_heads"]),
        "memory_D": (0, MOST["head_dim"]),
        "memory_window": (0, MOST["window"]),
        "memory_millions": (0, 100_000_000),
        "memory_gpu": tuple(GPUS),
        "memory_gpus": (1, 1024),
        "memory_weights": tuple(FORMATS),
        "memory_total": (0.0, MOST_MEMORY),
        "memory_percent": (1, 100),
        "memory_resident": (0.0, 100_000.0),
        "memory_peak": (0.0, 100_000.0),
        "memory_other": (0.0, 100_000.0),
        "memory_block": (1, 1024),
        "memory_longest": (1, MOST_POSITIONS),
        "memory_request": (1, MOST_POSITIONS),
    },
}


@dataclass(frozen=True)
class Note:
    """Something to tell the reader: a section of shell.md and what fills it. Strings in it are user text."""

    section: str
    values: Mapping[str, object]


@dataclass(frozen=True)
class Place:
    """Where a link points to; None where it says nothing usable."""

    step: int | None = None
    layer: int | None = None
    head: int | None = None

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.step, self.layer, self.head))


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


def own(page: str, values: Mapping[str, str]) -> dict[str, int | float | str | list[str]]:
    """A page's own settings in a query, as far as they can be used."""
    fields = OWN.get(page, {})
    found = {name: _read(values[name], field) for name, field in fields.items() if name in values}
    return {name: value for name, value in found.items() if value is not None}


def check_own(page: str, values: Mapping[str, str]) -> list[Note]:
    """Notes for a page's own settings in a query that can't be used."""
    notes = []
    for name in sorted(OWN.get(page, {}).keys() & values.keys() - own(page, values).keys()):
        field, told = OWN[page][name], {"name": name, "value": shorten(values[name])}
        if isinstance(field, int):
            notes.append(Note("note_own_long", told | {"limit": f"{field:,}"}))
        elif isinstance(field, Several):
            notes.append(Note("note_own_several", told | {"choices": ", ".join(field.words)}))
        elif isinstance(field[0], str):
            notes.append(Note("note_own_choice", told | {"choices": ", ".join(map(str, field))}))
        else:
            section = "note_own_real" if isinstance(field[0], float) else "note_own_range"
            notes.append(Note(section, told | {"least": f"{field[0]:,}", "greatest": f"{field[1]:,}"}))
    return notes


def _read(text: str, field: Field) -> int | float | str | list[str] | None:
    if isinstance(field, int):
        return text if len(text) <= field else None
    if isinstance(field, Several):
        asked = text.split(",") if text else []
        return [word for word in field.words if word in asked] if set(asked) <= set(field.words) else None
    if isinstance(field[0], str):
        return text if text in field else None
    number = real(text) if isinstance(field[0], float) else whole(text)
    return number if number is not None and field[0] <= number <= field[1] else None


def check_settings(values: Mapping[str, str], models: Sequence[str], dtypes: Sequence[str] = ()) -> list[Note]:
    """Notes for the settings of a query that can't be used as they stand."""
    notes = []
    for name, known in (("model", models), ("dtype", dtypes)):
        if (value := values.get(name)) is not None and value not in known:
            notes.append(Note(f"note_{name}", {"value": shorten(value)}))
    for name, (least, greatest) in {**WHOLE, **REAL}.items():
        if name not in values:
            continue
        number = real(values[name])
        if number is None or not least <= number <= greatest or (name in WHOLE and not number.is_integer()):
            section = "note_whole" if name in WHOLE else "note_range"
            limits = {"least": f"{least:,}", "greatest": f"{greatest:,}"}
            notes.append(Note(section, {"name": name, "value": shorten(values[name]), **limits}))
    for name, choices in CHOICE.items():
        good = language(values) if name == "lang" else values.get(name, "").lower() in choices
        if name in values and not good:
            named = {"name": name, "value": shorten(values[name]), "choices": ", ".join(choices)}
            notes.append(Note("note_choice", named))
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
