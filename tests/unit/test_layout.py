"""The layout of the repository: what stands where, where caches may be touched, how long a file is.

Who may import whom is held by import-linter (`.importlinter`) for the package, and here for app.py and pages/.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = sorted([ROOT / "app.py", *(ROOT / "pages").glob("*.py"), *(ROOT / "kvviz").rglob("*.py")])
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FRONT = sorted(p for s in ("js", "css", "html") for p in (ROOT / "kvviz").rglob(f"*.{s}"))
PROSE = sorted([ROOT / "README.md", *(ROOT / "kvviz").rglob("*.md")])
SCRIPTS = [
    ROOT / ".importlinter",
    ROOT / ".ruff.toml",
    ROOT / "tests" / "run",
    ROOT / ".ci" / "run",
    *(ROOT / ".github").rglob("*.yml"),
    ROOT / "requirements.txt",
]

LENGTHS = {"pages": 150, "session.py": 300}
# Tests of a file that tests/run fetches may be left out, with a sentence, where it is not there; --all fails then.
MAY_LEAVE_OUT = {"tests/unit/test_smollm2.py": {"skip"}}


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), shown(path))


def part(path: Path) -> str:
    """`pages`, `ui`, `engine`, …, or the file's name where it stands alone."""
    inside = path.relative_to(ROOT / "kvviz" if path.is_relative_to(ROOT / "kvviz") else ROOT)
    return inside.parts[0]


def imported(path: Path) -> set[str]:
    """Full names of the modules that a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{a.name}" for a in node.names} if node.module == "kvviz" else {node.module or ""}
    return names


def test_top_level_holds_what_the_design_names():
    listed = {p.name for p in ROOT.iterdir() if not p.name.startswith(".") and p.name not in ("__pycache__", "shared")}
    wanted = {"app.py", "pages", "kvviz", "tests", "requirements.txt", "README.md"}
    assert listed - {"LICENSE"} == wanted


def test_pages_bring_parts_together_and_nothing_else():
    """They are scripts, in no package: import-linter doesn't see them. A page shows its own subject."""
    for path in (p for p in PYTHON if not p.is_relative_to(ROOT / "kvviz")):
        outside = {m for m in imported(path) if m.split(".")[0] not in {"kvviz", *sys.stdlib_module_names}}
        assert {m.split(".")[0] for m in outside} <= {"streamlit"}, f"{shown(path)} imports {sorted(outside)}"
        parts = {tuple(m.split(".")[1:3]) for m in imported(path) if m.startswith("kvviz.")}
        allowed = {"ui", "features"} if path.name == "app.py" else {"core", "theory", "player", "ui", "features"}
        assert {p[0] for p in parts} <= allowed, f"{shown(path)} imports {sorted(parts)}"
        assert {p[1] for p in parts if p[0] == "features" and len(p) > 1} <= {path.stem}, shown(path)


