"""The language of the page: what the learner chose, else the link's, else the browser's."""

from __future__ import annotations

import streamlit as st

from kvviz.core import lessons
from kvviz.ui import links
from kvviz.ui.request import arrived, by_history, query_values
from kvviz.ui.settings import LANGUAGE_NAMES

KEY = "lang"
literal = lessons.literal  # user text within Markdown, as code that nothing inside can close


def current() -> str:
    """`en` or `zh`. On arrival (first run, Back, Forward) the URL speaks, for its widget comes later."""
    if arrived():
        asked = links.language(query_values())
        if asked or by_history():
            return asked or unset()
    chosen = st.session_state.get(KEY)
    for code, name in LANGUAGE_NAMES.items():
        if chosen == name:
            return code
    return unset()


def unset() -> str:
    """While nobody has chosen: the language that the session's first link named by its code, else the browser's."""
    return st.session_state.get("kv_lang") or by_browser()


def named() -> str:
    """The name that the control shows from the start: of the language that holds while nobody has chosen. A value set
    by Python would do only until a browser that is slow to draw the control says that nothing is chosen in it."""
    return LANGUAGE_NAMES[unset()]


def by_browser() -> str:
    return "zh" if (st.context.locale or "").lower().startswith("zh") else "en"


def t(page: str, section: str, **values: object) -> str:
    """A lesson's section in the current language, placeholders filled. KeyError if it doesn't exist."""
    return lessons.text(current(), page, section, **values)


def has(page: str, section: str) -> bool:
    return section in lessons.sections(current(), page)
