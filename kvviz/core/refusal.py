"""What kvviz declines to do, and why: an empty prompt, a full context, a folder it cannot load.

A refusal is an answer to a person, not a fault in the program. Its code names a section of
`words/refusals`; `values` fill the placeholders there.
"""

from __future__ import annotations

from collections.abc import Callable


class Refusal(ValueError):
    """Raised before anything is changed. `str()` of it is the sentence in English."""

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(code, values)
        self.code = code
        self.values = values

    def shown(self, quote: Callable[[str], str] = str) -> dict[str, str]:
        """The values as text: whole numbers with separators, everything else through `quote`.

        >>> Refusal("too_long", P=1025, model="gpt2").shown()
        {'P': '1,025', 'model': 'gpt2'}
        """
        return {
            name: f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else quote(str(value))
            for name, value in self.values.items()
        }

    def __str__(self) -> str:
        from kvviz.core import lessons  # only when somebody reads it: this module must stay importable anywhere

        return lessons.text("en", "refusals", self.code, **self.shown())
