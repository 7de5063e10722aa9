"""A run as one .npz file: plain arrays and a JSON header, read without pickle and checked on the way in.

Arrays of all passes lie end to end; the header holds what is not an array. A file may come from anybody,
so nothing in it is believed: names, sizes, shapes, ranges and lengths are compared before use.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.core.facts import MachineFacts, ModelFacts, Sampling
from kvviz.core.refusal import Refusal
from kvviz.core.run import Run
from kvviz.core.step import Proof, StepRecord, TwinPass
from kvviz.core.untrusted import Damaged, facts, model_facts, need

VERSION = 1
LARGEST = 512 * 2**20  # bytes, packed or unpacked
MAX_STEPS = 100_000
BUNDLED = Path(__file__).parent / "bundled" / "story-gpt2.npz"

# name -> (dtype, dimensions); every file holds exactly these
_ARRAYS: dict[str, tuple[str, int]] = {
    "header": ("uint8", 1),  # JSON in UTF-8
    "prompt_ids": ("int64", 1),  # (P,)
    "ids": ("int64", 1),  # fed, all passes: (ΣTq,)
    "positions": ("int64", 1),  # (ΣTq,)
    "fed": ("int64", 1),  # Tq of each pass: (S,)
    "kept": ("int64", 1),  # query rows recorded of each pass: Tq, or 0 without capture
    "lengths": ("int64", 2),  # cache length before and after: (S, 2)
    "kv": ("int64", 2),  # kv_shape, kv_tensors, kv_bytes: (S, 8)
    "attention": ("float16", 1),  # (Σ L·H·kept·T,)
    "q": ("float16", 4),  # (L, H, Σkept, D)
    "k": ("float16", 4),  # (L, Hkv, Σkept, D)
    "v": ("float16", 4),  # (L, Hkv, Σkept, D)
    "top_ids": ("int64", 2),  # (S, C)
    "top_probs": ("float32", 2),  # (S, C)
    "chosen": ("int64", 1),  # (S,)
    "chosen_prob": ("float64", 1),  # (S,)
    "is_end": ("bool", 1),  # (S,)
    "ms": ("float64", 1),  # (S,)
    "predictions": ("int64", 1),  # (P,) or (0,)
    "prediction_probs": ("float32", 1),  # the same
    "piece_ids": ("int64", 1),  # (n,)
    "piece_ends": ("int64", 1),  # (n,): where each token's bytes end in `piece_bytes`
    "piece_bytes": ("uint8", 1),
}


def save(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the run; a file of that name is replaced only when the new one is whole."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(dumps(run))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def dumps(run: Run) -> bytes:
    """The file's bytes. Raises ValueError for a run with no pass in it."""
    if not run.steps:
        raise ValueError("a run with no pass in it cannot be kept")
    steps = run.steps
    pieces = sorted(run.pieces.items())
    header = {
        "format": "kvviz run",
        "version": VERSION,
        "key": run.key,
        "prompt": run.prompt,
        "model": dataclasses.asdict(run.model),
        "machine": dataclasses.asdict(run.machine),
        "sampling": dataclasses.asdict(run.sampling),
        "compared": run.compared,
        "repeats": run.repeats,
        "created": run.created,
        "notes": list(run.notes),
        "proofs": [[[p.name, p.verdict, p.value, p.limit] for p in s.proofs] for s in steps],
        "twins": [None if s.twin is None else dataclasses.asdict(s.twin) for s in steps],
    }
    best = steps[0].predictions is not None
    arrays = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        "prompt_ids": run.prompt_ids,
        "ids": np.concatenate([s.ids for s in steps]),
        "positions": np.concatenate([s.positions for s in steps]),
        "fed": np.array([len(s.ids) for s in steps]),
        "kept": np.array([s.q.shape[2] for s in steps]),
        "lengths": np.array([[s.length_before, s.length_after] for s in steps]),
        "kv": np.array([[*s.kv_shape, s.kv_tensors, s.kv_bytes] for s in steps]),
        "attention": np.concatenate([s.attention.ravel() for s in steps]),
        "q": np.concatenate([s.q for s in steps], axis=2),
        "k": np.concatenate([s.k for s in steps], axis=2),
        "v": np.concatenate([s.v for s in steps], axis=2),
        "top_ids": np.stack([s.top_ids for s in steps]),
        "top_probs": np.stack([s.top_probs for s in steps]),
        "chosen": run.new_ids,
        "chosen_prob": np.array([s.chosen_prob for s in steps]),
        "is_end": np.array([s.is_end for s in steps]),
        "ms": np.array([s.ms for s in steps]),
        "predictions": steps[0].predictions if best else np.zeros(0),
        "prediction_probs": steps[0].prediction_probs if best else np.zeros(0),
        "piece_ids": np.array([i for i, _ in pieces]),
        "piece_ends": np.cumsum([len(b) for _, b in pieces]),
        "piece_bytes": np.frombuffer(b"".join(b for _, b in pieces), dtype=np.uint8),
    }
    out = io.BytesIO()
    np.savez_compressed(out, **{name: a.astype(_ARRAYS[name][0], copy=False) for name, a in arrays.items()})
    return out.getvalue()


