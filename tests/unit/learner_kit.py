"""What tests of a learner's worker share."""

from __future__ import annotations

import time

from kvviz.core import Sampling
from kvviz.ui.learner import Learner, Settings

PROMPT = "Dorothy and the Tin Woodman"  # 9 tokens of story-gpt2


def settings(prompt: str = PROMPT, new: int = 3, model: str = "story-gpt2") -> Settings:
    return Settings(model, prompt, Sampling(), new)


def until(condition, seconds: float = 120.0) -> None:
    """Waits for the worker; a test that never gets there fails by name."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the worker did not get there"
        time.sleep(0.005)


def finished(learner: Learner) -> bool:
    return not learner.progress().busy


def lengths(learner: Learner) -> list[int]:
    return [s.length_after for s in learner.run.steps]
