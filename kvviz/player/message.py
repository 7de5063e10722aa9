"""What the player is sent: one blob a rerun, holding only what its browser side lacks.

A message is one blob for the run as it is, then one for each pass that was made ahead (see `pack`). Layout of a blob,
little-endian: uint32 length of the header, the header as UTF-8 JSON, zeros up to a multiple
of 8, then the arrays, each starting at a multiple of 8 from the end of the header's padding. The
header's "arrays" says what each one is and which passes (or rows) it covers.

Kinds of array, all float16:
  "norms"      (rows, L, 2)       length of each K and V row of a pass over all KV heads
  "headnorms"  (rows, Hkv, 2)     the same for one layer, head by head
  "attention"  one layer and one head, or all H heads of a pass side by side when "head" is -1; for
               prefill the causal triangle (see `prefill_attention`), for decode the row of T weights
  "q", "k", "v"  (rows, D)        one head's own rows
"""

from __future__ import annotations

import copy
import json
import math
import struct
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kvviz.core import Run, StepRecord
from kvviz.core.tokens import character_groups, label

LIMIT = 850_000  # bytes, never more: with the script that Streamlit sends along a message keeps under 1 MB
READY = 150_000  # bytes of passes made ahead that go along
FILL = 400_000  # bytes up to which a message also carries what will be wanted next
AHEAD = 8_000_000  # bytes of attention that are sent before anyone asks: all layers, else all heads of one
WINDOW = 256  # newest rows and columns of prefill's square that can be in view
_RESERVE = 24_000  # bytes left for the header's own fields and the array directory


@dataclass(frozen=True)
class Size:
    """How far a run goes in each direction: what a browser may speak of."""

    passes: int
    length: int  # positions held after the last pass
    layers: int
    heads: int

    @classmethod
    def of(cls, run: Run) -> Size:
        return cls(len(run.steps), run.length, run.model.layers, run.model.heads)

    def with_passes(self, passes: int) -> Size:
        """The same run when it has `passes` passes, none of them prefill but the first."""
        return replace(self, passes=passes, length=self.length + passes - self.passes)


@dataclass
class Have:
    """What the browser holds of one run: passes, or rows for slabs, counted from the start."""

    passes: int = 0
    headnorms: dict[int, int] = field(default_factory=dict)  # layer -> passes
    attention: dict[tuple[int, int], int] = field(default_factory=dict)  # (layer, head) -> passes
    slabs: dict[tuple[int, int], int] = field(default_factory=dict)  # (layer, head) -> rows
    language: str = ""
    offered: int = 0  # passes it may show: these, and those sent ahead of being asked for

    def back_to(self, passes: int) -> None:
        """It holds no more than these: what was sent since did not reach it, or has not yet."""
        self.passes, self.slabs = passes, {}
        for held in (self.headnorms, self.attention):
            held.update({unit: min(n, passes) for unit, n in held.items()})

    def take(self, raw: Any, size: Size) -> None:
        """A browser's own account of what it holds. Anything malformed counts as not held."""
        said = raw if isinstance(raw, dict) else {}
        passes, units = size.passes, size.layers * size.heads
        self.passes, self.language = _count(said.get("passes"), passes), str(said.get("language", ""))
        self.headnorms = {n: min(held, passes) for n, held in _pairs(said.get("headnorms"), size.layers, 1)}
        self.attention = {
            divmod(unit, size.heads): min(held, passes) for unit, held in _pairs(said.get("attention"), units, 1)
        }
        self.slabs = {
            divmod(unit, size.heads): min(held, size.length) for unit, held in _pairs(said.get("slabs"), units, 1)
        }


@dataclass(frozen=True)
class Focus:
    """Where the learner stands, hence what has to be there first."""

    layer: int = 0
    head: int = 0
    slab: bool = False  # Q, K, V of this head are on screen


def _count(value: Any, most: int) -> int:
    return min(max(0, value), most) if isinstance(value, int) and not isinstance(value, bool) else 0


def _pairs(raw: Any, units: int, least: int) -> Iterable[tuple[int, int]]:
    """A flat list [unit, n, unit, n, ...] with every unit in range and n >= least."""
    if not isinstance(raw, list) or len(raw) > 2 * units:
        return
    for unit, n in zip(raw[::2], raw[1::2], strict=False):
        if isinstance(unit, int) and isinstance(n, int) and 0 <= unit < units and n >= least:
            yield unit, n


