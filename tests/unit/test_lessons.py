"""The prose: both languages say the same things, every sentence that code asks for exists, no myth is repeated."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from kvviz.core import lessons

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted(lessons.names())
CODE = sorted([ROOT / "app.py", *(ROOT / "pages").glob("*.py"), *(ROOT / "kvviz").rglob("*.py")])
BOTH = [(language, page) for language in lessons.LANGUAGES for page in PAGES]
EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u26ff\ufe0f\u2705\u274c\u2728\u2753-\u2757\u2795-\u2797\u27a1\u2b50]")


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def test_both_languages_have_the_same_files():
    assert PAGES
    english = {p.parent for p in (ROOT / "kvviz").rglob("en.md")}
    assert english == {p.parent for p in (ROOT / "kvviz").rglob("zh.md")}
    assert sorted(p.name for p in english) == PAGES  # and no name twice


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_have_the_same_sections(page):
    en, zh = (lessons.sections(language, page) for language in ("en", "zh"))
    assert list(en) == list(zh)


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_fill_in_the_same_values(page):
    en, zh = (lessons.sections(language, page) for language in ("en", "zh"))
    differing = {name for name in en if placeholders(en[name]) != placeholders(zh[name])}
    assert not differing


@pytest.mark.parametrize(("language", "page"), BOTH)
def test_every_section_says_something_once(language, page):
    found = lessons.sections(language, page)
    assert found
    assert all(body for body in found.values()), [name for name, body in found.items() if not body]
    raw = lessons.file(language, page).read_text(encoding="utf-8")
    doubled = [n for n, k in Counter(re.findall(r"^## +(.+?) *$", raw, flags=re.M)).items() if k > 1]
    assert not doubled


@pytest.mark.parametrize(("language", "page"), BOTH)
def test_no_emoji_no_markup_no_broken_placeholder(language, page):
    for name, body in lessons.sections(language, page).items():
        assert not EMOJI.search(body), name
        prose = re.sub(r"`[^`]*`", "", body)
        assert not re.search(r"</?(b|i|u|a|br|div|span|sub|sup|p|font)\b[^>]*>", prose), name
        assert re.sub(r"\{\w+\}", "", body).count("{") == 0, name
        assert not re.search(r"\bTO" + r"DO\b|lorem ipsum", body), name


def calls() -> list[tuple[str, str, str, set[str] | None]]:
    """Every `t(page, section, …)` and `text(language, page, section, …)` with names written out:
    (where, page, a pattern of the section, the values given or None where a mapping is passed)."""
    found = []
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            arguments = node.args[1:] if name == "text" else node.args if name == "t" else []
            if len(arguments) < 2 or not isinstance(arguments[0], ast.Constant):
                continue
            patterns = section_patterns(arguments[1])
            given = None if any(k.arg is None for k in node.keywords) else {k.arg for k in node.keywords}
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            found += [(where, arguments[0].value, pattern, given) for pattern in patterns]
    return found


def section_patterns(node: ast.expr) -> list[str]:
    """What a section's name may be, as regular expressions; none for a name that is only known later."""
    if isinstance(node, ast.Constant):
        return [re.escape(node.value)]
    if isinstance(node, ast.IfExp):
        return section_patterns(node.body) + section_patterns(node.orelse)
    if isinstance(node, ast.JoinedStr):
        parts = [re.escape(v.value) if isinstance(v, ast.Constant) else ".+" for v in node.values]
        return ["".join(parts)]
    return []


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_every_sentence_that_code_asks_for_exists(language):
    asked = calls()
    assert len(asked) >= 20
    for where, page, pattern, given in asked:
        found = lessons.sections(language, page)
        names = [n for n in found if re.fullmatch(pattern, n)]
        assert names, f"{where} asks for {page}/{pattern}, which {language} lacks"
        if given is not None and len(names) == 1:
            missing = placeholders(found[names[0]]) - given
            assert not missing, f"{where}: {page}/{names[0]} in {language} needs {missing}"


