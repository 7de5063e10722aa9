"""Prompts that suit a model, each with what to notice. The notes are lessons; the prompts are the same in
every language, for they are what the models were trained to read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import streamlit as st

from kvviz.core import lessons
from kvviz.ui import links, state
from kvviz.ui.language import t
from kvviz.ui.settings import Shared

START = links.Place(step=0)


@dataclass(frozen=True)
class Example:
    """`note` names a section of home.md. `place` is where it shows."""

    note: str
    prompt: str
    new: int
    place: links.Place = START
    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0


STORY_GPT2 = (
    Example("note_induction", "Dorothy and the Tin Woodman", 16, links.Place(6, 3, 2)),
    Example("note_story", "Once upon a time there was a", 48, links.Place(0, 2, 2), 0.7, 20, 1),
    Example("note_quote", '"Where are you going?" said the', 32, links.Place(0, 2, 2), 0.7, 20, 3),
    Example("note_repeat", "the the the the", 12, links.Place(0, 3, 2)),
)
STORY_LLAMA = (
    Example("note_shared_heads", "Once upon a time there was a", 24, links.Place(1, 1, 1)),
    Example("note_story", "The old man and his wife lived in a", 48, links.Place(0, 1, 1), 0.7, 20, 1),
)
GPT2 = (
    Example("note_capital", "The capital of France is", 20, links.Place(0, 5, 1)),
    Example("note_pieces", "你好，世界", 12, links.Place(0, 0, 0)),
    Example("note_repeat", "the the the the", 12, links.Place(0, 5, 1)),
)


def examples(model: str) -> tuple[Example, ...]:
    """What suits a model by its name; a model kvviz has not met gets GPT-2's."""
    return {"story-gpt2": STORY_GPT2, "story-llama": STORY_LLAMA}.get(model, GPT2)


def choices(model: str, *, where: str = "sidebar") -> None:
    """A button an example, and under it what to notice."""
    for i, example in enumerate(examples(model)):
        st.button(
            lessons.literal(example.prompt),
            key=f"example-{where}-{i}",
            on_click=take,
            args=(example,),
            width="stretch",
        )
        st.caption(t("home", example.note))


def take(example: Example) -> None:
    """Fills the sidebar with the example and runs it."""
    chosen = {
        "prompt": example.prompt,
        "new": example.new,
        "temperature": example.temperature,
        "top_k": example.top_k,
        "top_p": 1.0,
        "seed": example.seed,
    }
    # Setting one bound value writes Python's copy of the query, which may lack what the browser has changed
    # since: so all are set.
    for name in (f.name for f in dataclasses.fields(Shared)):
        if name in chosen or name in st.session_state:
            st.session_state[name] = chosen.get(name, st.session_state.get(name))
    state.clear_notes()
    state.ask(example.place)
    state.start()
    st.rerun()  # all of it: the button may stand in a part of the page that runs by itself, the sidebar not
