"""Text inside a figure. Plotly reads `<b>`, `&amp;` and, with MathJax, `$...$`; a learner means none of these."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.core import Run
from kvviz.core.tokens import label

TICKS = 32  # more labels than this on an axis can't be read
LONGEST = 14  # characters of a token on an axis; hovers and tables have all of it

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})


def literal(text: str) -> str:
    """Text that Plotly shows character by character.

    >>> literal("<b>$x$ &amp;")
    '&lt;b&gt;&#36;x&#36; &amp;amp;'
    """
    return text.translate(_ENTITIES)


def token(run: Run, token_id: int) -> str:
    """A token as it is written everywhere, not yet made literal."""
    return label(run.pieces[int(token_id)])


def tokens(run: Run, ids: Sequence[int]) -> list[str]:
    return [token(run, i) for i in ids]


def short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def position_labels(run: Run, count: int) -> list[str]:
    """`0 D`, `1 or`, …: unique, though tokens repeat. For table columns and headers; not made literal."""
    return [f"{i} {t}" for i, t in enumerate(tokens(run, run.ids[:count]))]


def ticks(run: Run, count: int, most: int = TICKS) -> tuple[list[int], list[str]]:
    """Tick positions and their texts for the first `count` positions; generated tokens are in bold.

    All positions up to `most` of them, then every n-th, always with the last.
    """
    every = -(-count // most)
    at = sorted({*range(0, count, every), count - 1})
    if len(at) > 1 and at[-1] - at[-2] < every:  # the last one would touch its neighbour
        del at[-2]
    texts = [f"{i} {literal(short(token(run, run.ids[i])))}" for i in at]
    return at, [f"<b>{t}</b>" if i >= run.P else t for i, t in zip(at, texts, strict=True)]


def count(n: int) -> str:
    """1,769,472"""
    return f"{n:,}"


def weight(w: float) -> str:
    """A share in three digits: 0.647."""
    return f"{w:.3f}"


def percent(w: float) -> str:
    """A probability in words: 64.7 %."""
    return f"{100 * w:.1f} %"


def milliseconds(ms: float) -> str:
    """Three significant digits: 4.27, 42.7, 427."""
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:,.0f}"
