"""What all pages share, as the sidebar sets it and a link writes it: names, bounds, and what holds until somebody says
otherwise. No Streamlit."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.ui.spec import OneOf, Real, Whole, setting

LANGUAGE_NAMES = {"en": "English", "zh": "中文"}  # as the language control shows them, and as its query value
MAX_NEW = 1024  # the longest run there is: one prompt token, and all but the last of these are fed too
NEW_TOKENS = 24  # a run's length until the learner says otherwise: enough decode passes for a median time
SWITCH = OneOf(("true", "false"))


@dataclass(frozen=True)
class Shared:
    """Model, prompt, sampling, length and size. Model and precision are None until they are chosen."""

    model: str | None = None
    dtype: str | None = None
    prompt: str = ""
    temperature: float = setting(Real(0.0, 2.0), 0.0)
    top_k: int = setting(Whole(0, 1000), 0)
    top_p: float = setting(Real(0.05, 1.0), 1.0)
    seed: int = setting(Whole(0, 2**31 - 1), 0)
    new: int = setting(Whole(1, MAX_NEW), NEW_TOKENS)
    compare: bool = setting(SWITCH, True)
    presenter: bool = setting(SWITCH, False)
