"""What the server does before its first reader comes: while a browser fetches Streamlit, all imports are made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st

from kvviz.core.background import beside
from kvviz.ui import shell, state


@asynccontextmanager
async def ready(_: st.App) -> AsyncIterator[None]:
    """The lifespan of the app: the server listens at once, the rest comes up beside it."""
    beside("start", _bring_up)
    yield


def _bring_up() -> None:
    import streamlit.emojis  # noqa: F401  a large pattern, which the first control would compile

    state.bundled_run()
    shell.owner()
