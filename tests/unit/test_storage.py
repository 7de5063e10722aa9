"""Recorded runs: what is saved comes back, and a file from anywhere does no harm."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import zipfile

import numpy as np
import pytest

from kvviz.core import Sampling, StepRecord, storage
from kvviz.core.refusal import Refusal
from kvviz.engine import Session


@pytest.fixture(scope="module")
def run(story_llama):
    session = Session(story_llama, "Dorothy and the Tin Woodman", Sampling(0.7, 20, 0.95, 5))
    return session.advance(6)


@pytest.fixture(scope="module")
def data(run) -> bytes:
    return storage.dumps(run)


def refused(code: str, file) -> Refusal:
    with pytest.raises(Refusal) as caught:
        storage.load(file)
    assert caught.value.code == code
    assert str(caught.value)
    return caught.value


def same(one: object, two: object) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(two, np.ndarray) and one.dtype == two.dtype and np.array_equal(one, two)
    return one == two and type(one) is type(two)


def assert_equal_runs(one, two, *, but=("source",)) -> None:
    for f in dataclasses.fields(one):
        if f.name == "steps":
            assert len(one.steps) == len(two.steps)
            for a, b in zip(one.steps, two.steps, strict=True):
                for g in dataclasses.fields(StepRecord):
                    assert same(getattr(a, g.name), getattr(b, g.name)), (a.index, g.name)
        elif f.name == "pieces":
            assert dict(one.pieces) == dict(two.pieces)
        elif f.name not in but:
            assert same(getattr(one, f.name), getattr(two, f.name)), f.name


def test_a_run_comes_back_whole(run, tmp_path):
    path = tmp_path / "tale.npz"
    storage.save(run, path)
    again = storage.load(path)
    assert_equal_runs(run, again)
    assert again.source == "tale.npz"
    assert again.recorded
    assert os.listdir(tmp_path) == ["tale.npz"]
    assert storage.load(path.read_bytes(), source="from a colleague").source == "from a colleague"


def test_a_run_without_pictures_comes_back_too(story_gpt2):
    bare = Session(story_gpt2, "Once upon a time", capture=False, compare=False).advance(4)
    again = storage.load(storage.dumps(bare))
    assert_equal_runs(bare, again)
    assert again.steps[0].predictions is None
    assert again.steps[0].twin is None


def test_a_run_of_one_pass(story_gpt2):
    one = Session(story_gpt2, "Once").advance(1)
    assert_equal_runs(one, storage.load(storage.dumps(one)))


def test_a_run_compared_in_part(story_gpt2):
    session = Session(story_gpt2, "Once upon a time", compare=False)
    session.advance(2)
    session.compare = True
    again = storage.load(storage.dumps(session.advance(4)))
    assert [s.twin is not None for s in again.steps] == [False, False, True, True]
    assert not again.compared


def test_nothing_to_save(story_gpt2):
    with pytest.raises(ValueError, match="no pass"):
        storage.dumps(Session(story_gpt2, "Once").run)


def test_text_is_kept_to_the_letter(story_gpt2):
    prompt = "<b>$x$</b>\n\t“你好” 🤗\u0000"
    again = storage.load(storage.dumps(Session(story_gpt2, prompt).advance(2)))
    assert again.prompt == prompt
    assert b"".join(again.pieces[i] for i in again.prompt_ids.tolist()) == prompt.encode()


def test_arrays_cannot_be_written_to(data):
    again = storage.load(data)
    with pytest.raises(ValueError, match="read-only"):
        again.steps[0].attention[0] = 0


def test_the_bundled_run():
    run = storage.bundled()
    assert run.source == "bundled"
    assert run.prompt == "Dorothy and the Tin Woodman"
    assert run.model.name == "story-gpt2"
    assert run.prompt_ids.tolist() == [35, 286, 2763, 272, 259, 341, 260, 3156, 849]
    assert len(run.steps) >= 64
    assert run.length == 9 + len(run.steps) - 1
    assert run.steps[-1].kv_bytes == run.length * 12_288
    assert run.sampling.greedy
    assert run.repeats >= 5
    assert run.compared
    assert all(p.verdict == "holds" for s in run.steps for p in s.proofs)
    assert run.machine.torch.startswith("2.13")
    assert run.machine.transformers.startswith("5.24")
    assert run.created
    assert storage.BUNDLED.stat().st_size < 1_500_000
    assert storage.bundled() is run


def test_the_bundled_run_is_what_the_model_does(story_gpt2):
    run = storage.bundled()
    now = Session(story_gpt2, run.prompt, compare=False).advance(len(run.steps))
    assert now.new_ids.tolist() == run.new_ids.tolist()
    for then, today in zip(run.steps, now.steps, strict=True):
        np.testing.assert_allclose(then.attention, today.attention, atol=2e-3)
        np.testing.assert_allclose(then.k, today.k, atol=2e-2)
        np.testing.assert_allclose(then.top_probs, today.top_probs, atol=1e-4)


def test_the_induction_head_of_the_bundled_run():
    """Layer 3 head 2 at the second `man` looks at the `·and` that followed the first one."""
    run = storage.bundled()
    second_man = [i for i, t in enumerate(run.ids) if run.pieces[int(t)] == b"man"][1]
    row = run.attention_row(3, 2, second_man)
    assert run.pieces[int(run.ids[int(row.argmax())])] == b" and"
    assert int(row.argmax()) == 9  # right after the prompt's own `man`
    assert float(row.max()) == pytest.approx(0.65, abs=0.05)


# ---- files that are not what they say ----


def edited(data: bytes, **arrays: object) -> bytes:
    """The same file with some arrays replaced (or dropped: None)."""
    loaded = dict(np.load(io.BytesIO(data)))
    for name, array in arrays.items():
        if array is None:
            del loaded[name]
        else:
            loaded[name] = array
    out = io.BytesIO()
    np.savez_compressed(out, **loaded)
    return out.getvalue()


def headed(data: bytes, change) -> bytes:
    """The same file with its header changed by `change(header)`."""
    header = json.loads(np.load(io.BytesIO(data))["header"].tobytes())
    change(header)
    return edited(data, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))


def test_an_unchanged_file_passes_through_the_editor(run, data):
    assert_equal_runs(run, storage.load(headed(data, lambda h: None)))


def test_a_file_from_before_scales_and_windows_were_kept(run, data):
    def older(header):
        assert header["model"].pop("attention_scale") == pytest.approx(32**-0.5)
        assert header["model"].pop("windows") == []

    opened = storage.load(headed(data, older))
    assert_equal_runs(run, opened)
    assert opened.model.attention_scale == 32**-0.5
    assert opened.model.windows == ()


def test_scales_and_windows_are_kept(run, data):
    windows = (0, 0, 4, 4, 4, 4)
    model = dataclasses.replace(run.model, attention_scale=0.0625, windows=windows)
    opened = storage.load(storage.dumps(dataclasses.replace(run, model=model)))
    assert opened.model == model
    assert type(opened.model.windows) is tuple
    assert [opened.model.visible(1, i) for i in (0, 3, 4, 13)] == [1, 4, 5, 14]
    assert [opened.model.visible(2, i) for i in (0, 3, 4, 13)] == [1, 4, 4, 4]
    assert [run.model.visible(2, i) for i in (0, 13)] == [1, 14]


def test_not_a_recording(tmp_path):
    refused("file_missing", tmp_path / "nowhere.npz")
    refused("file_foreign", b"")
    refused("file_foreign", b"PK\x03\x04 and then nonsense")
    refused("file_foreign", "Grüße".encode() * 100)
    out = io.BytesIO()
    np.savez(out, weights=np.zeros(3))
    refused("file_foreign", out.getvalue())
    out = io.BytesIO()
    np.savez(out, header=np.frombuffer(b"\xff\xfe", dtype=np.uint8))
    refused("file_damaged", out.getvalue())


def test_a_pickle_is_never_opened(data, tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "was-here"),))

    refused("file_damaged", edited(data, chosen=np.array([Evil()], dtype=object)))
    assert not (tmp_path / "was-here").exists()


def test_versions(data):
    refusal = refused("file_version", headed(data, lambda h: h.update(version=99)))
    assert refusal.values == {"version": "99", "known": 1}
    refused("file_foreign", headed(data, lambda h: h.update(format="something else")))


def test_a_zip_bomb_is_not_unpacked(data):
    bomb = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            if name == "attention.npy":
                with target.open(name, "w", force_zip64=True) as out:
                    for _ in range(600):
                        out.write(bytes(2**20))
            else:
                target.writestr(name, source.read(name))
    assert len(bomb.getvalue()) < 5_000_000
    refused("file_too_big", bomb.getvalue())


def test_a_size_that_lies_unpacks_no_more_than_it_says(data):
    """The directory says 1,000 bytes where 64 MiB are packed."""
    liar = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(liar, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, bytes(2**26) if name == "attention.npy" else source.read(name))
        target.getinfo("attention.npy").file_size = 1000  # written into the directory at the end
    with pytest.raises(Refusal) as refusal:
        storage.load(liar.getvalue())
    assert refusal.value.code in ("file_foreign", "file_damaged")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_way_of_packing_that_numpy_never_uses(data, method):
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(packed, "w", method) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    refused("file_damaged", packed.getvalue())


def test_a_header_that_promises_too_much(data):
    """An array of a few bytes that says it has 2^60 entries is not believed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            raw = source.read(name)
            if name == "ms.npy":
                made = io.BytesIO()
                np.lib.format.write_array_header_1_0(made, {"descr": "<f8", "fortran_order": False, "shape": (2**60,)})
                raw = made.getvalue() + bytes(8)
            target.writestr(name, raw)
    assert refused("file_damaged", out.getvalue()).values["part"] == "ms"