def number(value: float) -> float | str:
    """A float as JSON can hold it: infinities and NaN by name."""
    value = float(value)
    return value if math.isfinite(value) else str(value)


def pass_facts(run: Run, step: StepRecord) -> dict[str, Any]:
    """One pass without its tensors. Token texts are labels, already safe to show as text."""

    def name(token: int) -> str:
        piece = run.pieces.get(int(token))
        return f"#{int(token)}" if piece is None else label(piece)

    facts: dict[str, Any] = {
        "rows": step.rows,
        "position": int(step.positions[-1]),
        "T": step.length_after,
        "before": step.length_before,
        "shape": list(step.kv_shape),
        "tensors": step.kv_tensors,
        "bytes": step.kv_bytes,
        "ms": number(step.ms),
        "id": int(step.chosen),
        "token": name(step.chosen),
        "p": number(step.chosen_prob),
        "end": bool(step.is_end),
        "top": [[name(i), number(p)] for i, p in zip(step.top_ids, step.top_probs, strict=True)],
        "best": int(step.top_ids[0]) == int(step.chosen) if len(step.top_ids) else True,
        "proofs": [[p.name, p.verdict, number(p.value), number(p.limit)] for p in step.proofs],
    }
    if step.twin is not None:
        t = step.twin
        facts["twin"] = {"ms": number(t.ms), "rows": t.rows, "token": name(t.chosen), "same": bool(t.same_token)}
        facts["twin"] |= {"dl": number(t.max_abs_dlogit), "dkv": number(t.max_abs_dkv), "margin": number(t.margin)}
    if step.predictions is not None:
        probs = step.prediction_probs if step.prediction_probs is not None else np.ones(step.rows)
        facts["predictions"] = [[name(i), round(float(p), 4)] for i, p in zip(step.predictions, probs, strict=True)]
    return facts


def _half(a: np.ndarray) -> np.ndarray:
    """Float16, with what overflows held at its largest value so that a picture still shows it."""
    return np.clip(a, -65504, 65504).astype("<f2")


def norms(step: StepRecord) -> np.ndarray:
    """(Tq, L, 2) float16: root of the summed squares of a position's K, then V, over KV heads and D."""
    pair = np.stack([step.k, step.v]).astype(np.float32)  # (2, L, Hkv, Tq, D)
    return _half(np.sqrt((pair * pair).sum(axis=(2, 4))).transpose(2, 1, 0))


def headnorms(step: StepRecord, layer: int) -> np.ndarray:
    """(Tq, Hkv, 2) float16: the same for one layer, head by head."""
    pair = np.stack([step.k[layer], step.v[layer]]).astype(np.float32)  # (2, Hkv, Tq, D)
    return _half(np.sqrt((pair * pair).sum(axis=3)).transpose(2, 1, 0))


def prefill_attention(weights: np.ndarray) -> np.ndarray:
    """(H, Tq, T) causal weights of prefill as (H, n) float16, only what can be in view.

    With W = min(P, WINDOW) and a = P - W: the triangle of rows a .. P-1 over columns a .. i, row by
    row; if a > 0, then for those rows the sum of the columns before a, and the whole last row.
    """
    P = weights.shape[1]
    a = P - min(P, WINDOW)
    square = weights[:, a:, a:]
    i, j = np.tril_indices(P - a)
    parts = [square[:, i, j]]  # (H, W(W+1)/2)
    if a:
        parts += [weights[:, a:, :a].astype(np.float32).sum(axis=2), weights[:, -1, :]]
    return np.concatenate([_half(p) for p in parts], axis=1)


