"""What a first-time reader asks is answered on each of the pages that say why it works, with this step's numbers."""

from __future__ import annotations

import re

import pytest
from reading import text_of

PAGES = ("problem", "permission", "attention", "positions", "source")
ASKED = {
    "en": (
        "no Q cache|line that stores Q",
        "ever changed",
        "before or after RoPE",
        "mask look like with a cache",
        "prefill use the cache",
    ),
    "zh": (
        "没有 Q 缓存|没有哪一行存 Q|保存 Q",
        "被改动|还会改",
        "RoPE.*之前的?还是之后|之前还是之后",
        "掩码是什么样|掩码长什么样",
        "预填充.*用.*缓存",
    ),
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("page", PAGES)
def test_each_page_answers_all_five(opened, page, language):
    app = opened(page, step="6", lang=language)
    labels = [e.label for e in app.main.expander]
    for question in ASKED[language]:
        assert any(re.search(question, label) for label in labels), (question, labels)


def test_the_answers_have_the_step_s_numbers(opened):
    """Step 6 of a prompt of 9 tokens, 6 layers of 8 heads of 32: 15 positions, one row of Q."""
    said = text_of(opened("positions", step="6", lang="en"))
    assert "At step 6 Q is (1, 8, 1, 32); K and V are (1, 8, 15, 32), all 15 positions." in said
    assert "only reads those from before (14 positions at step 6)" in said
    assert "At step 6 it is (1, 8, 1, 15), with batch and heads in front." in said
    assert "has no RoPE: a position is a row of a table" in text_of(opened("problem", step="6", lang="en"))
