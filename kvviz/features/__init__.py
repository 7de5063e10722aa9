"""A folder for each subject. Whoever stands above all of them, as app.py and the tests do, asks here for the pages."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from kvviz.ui.spec import PageSpec


@cache
def pages() -> tuple[PageSpec, ...]:
    """The `SPEC` of every feature that has one, in the story's order. ValueError if two claim one place."""
    names = [m.name for m in pkgutil.iter_modules(__path__) if m.ispkg]
    found = [importlib.import_module(f"{__name__}.{name}.spec").SPEC for name in names]
    if len({spec.number for spec in found}) < len(found):
        raise ValueError(f"two pages have one number: {sorted((s.number, s.name) for s in found)}")
    return tuple(sorted(found, key=lambda spec: spec.number))