class _Passes:
    """Encodings of passes, as long as the passes live. By identity: two sessions never mix theirs."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[StepRecord], bytes, bytes]] = {}

    def get(self, run: Run, index: int) -> tuple[bytes, bytes]:
        """(JSON of the facts, bytes of the norms)."""
        step = run.steps[index]
        key = id(step)
        found = self._kept.get(key)
        if found is None or found[0]() is not step:
            facts = json.dumps(pass_facts(run, step), ensure_ascii=False, separators=(",", ":")).encode()
            gone = weakref.ref(step, lambda ref: self._drop(key, ref))
            found = self._kept[key] = (gone, facts, norms(step).tobytes())
        return found[1:]

    def _drop(self, key: int, ref: weakref.ref[StepRecord]) -> None:
        found = self._kept.get(key)
        if found is not None and found[0] is ref:
            del self._kept[key]


_passes = _Passes()


class _Blob:
    """Arrays and their directory, under a byte limit."""

    def __init__(self, used: int) -> None:
        self.used = used
        self.parts: list[bytes] = []
        self.directory: list[dict[str, Any]] = []
        self._offset = 0

    def add(self, kind: str, start: int, stop: int, data: bytes, layer: int = -1, head: int = -1) -> None:
        entry = {"kind": kind, "layer": layer, "head": head, "from": start, "to": stop}
        self.directory.append(entry | {"offset": self._offset, "bytes": len(data)})
        padded = data + b"\0" * (-len(data) % 8)
        self.parts.append(padded)
        self._offset += len(padded)
        self.used += len(padded) + 110


def _attention_sizes(run: Run, start: int) -> list[int]:
    """Bytes of one head's attention for passes start, start+1, ..."""
    P, W = run.P, min(run.P, WINDOW)
    first = W * (W + 1) + (2 * (W + P) if P > W else 0)
    return [first if s == 0 else 2 * run.steps[s].length_after for s in range(start, len(run.steps))]


def _add_attention(blob: _Blob, run: Run, have: Have, layer: int, heads: range, limit: int) -> bool:
    """Add the passes that these heads of a layer lack, as many as fit. True when none is lacking."""
    held = min(have.attention.get((layer, h), 0) for h in heads)
    stop, room = held, limit - blob.used
    for size in _attention_sizes(run, held):
        if size * len(heads) > room:
            break
        room -= size * len(heads)
        stop += 1
    if stop > held:
        whole = slice(heads.start, heads.stop)
        parts = []
        for s in run.steps[held:stop]:
            w = s.attention[layer, whole]  # (heads, Tq, T)
            parts.append(prefill_attention(w) if s.index == 0 else _half(w[:, 0]))
        data = b"".join(p.tobytes() for p in parts)
        blob.add("attention", held, stop, data, layer, -1 if len(heads) > 1 else heads.start)
        have.attention.update({(layer, h): stop for h in heads})
    return stop == len(run.steps)


def _add_headnorms(blob: _Blob, run: Run, have: Have, layer: int, limit: int) -> bool:
    held = have.headnorms.get(layer, 0)
    steps = run.steps[held:]
    size = sum(s.rows for s in steps) * run.model.kv_heads * 4
    if not steps or blob.used + size > limit:
        return not steps
    blob.add("headnorms", held, len(run.steps), b"".join(headnorms(s, layer).tobytes() for s in steps), layer)
    have.headnorms[layer] = len(run.steps)
    return True


