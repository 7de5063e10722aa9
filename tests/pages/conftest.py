"""Pages as Streamlit runs them, without a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

APP = Path(__file__).parent.parent.parent / "app.py"


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No model is loaded; the names asked for are written down."""
    from kvviz.ui import warm

    asked: list[str] = []
    monkeypatch.setattr(warm, "_slots", {})
    monkeypatch.setattr(warm, "request", lambda name, dtype: asked.append(name))
    return asked


@pytest.fixture
def opened() -> Iterator[Callable[..., AppTest]]:
    """opened("decode", step="3", lang="zh", state={"kv_opened": run}): the app on that page, run once there."""

    def open_page(page: str = "home", state: dict | None = None, **query: str) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=60)
        for name, value in query.items():
            app.query_params[name] = value
        for name, value in (state or {}).items():
            app.session_state[name] = value
        app.run()
        if page != "home":
            app.switch_page(f"pages/{page}.py").run()
        return app

    yield open_page
