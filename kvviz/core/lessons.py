"""The prose, one `## name` heading a section: `features/NAME/en.md` and `zh.md` for a subject, `words/NAME/` for what
several speak (the shell, the player, figures, refusals, the questions asked everywhere).

A section's text may hold `{placeholders}`; `text` fills them. User text never goes through here:
what a learner typed is shown by literal widgets, or enters as a code span made by `literal`.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

LANGUAGES = ("en", "zh")
_ROOT = Path(__file__).parent.parent


@functools.cache
def names() -> tuple[str, ...]:
    """Every name under which there are sections, subjects first."""
    return tuple(p.parent.name for kind in ("features", "words") for p in sorted((_ROOT / kind).glob("*/en.md")))


def file(language: str, name: str) -> Path:
    """Where the sections of that name stand in that language. FileNotFoundError if nowhere."""
    for kind in ("features", "words"):
        if (found := _ROOT / kind / name / f"{language}.md").is_file():
            return found
    raise FileNotFoundError(f"no lesson {name!r} in {language!r}")


@functools.cache
def sections(language: str, page: str) -> dict[str, str]:
    """Every section of one file, by name, in order. Raises FileNotFoundError for an unknown page."""
    raw = file(language, page).read_text(encoding="utf-8")
    parts = re.split(r"^## +(.+?) *$", raw, flags=re.M)
    return {name.strip(): body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def text(language: str, page: str, section: str, **values: object) -> str:
    """One section with its placeholders filled. A missing section or value is a KeyError."""
    body = sections(language, page)[section]
    return re.sub(r"\{(\w+)\}", lambda m: str(values[m[1]]), body)


def literal(user_text: str) -> str:
    """User text as a Markdown code span that nothing inside can close, as CommonMark 6.1 has it."""
    flat = user_text.replace("\r", " ").replace("\n", "⏎")
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", flat)), default=0))
    return f"{fence} {flat} {fence}" if flat.strip() else f"{fence}{flat}{fence}"