CONTRADICTIONS = {
    "a missing array": lambda d: edited(d, q=None),
    "an array too many": lambda d: edited(d, extra=np.zeros(1)),
    "another dtype": lambda d: edited(d, ms=np.zeros(6, dtype=np.float32)),
    "one dimension more": lambda d: edited(d, chosen=np.zeros((6, 1), dtype=np.int64)),
    "a step short": lambda d: edited(d, ms=np.ones(5)),
    "not a number": lambda d: edited(d, ms=np.array([1, 2, np.nan, 4, 5, 6])),
    "negative time": lambda d: edited(d, ms=np.array([1, 2, -3.0, 4, 5, 6])),
    "too little attention": lambda d: edited(d, attention=np.zeros(7, dtype=np.float16)),
    "other lengths": lambda d: edited(d, lengths=np.zeros((6, 2), dtype=np.int64)),
    "a negative pass": lambda d: edited(d, fed=np.array([9, 1, 1, 1, 1, -1])),
    "ids without pieces": lambda d: edited(d, piece_ids=np.zeros(1, dtype=np.int64), piece_ends=np.array([1]),
                                           piece_bytes=np.zeros(1, dtype=np.uint8)),
    "pieces that run backwards": lambda d: edited(d, piece_ends=np.load(io.BytesIO(d))["piece_ends"][::-1].copy()),
    "another prompt": lambda d: edited(d, prompt_ids=np.array([1], dtype=np.int64)),
    "no layers": lambda d: headed(d, lambda h: h["model"].update(layers=0)),
    "more layers": lambda d: headed(d, lambda h: h["model"].update(layers=7)),
    "a huge head": lambda d: headed(d, lambda h: h["model"].update(head_dim=10**30)),
    "a text for a number": lambda d: headed(d, lambda h: h["model"].update(heads="8")),
    "a number for a text": lambda d: headed(d, lambda h: h.update(prompt=5)),
    "a field too many": lambda d: headed(d, lambda h: h["machine"].update(password="x")),
    "a field too few": lambda d: headed(d, lambda h: h["sampling"].pop("seed")),
    "an endless name": lambda d: headed(d, lambda h: h["model"].update(name="x" * 1000)),
    "an unknown proof": lambda d: headed(d, lambda h: h["proofs"][0].append(["magic", "holds", 1, 1])),
    "an unknown verdict": lambda d: headed(d, lambda h: h["proofs"][0][0].__setitem__(1, "<b>yes</b>")),
    "a twin of nothing": lambda d: headed(d, lambda h: h["twins"].__setitem__(0, {})),
    "a time that is no number": lambda d: headed(d, lambda h: h["twins"][1].update(ms=float("nan"))),
    "twins without comparing": lambda d: headed(d, lambda h: h.update(compared=False)),
    "no header fields": lambda d: headed(d, lambda h: h.pop("model")),
    "rope of another kind": lambda d: headed(d, lambda h: h["model"].update(positions="<script>")),
    "a window in half of the layers": lambda d: headed(d, lambda h: h["model"].update(windows=[8, 8, 8])),
    "a window below zero": lambda d: headed(d, lambda h: h["model"].update(windows=[0, 0, 0, 0, 0, -8])),
    "a window in words": lambda d: headed(d, lambda h: h["model"].update(windows="eight!")),
    "a window that is no number": lambda d: headed(d, lambda h: h["model"].update(windows=[True] * 6)),
    "a scale that turns attention over": lambda d: headed(d, lambda h: h["model"].update(attention_scale=-0.1)),
    "a limit below zero": lambda d: headed(d, lambda h: h["model"].update(max_positions=-1)),
    "no repeats": lambda d: headed(d, lambda h: h.update(repeats=0)),
    "an embedding too small": lambda d: headed(d, lambda h: h["model"].update(vocab_size=10)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_file_that_contradicts_itself(data, name):
    refused("file_damaged", CONTRADICTIONS[name](data))


def test_damage_anywhere_is_a_refusal_or_harmless(run, data):
    """A thousand bytes flipped one at a time, and every kind of cut: never another exception."""
    rng = np.random.default_rng(0)
    loaded = 0
    for at in rng.integers(0, len(data), 1000):
        broken = bytearray(data)
        broken[at] ^= int(rng.integers(1, 256))
        try:
            storage.load(bytes(broken))
            loaded += 1
        except Refusal as refusal:
            assert refusal.code.startswith("file_")
    assert loaded < 300  # such bytes exist (zip's unused fields), but checksums see the rest
    for at in rng.integers(0, len(data), 50):
        with pytest.raises(Refusal):
            storage.load(data[:at])


def test_saving_keeps_the_old_file_when_it_fails(run, tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    path.write_bytes(b"old")
    monkeypatch.setattr(storage, "dumps", lambda run: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        storage.save(run, path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["run.npz"]