def load(file: str | os.PathLike[str] | bytes, *, source: str | None = None) -> Run:
    """The run in a file, or in a file's bytes; `source` labels it, the file's name by default.

    Raises Refusal "file_missing", "file_too_big", "file_foreign" (not made by kvviz), "file_version",
    "file_damaged" {part}.
    """
    if isinstance(file, bytes):
        data, name = file, "?"
    else:
        path = Path(file)
        if not path.is_file():
            raise Refusal("file_missing", path=str(path))
        if path.stat().st_size > LARGEST:
            raise Refusal("file_too_big", bytes=path.stat().st_size, limit=LARGEST)
        data, name = path.read_bytes(), path.name
    if len(data) > LARGEST:
        raise Refusal("file_too_big", bytes=len(data), limit=LARGEST)
    try:
        arrays = _unpack(data)
        return _assemble(arrays, source if source is not None else name)
    except Damaged as part:
        raise Refusal("file_damaged", part=str(part)) from None
    except Refusal:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise Refusal("file_foreign") from None  # no zip file, or not one that NumPy writes
    except Exception:  # what a crafted file can raise in zipfile, in NumPy's reader and in JSON has no end
        raise Refusal("file_damaged", part="header") from None


@functools.cache
def bundled() -> Run:
    """The recorded run that ships with kvviz."""
    return load(BUNDLED, source="bundled")


def _unpack(data: bytes) -> dict[str, np.ndarray]:
    """The arrays by name, each of the dtype and size it says, no more than LARGEST in all."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {m.filename: m for m in archive.infolist()}
        if "header.npy" not in members:
            raise Refusal("file_foreign")
        total = sum(m.file_size for m in members.values())
        if total > LARGEST:
            raise Refusal("file_too_big", bytes=total, limit=LARGEST)
        if members.keys() != {f"{name}.npy" for name in _ARRAYS}:
            raise Damaged("names")
        return {name: _array(_read(archive, members[f"{name}.npy"]), name) for name in _ARRAYS}


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """A member's bytes. Its stated size may be a lie: no more than that is unpacked, and only by zlib, which stops."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Damaged(member.filename)
    with archive.open(member) as stream:
        data = stream.read(member.file_size)
    if len(data) != member.file_size:
        raise Damaged(member.filename)
    return data


def _array(raw: bytes, name: str) -> np.ndarray:
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    wanted, dimensions = _ARRAYS[name]
    if dtype != np.dtype(wanted) or fortran or len(shape) != dimensions:
        raise Damaged(name)
    body = raw[stream.tell() :]
    if math.prod(shape) * dtype.itemsize != len(body):  # before anything of that size is made
        raise Damaged(name)
    return np.frombuffer(body, dtype=dtype).reshape(shape)  # read-only


def _assemble(a: dict[str, np.ndarray], source: str) -> Run:
    try:
        header = json.loads(a["header"].tobytes().decode("utf-8"))
    except ValueError:
        raise Refusal("file_foreign") from None
    if not isinstance(header, dict) or header.get("format") != "kvviz run":
        raise Refusal("file_foreign")
    if header.get("version") != VERSION:
        raise Refusal("file_version", version=str(header.get("version"))[:20], known=VERSION)
    model, machine = model_facts(header["model"]), facts(MachineFacts, header["machine"], "machine")
    sampling = facts(Sampling, header["sampling"], "sampling")
    for name, kind in {"key": str, "prompt": str, "created": str, "compared": bool, "repeats": int}.items():
        need(type(header[name]) is kind, name)
    need(header["repeats"] >= 1 and machine.threads >= 1, "repeats")
    need(isinstance(header["notes"], list) and all(isinstance(n, str) for n in header["notes"]), "notes")
    pieces = _pieces(a)
    steps = tuple(_steps(a, header, model))
    P, fed = len(a["prompt_ids"]), {int(i) for i in a["ids"]}
    need(np.array_equal(a["prompt_ids"], steps[0].ids), "prompt_ids")
    need(np.array_equal(a["ids"][P:], a["chosen"][:-1]), "ids")
    shown = fed | {int(i) for n in ("chosen", "top_ids", "predictions") for i in a[n].ravel()}
    need(shown <= pieces.keys(), "piece_ids")
    need(all(0 <= i < model.vocab_size for i in shown), "ids")
    need(header["compared"] == all(s.twin is not None for s in steps), "compared")
    return Run(
        key=header["key"][:64],
        prompt=header["prompt"],
        prompt_ids=a["prompt_ids"],
        model=model,
        machine=machine,
        sampling=sampling,
        pieces=pieces,
        steps=steps,
        compared=header["compared"],
        source=source,
        repeats=header["repeats"],
        created=header["created"][:40],
        notes=tuple(header["notes"]),
    )


