"""What a test reads off a page that AppTest has run."""

from __future__ import annotations

import re
from typing import TypeVar

from streamlit.testing.v1 import AppTest

from kvviz.ui.held import KEY

Kind = TypeVar("Kind")


def text_of(app: AppTest) -> str:
    """Everything a learner can read as Markdown on the page."""
    kinds = (app.title, app.subheader, app.markdown, app.caption, app.info, app.warning, app.error)
    return "\n".join(str(e.value) for kind in kinds for e in kind)


def text_so_far(app: AppTest) -> str:
    """The running text: an element that shows its content literally."""
    return app.main.text[0].value


def code_of(app: AppTest) -> str:
    """The pass in a few lines, literal too."""
    (_, found) = app.main.text
    return found.value


def outside_code(markdown: str) -> str:
    """Markdown without its code blocks and code spans: what would be interpreted."""
    without_blocks = re.sub(r"^```.*?^```", "", markdown, flags=re.S | re.M)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", without_blocks, flags=re.S)


def components(app: AppTest) -> list[str]:
    """Names of the mounted components, in order."""
    found: list[str] = []

    def walk(node: object) -> None:
        for child in getattr(node, "children", {}).values():
            name = getattr(getattr(child, "proto", None), "component_name", "")
            if name:
                found.append(name)
            walk(child)

    walk(app.main)
    return found


def held(app: AppTest, kind: type[Kind]) -> Kind:
    """What the app's session holds of that type."""
    return app.session_state[KEY][kind]
