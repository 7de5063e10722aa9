"""`python -m kvviz record`: the numbers it prints and the file it leaves."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys

import pytest

from kvviz import cli
from kvviz.core import storage
from kvviz.core.refusal import Refusal


def record(capsys, *arguments: str) -> dict:
    assert cli.main(["record", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("model", "per_token", "kv_heads"), [("story-gpt2", 12_288, 8), ("story-llama", 3_072, 2)])
def test_five_and_twenty(capsys, tmp_path, model, per_token, kv_heads):
    out = tmp_path / "run.npz"
    said = record(capsys, "Once upon a time", "--model", model, "--new", "20", "--compare", "--out", str(out))
    assert said["prompt_ids"] == [46, 1756, 499, 258, 571]
    assert len(said["new_ids"]) == 20
    assert said["cache_length"] == 24
    assert said["cache_bytes"] == 24 * per_token
    assert said["kv_shape"] == [6, 2, 1, kv_heads, 24, 32]
    assert said["rows_with_cache"] == 24
    assert said["rows_without_cache"] == 290
    assert 0 < said["max_abs_dlogit"] <= 1e-3
    assert said["tokens_equal"] is True
    assert said["tokens_compared"] == 20
    assert said["proofs_failed"] == 0
    assert said["text"] == "Once upon a time" + said["new_text"]
    run = storage.load(out)
    assert run.new_ids.tolist() == said["new_ids"]
    assert run.source == "run.npz"
    assert said["ttft_ms"] == run.steps[0].ms
    assert said["tpot_ms"] == statistics.median(s.ms for s in run.steps[1:])
    assert said["twin_ttft_ms"] == run.steps[0].twin.ms
    assert said["twin_tpot_ms"] == statistics.median(s.twin.ms for s in run.steps[1:])
    assert (said["device"], said["torch"]) == ("cpu", run.machine.torch)


def test_without_comparing(capsys):
    said = record(capsys, "Once upon a time", "--model", "story-gpt2", "--new", "12")
    assert (said["rows_with_cache"], said["rows_without_cache"]) == (16, 126)
    for name in ("max_abs_dlogit", "tokens_equal", "twin_ttft_ms", "twin_tpot_ms", "file"):
        assert said[name] is None


def test_one_token(capsys):
    said = record(capsys, "Once upon a time", "--model", "story-gpt2", "--new", "1", "--compare")
    assert said["cache_length"] == 5
    assert said["tpot_ms"] is said["twin_tpot_ms"] is None


def test_repeats_are_medians(capsys, tmp_path, monkeypatch):
    """Three runs whose passes take 1, 10 and 2 milliseconds are one recording of 2."""
    import itertools

    from kvviz.engine import feed as passes

    times = itertools.chain.from_iterable([t] * 6 for t in (1.0, 10.0, 2.0))
    real = passes.run_pass

    def timed(*args, **kwargs):
        done = real(*args, **kwargs)
        return done.__class__(done.logits, next(times), done.layers, done.hidden)

    from kvviz.engine import load, recording, session

    monkeypatch.setattr(session, "run_pass", timed)
    run = recording.record(load("story-gpt2"), "Once upon a time", 3, repeats=3)
    assert [s.ms for s in run.steps] == [2.0, 2.0, 2.0]
    assert [s.twin.ms for s in run.steps] == [2.0, 2.0, 2.0]
    assert run.repeats == 3
    assert len(run.created) == len("2026-01-31")


def test_sampling_and_folder(capsys, tiny_folder):
    arguments = ("Hey", "--model", str(tiny_folder), "--new", "6", "--temperature", "0.9", "--top-k", "50")
    one = record(capsys, *arguments, "--seed", "1")
    two = record(capsys, *arguments, "--seed", "2")
    again = record(capsys, *arguments, "--seed", "1")
    assert one["prompt_ids"] == [10814]
    assert one["new_ids"] == again["new_ids"] != two["new_ids"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["", "--model", "story-gpt2"], "Type at least one character"),
        (["a", "--model", "/nowhere/at/all"], "There is no folder /nowhere/at/all"),
        (["a", "--model", "gpt2"], "gpt2 is not on this machine's disk"),
        (["a", "--model", "story-gpt2", "--out", "/nowhere/run.npz"], "There is no folder /nowhere."),
        (["a", "--model", "story-gpt2", "--device", "abacus"], "abacus"),
        (["a", "--model", "story-gpt2", "--device", "cuda:99"], "cuda:99"),
        (["a", "--model", "story-gpt2", "--device", "nonsense"], "There is no device nonsense here. There is: "),
        (["a", "--model", "story-gpt2", "--dtype", "float8"], "float8 is not a number format"),
        (["a\ud800", "--model", "story-gpt2"], "half of a character"),
        (["a", "--model", "story-gpt2", "--new", "0"], "at least one new token"),
        (["a", "--model", "story-gpt2", "--new", "1025"], "New tokens that fit: 1,024, not 1,025"),
        (["a", "--model", "story-gpt2", "--temperature", "-1"], "temperature = -1.0 is out of range"),
    ],
)
def test_a_refusal_is_one_sentence_on_standard_error(capsys, arguments, sentence):
    assert cli.main(["record", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_a_file_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "run.npz").mkdir()
    assert cli.main(["record", "a", "--model", "story-gpt2", "--new", "1", "--out", str(tmp_path / "run.npz")]) == 1
    assert "run.npz" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_a_run_that_would_not_fit_is_refused_before_it_starts(story_gpt2):
    from kvviz.engine import recording

    with pytest.raises(Refusal) as refusal:
        recording.record(story_gpt2, "Once upon a time", 50, keep_bytes=100_000)
    assert refusal.value.code == "run_full"


def test_as_a_program(tmp_path, root, outside_log):
    out = tmp_path / "run.npz"
    command = [sys.executable, "-W", "error::FutureWarning", "-m", "kvviz", "record", "Once upon a time"]
    command += ["--model", "story-gpt2", "--new", "3", "--compare", "--out", str(out)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["cache_length"] == 7
    assert storage.load(out).length == 7
    assert not outside_log.exists() or outside_log.read_text() == ""


def test_bench_is_called_with_its_own_arguments(monkeypatch):
    from kvviz.bench import engine as bench

    seen = []
    monkeypatch.setattr(bench, "run", lambda chosen: seen.append(chosen.rounds))
    assert cli.main(["bench", "--rounds", "7"]) == 0
    assert seen == [7]


def test_bench_says_where_and_in_which_format(monkeypatch, capsys, tmp_path, tiny_gpt2):
    from kvviz.bench import engine as bench

    asked = []
    monkeypatch.setattr(bench, "random_gpt2_small", lambda **where: asked.append(where) or tiny_gpt2)
    monkeypatch.setattr(bench, "capture", lambda model, rounds: {"model": model.facts.name})
    file = tmp_path / "found.json"
    arguments = ["--device", "cpu", "--dtype", "bfloat16", "--only", "capture", "--json", str(file)]
    assert cli.main(["bench", *arguments]) == 0
    assert "(device cpu, dtype bfloat16)" in capsys.readouterr().out
    assert asked == [{"device": "cpu", "dtype": "bfloat16"}]
    found = json.loads(file.read_text())
    assert (found["dtype"], found["machine"]["device"]) == ("bfloat16", "cpu")


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_bench_refuses_a_folder_that_is_not_there_before_it_measures(monkeypatch, capsys, tmp_path, option):
    from kvviz.bench import engine as bench

    for name in ("load", "random_gpt2_small"):
        monkeypatch.setattr(bench, name, lambda *_, **__: pytest.fail("a model was loaded"))
    assert cli.main(["bench", option, str(tmp_path / "nowhere" / "found")]) == 2
    assert f"There is no folder {tmp_path / 'nowhere'}." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (["--only", "reads"], ["small"]),
        (["--only", "run"], ["small"]),
        (["--only", "figures"], ["story-gpt2"]),
        (["--only", "ladder", "--only", "reads", "--model", "story-llama"], ["story-llama"]),
        (["--only", "figures", "--only", "run", "--model", "story-llama"], ["story-gpt2", "small"]),
        (["--only", "token"], ["story-gpt2", "small"]),
    ],
)
def test_bench_loads_and_names_only_what_it_measures(monkeypatch, capsys, tmp_path, tiny_gpt2, arguments, loaded):
    from kvviz.bench import engine as bench

    seen: list[str] = []

    def named(name: str, **_):
        seen.append(name)
        return dataclasses.replace(tiny_gpt2, facts=dataclasses.replace(tiny_gpt2.facts, name=name))

    monkeypatch.setattr(bench, "load", named)
    monkeypatch.setattr(bench, "random_gpt2_small", lambda **_: named("small"))
    for job in ("capture", "whole_run", "new_token", "figures", "ladder", "reads"):
        monkeypatch.setattr(bench, job, lambda model, *_: model.facts.name)
    file = tmp_path / "found.json"
    assert cli.main(["bench", *arguments, "--rounds", "2", "--json", str(file)]) == 0
    assert seen == loaded
    header = capsys.readouterr().out.splitlines()[2]
    assert header == "; ".join(loaded)
    found = json.loads(file.read_text())
    assert "rounds" not in found  # of the ladder 2, of others 7: they say so themselves
    assert ("capture_rounds" in found) == ("run" in arguments or "token" in arguments)


def test_bench_on_a_device_that_is_not_there(capsys):
    assert cli.main(["bench", "--device", "nonsense"]) == 2
    said = capsys.readouterr()
    assert "There is no device nonsense here" in said.err
    assert "Traceback" not in said.err