def _pieces(a: dict[str, np.ndarray]) -> dict[int, bytes]:
    ends, raw = a["piece_ends"].tolist(), a["piece_bytes"].tobytes()
    starts = [0, *ends[:-1]]
    need(len(ends) == len(a["piece_ids"]) and bool(ends) and ends[-1] == len(raw), "piece_ends")
    need(all(0 <= s <= e for s, e in zip(starts, ends, strict=True)), "piece_ends")
    return {int(i): raw[s:e] for i, s, e in zip(a["piece_ids"], starts, ends, strict=True)}


def _steps(a: dict[str, np.ndarray], header: dict, model: ModelFacts) -> list[StepRecord]:
    L, H, Hkv, D = model.layers, model.heads, model.kv_heads, model.head_dim
    S, rows, kept = len(a["fed"]), int(a["fed"].sum()), int(a["kept"].sum())
    need(0 < S <= MAX_STEPS and bool((a["fed"] > 0).all()) and bool((a["fed"][1:] == 1).all()), "fed")
    need(bool(((a["kept"] == 0) | (a["kept"] == a["fed"])).all()), "kept")
    need(len(a["ids"]) == rows and np.array_equal(a["positions"], np.arange(rows)), "positions")
    for name in ("kept", "lengths", "kv", "top_ids", "top_probs", "chosen", "chosen_prob", "is_end", "ms"):
        need(len(a[name]) == S, name)
    after = a["fed"].cumsum()
    need(np.array_equal(a["lengths"], np.stack([after - a["fed"], after], axis=1)), "lengths")
    need(np.array_equal(a["kv"][:, :6], [[L, 2, 1, Hkv, t, D] for t in after]), "kv")
    need(a["q"].shape == (L, H, kept, D) and a["k"].shape == a["v"].shape == (L, Hkv, kept, D), "q")
    need(a["top_ids"].shape == a["top_probs"].shape and a["top_ids"].shape[1] > 0, "top_ids")
    best = len(a["predictions"])
    need(best in (0, a["fed"][0]) and len(a["prediction_probs"]) == best, "predictions")
    for name in ("attention", "q", "k", "v", "top_probs", "chosen_prob", "ms", "prediction_probs"):
        need(bool(np.isfinite(a[name]).all()), name)
    need(bool((a["ms"] >= 0).all()), "ms")
    need(bool((a["kv"] >= 0).all()), "kv")
    need(len(header["proofs"]) == len(header["twins"]) == S, "proofs")
    sizes = L * H * a["kept"] * after
    need(len(a["attention"]) == int(sizes.sum()), "attention")
    steps, row, cell, start = [], 0, 0, 0
    for s in range(S):
        n, Tq, T, size = int(a["kept"][s]), int(a["fed"][s]), int(after[s]), int(sizes[s])
        steps.append(
            StepRecord(
                index=s,
                phase="prefill" if s == 0 else "decode",
                ids=a["ids"][start : start + Tq],
                positions=a["positions"][start : start + Tq],
                length_before=T - Tq,
                length_after=T,
                kv_shape=tuple(a["kv"][s, :6].tolist()),
                kv_tensors=int(a["kv"][s, 6]),
                kv_bytes=int(a["kv"][s, 7]),
                attention=a["attention"][cell : cell + size].reshape(L, H, n, T),
                q=a["q"][:, :, row : row + n],
                k=a["k"][:, :, row : row + n],
                v=a["v"][:, :, row : row + n],
                top_ids=a["top_ids"][s],
                top_probs=a["top_probs"][s],
                chosen=int(a["chosen"][s]),
                chosen_prob=float(a["chosen_prob"][s]),
                is_end=bool(a["is_end"][s]),
                ms=float(a["ms"][s]),
                proofs=tuple(_proof(p) for p in header["proofs"][s]),
                twin=None if header["twins"][s] is None else facts(TwinPass, header["twins"][s], "twins"),
                predictions=a["predictions"] if s == 0 and best else None,
                prediction_probs=a["prediction_probs"] if s == 0 and best else None,
            )
        )
        row, cell, start = row + n, cell + size, start + Tq
    return steps


def _proof(raw: Any) -> Proof:
    need(isinstance(raw, list) and len(raw) == 4, "proofs")
    name, verdict, value, limit = raw
    need(name in ("tokens", "logits", "same_kv", "bytes", "length"), "proofs")
    need(verdict in ("holds", "rounding", "fails"), "proofs")
    need(all(type(x) in (int, float) and math.isfinite(x) for x in (value, limit)), "proofs")
    return Proof(name, verdict, value, limit)
