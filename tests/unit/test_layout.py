"""The layout of the repository: who may import whom, where Streamlit and caches may be touched, how long a file is."""

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
SCRIPTS = [ROOT / "tests" / "run", ROOT / ".ci" / "run", *(ROOT / ".github").rglob("*.yml"), ROOT / "requirements.txt"]

# Who may import which part of kvviz, besides itself. Refusals are sentences that every part may raise.
EVERY = {"core", "theory", "models", "measure", "caches", "engine", "figures", "player", "ui", "features"}
ALLOWED = {
    "app.py": {"ui"},
    "pages": EVERY,
    "features": EVERY,
    "ui": EVERY,
    "player": {"core", "figures"},
    "figures": {"core", "theory", "features"},
    "bench": EVERY,
    "engine": {"models", "caches", "core", "theory", "measure", "features"},
    "caches": {"core", "theory"},
    "measure": {"models", "core", "features"},
    "models": {"core"},
    "core": {"theory"},
    "theory": set(),
    "cli.py": EVERY | {"bench"},
    "__main__.py": {"cli.py"},
    "__init__.py": set(),
}
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
            assert node.level == 0, f"{shown(path)} imports relatively"
            module = node.module or ""
            names |= {f"{module}.{a.name}" for a in node.names} if module == "kvviz" else {module}
    return names


def test_top_level_holds_what_the_design_names():
    listed = {p.name for p in ROOT.iterdir() if not p.name.startswith(".") and p.name not in ("__pycache__", "shared")}
    wanted = {"app.py", "pages", "kvviz", "tests", "requirements.txt", "README.md"}
    assert listed - {"LICENSE"} == wanted


@pytest.mark.parametrize("path", PYTHON, ids=shown)
def test_imports_follow_the_design(path):
    mine = part(path)
    parts = {m.split(".")[1] for m in imported(path) if m.startswith("kvviz.")} - {"__version__"}
    names = {f"{p}.py" if (ROOT / "kvviz" / f"{p}.py").exists() else p for p in parts}
    assert names - {mine} <= ALLOWED[mine], f"{shown(path)} imports {sorted(names)}"


def test_streamlit_is_imported_by_the_interface_alone():
    users = {part(p) for p in PYTHON if any(m.split(".")[0] == "streamlit" for m in imported(p))}
    assert users <= {"app.py", "pages", "ui", "player", "features"}


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("core", ("torch", "transformers", "streamlit")),
        ("theory", ("torch", "transformers", "streamlit", "numpy")),
        ("figures", ("torch", "transformers", "streamlit")),
        ("engine", ("streamlit", "plotly")),
        ("models.catalog", ("torch", "transformers", "streamlit")),
    ],
)
def test_a_package_brings_in_nothing_it_must_not(package, forbidden):
    """Really imported, every module of it, in a fresh interpreter: what comes along indirectly counts."""
    code = f"""
import importlib, pkgutil, sys
package = importlib.import_module("kvviz.{package}")
for m in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
    importlib.import_module(m.name)
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


def test_only_one_file_draws_fragments_and_only_one_style_sheets():
    """Both leave gaps where they stand bare: what the browser is left with is in tests/pages/test_fragment.py."""
    for name, where in (("fragment", "kvviz/ui/fragment.py"), ("html", "kvviz/ui/style.py")):
        callers = {
            shown(path)
            for path in PYTHON
            for n in ast.walk(tree(path))
            if isinstance(n, ast.Attribute) and n.attr == name and getattr(n.value, "id", "") == "st"
        }
        assert callers == {where}, f"st.{name} is called by {sorted(callers)}"


@pytest.mark.parametrize("path", [*PYTHON, *TESTS, *FRONT, ROOT / "tests" / "run"], ids=shown)
def test_files_are_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    limit = LENGTHS.get(path.name, LENGTHS.get(part(path), 400))
    assert lines <= limit, f"{shown(path)} has {lines} lines, {limit} are allowed"


@pytest.mark.parametrize("path", [*PYTHON, *FRONT], ids=shown)
def test_no_text_becomes_markup(path):
    """A learner's text is shown literally: no raw HTML from Python, none built from strings in the browser."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(tree(path)):
            assert getattr(node, "arg", None) != "unsafe_allow_html", shown(path)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "html":
                given = node.args[0]  # a style sheet that the code itself holds, with nothing put into it
                assert isinstance(given, ast.Constant) or (isinstance(given, ast.Name) and given.id.isupper())
    else:
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"):
            assert way not in source, f"{shown(path)}: {way}"


@pytest.mark.parametrize("path", FRONT, ids=shown)
def test_the_browser_is_sent_nowhere_else(path):
    source = path.read_text(encoding="utf-8")
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"'`)]*", source))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}, addresses
    assert "@import" not in source and "url(" not in source.replace("url(#", "").replace("url(data:", "")


@pytest.mark.parametrize("path", [*PYTHON, *TESTS, *FRONT, *PROSE, *SCRIPTS], ids=shown)
def test_no_paths_or_hosts_of_a_workplace(path):
    source = path.read_text(encoding="utf-8")
    paths = re.findall(r"(?<![\w.}/-])/" + r"(?:work|tmp|root|home)\b/?[\w.-]*", source)
    assert not paths, paths
    hosts = "|".join(
        ("py" + "pi", "python" + "hosted", "npm" + "js", "registry", "download-r2", "download.py" + "torch")
    )
    assert not re.findall(rf"\b(?:[\w-]+\.)*(?:{hosts})\.(?:org|com|io)\b", source)


@pytest.mark.parametrize("path", TESTS, ids=shown)
def test_no_test_is_skipped_or_excused(path):
    forbidden = {"skip", "skipif", "xfail", "importorskip"} - MAY_LEAVE_OUT.get(shown(path), set())
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
            assert node.attr not in forbidden, shown(path)


@pytest.mark.parametrize("path", [*PYTHON, *TESTS, *FRONT], ids=shown)
def test_nothing_is_left_to_do(path):
    assert not re.search(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b", path.read_text(encoding="utf-8"))


def test_requirements_are_exact_installed_and_used():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").split()
    pins = dict(line.split("==") for line in lines)
    assert all(version(name).split("+")[0] == wanted for name, wanted in pins.items())
    tops = {m.split(".")[0] for p in PYTHON for m in imported(p)} - set(sys.stdlib_module_names) - {"kvviz"}
    tops.add("accelerate")  # which transformers asks for when it reads a GGUF
    assert tops == set(pins), "requirements.txt and the imports of app.py, pages and kvviz differ"
    assert pins["torch"] == "2.13.0"
    assert pins["transformers"].startswith("5.24.") and pins["streamlit"].startswith("1.67.")


def test_streamlit_reports_nothing_and_watches_nothing():
    config = (ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8")
    assert "gatherUsageStats = false" in config
    assert 'fileWatcherType = "none"' in config
    assert "showEmailPrompt = false" in config  # else the first start on a machine waits for an answer