def test_text_fills_and_refuses():
    with pytest.raises(KeyError):
        lessons.text("en", "figures", "no such section")
    with pytest.raises(KeyError):
        lessons.text("en", "figures", "square.prefill", P=5)
    assert lessons.text("en", "figures", "rows_total.prefill", total="5").endswith("with the cache and without: 5.")


@pytest.mark.parametrize("typed", ["a", "`", "``", "a`b", "`` ` ``", "*x*", "$x$", "<b>", "\n", "a\nb", " "])
def test_literal_text_can_not_break_out(typed):
    """B10: the fence is longer than any run of backticks inside, and the text is one line."""
    code = lessons.literal(typed)
    fence = re.match("`+", code)[0]
    assert code.endswith(fence)
    inner = code[len(fence) : -len(fence)]
    assert "\n" not in inner
    assert all(len(run) < len(fence) for run in re.findall("`+", inner))


# Statements that circulate and are wrong, and what makes a sentence that names one right.
MYTHS_EN = {
    r"exponential": r"\b(never|not|no)\b",
    r"\bO\(1\)": r"\b(not|only|but|while|grows)\b",
    r"bit-?identical|bit for bit|exactly equal": r"\b(not|never|only)\b",
    r"an order of magnitude": r"\b(not|no|only)\b",
    r"linked list": r"\b(not|no)\b",
    r"depends? (only )?on that token alone": r"\b(only in layer 0|layer 0)\b",
    r"absolute (position )?encoding": r"\b(not|learned|GPT-2)\b",
}
MYTHS_ZH = {
    r"指数": "不|没|从来|并非",
    r"O\(1\)": "不|但|只|而",
    r"逐位相同|完全相等": "不|并非",
    r"数量级": "不|没|只",
}
# One word for one thing: what Chinese readers of this subject call it.
NOT_SAID_ZH = ("令牌", "代币", "标记化", "提示语", "关键值缓存", "钥匙", "預填充", "解碼", "自注意头")


def sentences(text: str, ends: str) -> list[str]:
    return [s for s in re.split(f"(?<=[{ends}])", text) if s.strip()]


@pytest.mark.parametrize("page", PAGES)
def test_no_myth_is_repeated(page):
    for language, myths, ends in (("en", MYTHS_EN, ".!?\n"), ("zh", MYTHS_ZH, "。！？\n")):
        for name, body in lessons.sections(language, page).items():
            for sentence in sentences(body, ends):
                if sentence.rstrip().endswith(("?", "？")):
                    continue  # asked, not said
                for myth, corrected in myths.items():
                    if re.search(myth, sentence, flags=re.I):
                        assert re.search(corrected, sentence, flags=re.I), f"{language}/{page}/{name}: {sentence}"


@pytest.mark.parametrize("page", PAGES)
def test_chinese_uses_the_terms_of_its_engineers(page):
    for name, body in lessons.sections("zh", page).items():
        assert not [w for w in NOT_SAID_ZH if w in body], name


def all_text(language: str) -> str:
    return "\n".join(body for page in PAGES for body in lessons.sections(language, page).values())


@pytest.mark.parametrize(
    ("topic", "en", "zh"),
    [
        ("growth is never exponential", r"never exponential", r"不是指数"),
        ("there is no Q cache, because a query asks once", r"quer(y|ies)[^.]* once", r"查询只|只问一次|没有 Q"),
        ("the last chosen token is not in the cache", r"has not been fed", r"还没有送入模型"),
        ("rows are work, not time", r"work, not of time|not time|time is not", r"不是时间|并不等于时间"),
        ("the mask keeps earlier K and V from changing", r"causal mask", r"因果掩码"),
        ("equal means within a tolerance", r"toleranc|within", r"容差|以内|误差"),
    ],
)
def test_what_people_ask_is_answered(topic, en, zh):
    assert re.search(en, all_text("en")), topic
    assert re.search(zh, all_text("zh")), topic
