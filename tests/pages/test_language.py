"""The language that a link named stays, whatever a slow browser says of its control."""

from __future__ import annotations

from kvviz.core import lessons


def test_a_browser_that_says_nothing_of_the_language_changes_none(opened):
    """Drawn late, the control says that nothing is chosen; its own start is what the link named."""
    app = opened("prefill", lang="zh")
    assert app.button_group("lang").value == "中文"
    app.session_state.lang = None
    app.run()
    assert app.title[0].value == lessons.text("zh", "prefill", "title")
