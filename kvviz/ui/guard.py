"""What a learner sees when something breaks: a sentence. The traceback goes to the log."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec

import streamlit as st

from kvviz.core import lessons
from kvviz.core.refusal import Refusal
from kvviz.ui.language import current, t

_log = logging.getLogger(__name__)
P = ParamSpec("P")


def refused(refusal: Refusal) -> str:
    """A refusal's sentence in the current language. What the learner or the disk put into it stays literal."""
    return lessons.text(current(), "refusals", refusal.code, **refusal.shown(lessons.literal))


def guarded(body: Callable[P, None]) -> Callable[P, None]:
    """Turns an exception of a page or a part of it into a sentence. Streamlit's own stop and rerun pass through."""

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            body(*args, **kwargs)
        except Refusal as refusal:
            st.warning(refused(refusal))
        except Exception:
            _log.exception("%s broke", body.__qualname__)
            st.error(t("shell", "broken"))

    return run
