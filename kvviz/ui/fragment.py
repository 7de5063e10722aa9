"""Parts of a page that are drawn by themselves, while the rest of it stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st


def fragment(body: Callable[..., Any], *, key: str, run_every: float | None = None) -> Callable[..., Any]:
    """`st.fragment` in a container of the page's own.

    As a fragment starts, Streamlit takes back what that fragment has drawn and not yet sent, its container included;
    what stands after it is sent all the same. Without a container that stays, everything after it would be one place
    off, and the browser gives up the whole page ("Bad delta path index").
    """

    def draw(*args: Any) -> Any:
        with st.container():
            return st.fragment(body, key=key, run_every=run_every)(*args)

    return draw
