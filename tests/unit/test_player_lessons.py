"""The player's words: complete in both languages, and every one of them used."""

from __future__ import annotations

import re

import pytest

from kvviz.core import lessons

PARTS = ("embed", "qkv", "append", "scores", "mask", "softmax", "values", "logits", "choose", "kept")
BUILT = {  # names that the player puts together from pieces
    *(f"part_{part}" for part in PARTS),
    *(f"say_embed_{how}_{phase}" for how in ("learned", "rotary") for phase in ("prefill", "decode")),
    *(f"say_qkv_{how}_{phase}" for how in ("same", "shared") for phase in ("prefill", "decode")),
    *(f"say_{part}_{phase}" for part in ("append", "scores", "mask", "softmax") for phase in ("prefill", "decode")),
    *("say_prefill", "say_decode", "say_one"),
    *(f"proof_{name}_{verdict}" for name in ("equal", "kv") for verdict in ("holds", "rounding", "fails")),
    *(f"proof_{name}_{verdict}" for name in ("bytes", "length") for verdict in ("holds", "fails")),
}


@pytest.fixture(scope="module")
def script(root) -> str:
    return "\n".join(p.read_text(encoding="utf-8") for p in sorted((root / "kvviz/player/js").glob("*.js")))


def shape(text: str) -> tuple[list[str], list[str]]:
    """Placeholders and marks of a section, sorted: what both languages must share."""
    return sorted(set(re.findall(r"\{(\w+)\}", text))), sorted(re.findall(r"\]\(([a-z])\)", text))


def test_every_name_in_the_script_has_words(script: str) -> None:
    named = set(re.findall(r"words\.(?:plain|raw)\(\s*\"(\w+)\"", script))
    named |= set(re.findall(r"\"((?:say|hover|alt|key|mark|hint|speed|next|time|from|proof)_\w+)\"", script))
    assert len(named) > 80
    for language in lessons.LANGUAGES:
        assert (named | BUILT) - set(lessons.sections(language, "player")) == set(), language


def test_no_words_lie_unused(script: str) -> None:
    sections = set(lessons.sections("en", "player")) - BUILT
    assert {name for name in sections if f'"{name}"' not in script} == set()


def test_both_languages_say_the_same_things() -> None:
    en, zh = (lessons.sections(language, "player") for language in ("en", "zh"))
    assert set(en) == set(zh)
    differing = {name: (shape(en[name]), shape(zh[name])) for name in en if shape(en[name]) != shape(zh[name])}
    assert differing == {}


def test_sentences_keep_to_their_line() -> None:
    """The line over the picture takes about 870 design pixels: 130 narrow or 62 wide letters."""
    for language, most in (("en", 130), ("zh", 62)):
        for name, text in lessons.sections(language, "player").items():
            if not name.startswith("say_"):
                continue
            bare = re.sub(r"\[([^\]]+)\]\([a-z]\)", r"\1", text)
            filled = re.sub(r"\{(token|key_token|best|chosen)\}", "·Scarecrow", bare)
            filled = re.sub(r"\{\w+\}", "1,024", filled)
            length = sum(1 if ord(c) > 0x2E80 else 0.5 for c in filled) if language == "zh" else len(filled)
            assert length <= most, (language, name, length)