def _add_slab(blob: _Blob, run: Run, have: Have, layer: int, head: int, limit: int) -> bool:
    """Rows of Q, K and V that one head lacks, as many as fit. True when none is lacking."""
    held, D = have.slabs.get((layer, head), 0), run.model.head_dim
    stop = min(run.length, held + max(0, (limit - blob.used - 400) // (6 * D)))
    if stop > held:
        kv = head * run.model.kv_heads // run.model.heads
        first = 0 if held < run.P else held - run.P + 1  # the pass that row `held` came from
        skip = held if first == 0 else 0
        for kind, pick in (("q", head), ("k", kv), ("v", kv)):
            rows = np.concatenate([getattr(s, kind)[layer, pick] for s in run.steps[first:]])
            blob.add(kind, held, stop, _half(rows[skip : skip + stop - held]).tobytes(), layer, head)
        have.slabs[layer, head] = stop
    return stop == run.length


def _add_ahead(blob: _Blob, run: Run, have: Have, focus: Focus) -> None:
    """Add what will be wanted next, the nearest first, while the message stays small."""
    L, H, one_head = run.model.layers, run.model.heads, run.length**2  # bytes of a triangle of halves
    layers = sorted(range(L), key=lambda n: abs(n - focus.layer)) if L * H * one_head <= AHEAD else [focus.layer]
    for layer in layers if H * one_head <= AHEAD else ():
        held = [have.attention.get((layer, h), 0) for h in range(H)]
        lacking = [range(h, h + 1) for h in range(H) if held[h] < len(run.steps)]
        groups = [range(H)] if len(set(held)) == 1 else lacking
        complete = [_add_attention(blob, run, have, layer, g, FILL) for g in groups]
        if not (_add_headnorms(blob, run, have, layer, FILL) and all(complete)):
            return
    for head in range(H) if focus.slab else ():
        if not _add_slab(blob, run, have, focus.layer, head, FILL):
            return


def identity(run: Run) -> str:
    """What tells runs apart in a browser tab: a saved run and the live one that went on share their key."""
    return f"{run.key}|{run.source}"


def shared_characters(run: Run) -> list[list[Any]]:
    """[start, end, label] of tokens that only together make whole characters."""
    pieces = [run.pieces.get(int(i), b"") for i in run.ids]
    try:
        for piece in pieces:
            piece.decode()
    except UnicodeDecodeError:
        return [[a, b, text] for a, b, text in character_groups(pieces) if b - a > 1]
    return []


def build(run: Run, have: Have, focus: Focus, header: dict[str, Any]) -> bytes:
    """The next message for a browser that holds `have`, which is brought up to date.

    `header` is what the caller adds (words, place, switches). At most LIMIT bytes; when something on
    screen did not fit, the header's "more" is true and the browser asks again.
    """
    m, N = run.model, len(run.steps)
    start = min(have.passes, N)  # a browser may have shown passes that Python takes back, to make them again
    words = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    prompt = b"[]"
    if start == 0:
        pieces = [label(run.pieces[int(i)]) for i in run.prompt_ids]
        ids = [int(i) for i in run.prompt_ids]
        prompt = json.dumps([pieces, ids], ensure_ascii=False, separators=(",", ":")).encode()
    blob = _Blob(len(words) + len(prompt) + _RESERVE)

    texts, rows = [], []
    for index in range(start, N):
        text, data = _passes.get(run, index)
        if blob.used + len(text) + len(data) + sum(map(len, rows)) > LIMIT:
            break
        texts.append(text)
        rows.append(data)
        blob.used += len(text) + 1
    stop = start + len(texts)
    if rows:
        blob.add("norms", start, stop, b"".join(rows))
    have.passes = max(have.passes, stop)

    done = stop == N
    if done and N:
        done = _add_attention(blob, run, have, focus.layer, range(focus.head, focus.head + 1), LIMIT)
        done = _add_headnorms(blob, run, have, focus.layer, LIMIT) and done
        if focus.slab:
            done = _add_slab(blob, run, have, focus.layer, focus.head, LIMIT) and done
        if done:
            _add_ahead(blob, run, have, focus)

    facts = {
        "run": identity(run), "from": start, "to": stop, "total": N, "more": not done, "P": run.P, "window": WINDOW,
        "model": {
            "name": m.name, "L": m.layers, "H": m.heads, "Hkv": m.kv_heads, "D": m.head_dim, "width": m.width,
            "scale": m.attention_scale, "vocab": m.vocab_size, "positions": m.positions, "max": m.max_positions,
            "dtype": m.dtype, "bytes": m.value_bytes, "random": m.random_weights,
        },
        "sampling": {"temperature": run.sampling.temperature, "greedy": run.sampling.greedy},
        "device": run.machine.device_name, "repeats": run.repeats, "recorded": run.recorded,
        "groups": shared_characters(run), "arrays": blob.directory,
    }  # fmt: skip
    if any(m.windows):
        facts["model"]["windows"] = m.windows
    own = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()
    text = b'%s,"caller":%s,"prompt":%s,"passes":[%s]}' % (own[:-1], words, prompt, b",".join(texts))
    text += b" " * (-(len(text) + 4) % 8)
    return b"".join([struct.pack("<I", len(text)), text, *blob.parts])


def build_ahead(runs: Iterable[Run], have: Have, focus: Focus, header: dict[str, Any]) -> list[bytes]:
    """Blobs for a run with one pass more each, as they would be built one after the other; `have` stays as it is."""
    have, blobs, used = copy.deepcopy(have), [], 0
    for run in runs:
        held = have.passes
        blob = build(run, have, focus, header)
        used += len(blob)
        if used > READY or have.passes != held + 1:
            break
        blobs.append(blob)
    return blobs


def pack(blobs: list[bytes]) -> bytes:
    """Blobs as one message: one after the other, then uint32 length of each, and last uint32 how many."""
    return b"".join([*blobs, struct.pack(f"<{len(blobs) + 1}I", *map(len, blobs), len(blobs))])
