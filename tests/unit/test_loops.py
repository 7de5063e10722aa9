"""The two loops that the page "The problem" prints run as they stand, and say how many rows they compute."""

from __future__ import annotations

import pytest

from kvviz.core import lessons


class Counted:
    """A model whose next token is the sum of all it has seen, and which counts the rows it is given."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, tokens: list[int], cache: list[int] | None = None) -> list[int]:
        self.rows.append(len(tokens))
        seen = cache if cache is not None else []
        seen.extend(tokens)
        return [sum(seen) % 97] * len(tokens)


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_both_loops_write_the_same_text_with_the_rows_they_name(language):
    """5 + 20: 5 + 6 + ... + 24 = 290 rows without a cache, 5 + 19 = 24 with one."""
    code = lessons.text(language, "problem", "code", n=20, P=5, rows_without=290, rows_kept=24)
    without, kept = code.split("\n\n")
    prompt, texts = [3, 1, 4, 1, 5], []
    for part, rows in ((without, 290), (kept, 24)):
        model = Counted()
        names = {"model": model, "choose": lambda logits: logits, "Cache": list, "prompt": list(prompt)}
        exec(part, names)
        assert sum(model.rows) == rows and len(model.rows) == 20
        texts.append(names["text"])
    assert texts[0] == texts[1] and len(texts[0]) == 25