@pytest.mark.parametrize(
    ("packages", "forbidden"),
    [
        ("core", ("torch", "transformers", "streamlit", "plotly")),
        ("theory", ("torch", "transformers", "streamlit", "plotly", "numpy")),
        ("features.*.spec features.*.record models.catalog", ("torch", "transformers", "streamlit", "plotly")),
        ("figures features.*.figure", ("torch", "transformers", "streamlit")),
        ("measure models caches engine features.*.measure", ("streamlit", "plotly")),
    ],
)
def test_a_package_brings_in_nothing_it_must_not(packages, forbidden):
    """Really imported, every module of it, in a fresh interpreter: what comes along indirectly counts."""
    found = [p for name in packages.split() for p in (ROOT / "kvviz").glob(name.replace(".", "/") + "*")]
    files = {f for p in found for f in ([p] if p.suffix == ".py" else p.rglob("*.py"))}
    modules = sorted(".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in files)
    assert modules
    code = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
print(*(n for n in {forbidden!r} if n in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_only_cache_api_and_caches_touch_cache_classes():
    """transformers' cache API moves between minor versions: one file follows it."""
    home = {"kvviz/engine/cache_api.py"}
    for path in PYTHON:
        if shown(path) in home or part(path) == "caches":
            continue
        assert not any(m.startswith("transformers.cache_utils") for m in imported(path)), shown(path)
        for node in ast.walk(tree(path)):
            names = {getattr(node, "attr", None), getattr(node, "id", None), getattr(node, "arg", None)}
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transformers"):
                names |= {a.name for a in node.names}
            touched = {n for n in names if n and (re.fullmatch(r"\w*(Static|Dynamic|Quantized)Cache", n))}
            touched |= names & {"past_key_values", "key_cache", "value_cache", "to_legacy_cache", "get_seq_length"}
            assert not touched, f"{shown(path)}: {touched}"


def test_files_are_short():
    for path in (*PYTHON, *TESTS, *FRONT, ROOT / "tests" / "run"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        limit = LENGTHS.get(path.name, LENGTHS.get(part(path), 400))
        assert lines <= limit, f"{shown(path)} has {lines} lines, {limit} are allowed"


def test_no_text_becomes_markup():
    """A learner's text is shown literally: no raw HTML from Python, none built from strings in the browser."""
    for path in PYTHON:
        for node in ast.walk(tree(path)):
            assert getattr(node, "arg", None) != "unsafe_allow_html", shown(path)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "html":
                given = node.args[0]  # a style sheet that the code itself holds, with nothing put into it
                written = isinstance(given, ast.Constant) or (isinstance(given, ast.Name) and given.id.isupper())
                assert written, shown(path)
    for path in FRONT:
        source = path.read_text(encoding="utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"):
            assert way not in source, f"{shown(path)}: {way}"


def test_the_browser_is_sent_nowhere_else():
    for path in FRONT:
        source = path.read_text(encoding="utf-8")
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"'`)]*", source))
        own = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
        assert addresses <= own, f"{shown(path)}: {addresses - own}"
        fetched = source.replace("url(#", "").replace("url(data:", "")
        assert "@import" not in fetched and "url(" not in fetched, shown(path)


def test_no_paths_or_hosts_of_a_workplace():
    names = ("py" + "pi", "python" + "hosted", "npm" + "js", "registry", "download-r2", "download.py" + "torch")
    host = rf"\b(?:[\w-]+\.)*(?:{'|'.join(names)})\.(?:org|com|io)\b"
    folder = r"(?<![\w.}/-])/" + r"(?:work|tmp|root|home)\b/?[\w.-]*"
    for path in (*PYTHON, *TESTS, *FRONT, *PROSE, *SCRIPTS):
        source = path.read_text(encoding="utf-8")
        found = re.findall(folder, source) + re.findall(host, source)
        assert not found, f"{shown(path)}: {found}"


def test_no_test_is_skipped_or_excused():
    for path in TESTS:
        forbidden = {"skip", "skipif", "xfail", "importorskip"} - MAY_LEAVE_OUT.get(shown(path), set())
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
                assert node.attr not in forbidden, shown(path)


def test_nothing_is_left_to_do():
    """In Python's comments ruff holds it; here in the browser's files, in prose and in scripts."""
    for path in (*FRONT, *PROSE, *SCRIPTS):
        assert not re.search(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b", path.read_text(encoding="utf-8")), shown(path)


def test_requirements_are_exact_installed_and_used():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").split()
    pins = dict(line.split("==") for line in lines)
    assert all(version(name).split("+")[0] == wanted for name, wanted in pins.items())
    browser = ROOT / "kvviz" / "bench" / "browser"  # benchmarks that drive Chromium, as the browser tests do
    tops = {m.split(".")[0] for p in PYTHON if not p.is_relative_to(browser) for m in imported(p)}
    tops -= {*sys.stdlib_module_names, "kvviz"}
    tops.add("accelerate")  # which transformers asks for when it reads a GGUF
    assert tops == set(pins), "requirements.txt and the imports of app.py, pages and kvviz differ"
    assert pins["torch"] == "2.13.0"
    assert pins["transformers"].startswith("5.24.") and pins["streamlit"].startswith("1.67.")


def test_streamlit_reports_nothing_and_watches_nothing():
    config = (ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8")
    assert "gatherUsageStats = false" in config
    assert 'fileWatcherType = "none"' in config
    assert "showEmailPrompt = false" in config  # else the first start on a machine waits for an answer


def test_threads_are_begun_in_one_place():
    """One job machine: whoever wants work done beside the page goes through it."""
    found = set()
    for path in (p for p in PYTHON if p.is_relative_to(ROOT / "kvviz")):
        for node in ast.walk(tree(path)):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            if name in ("Thread", "Timer", "ThreadPoolExecutor", "start_new_thread", "to_thread", "run_in_executor"):
                found.add(shown(path))
    assert found == {"kvviz/core/background.py"}


def test_one_place_says_whether_a_result_is_about_a_wish():
    """`State.answers` may be shown; it is compared in the job alone."""
    found = [
        f"{shown(path)}:{node.lineno}"
        for path in PYTHON
        if shown(path) != "kvviz/ui/job.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Attribute) and side.attr == "answers"
    ]
    assert found == []
