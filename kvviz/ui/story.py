"""The pages there are, as app.py hands them over, and which of them this run of the script draws."""

from __future__ import annotations

from dataclasses import dataclass, field

import streamlit as st

from kvviz.ui.held import held
from kvviz.ui.spec import PageSpec


@dataclass
class Story:
    """`pages` in the story's order; `targets`: where a link to each leads; `here`: the page that is drawn."""

    pages: tuple[PageSpec, ...] = ()
    targets: dict[str, st.Page] = field(default_factory=dict)
    here: PageSpec | None = None


def here() -> PageSpec:
    """The page that is drawn. RuntimeError before there is one."""
    found = held(Story).here
    if found is None:
        raise RuntimeError("no page is drawn yet")
    return found


def neighbours(page: PageSpec) -> tuple[PageSpec | None, PageSpec | None]:
    """The pages before and after it."""
    pages = held(Story).pages
    at = pages.index(page)
    return (pages[at - 1] if at else None), (pages[at + 1] if at + 1 < len(pages) else None)
