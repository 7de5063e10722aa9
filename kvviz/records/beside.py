"""What stands in the variables at each station of a walk: shapes and values of one recorded pass.

Shapes are those of the pass with a batch of 1; values of K, V and weights are the record's, rounded to three digits.
Shape letters: L layers, H heads, Hkv KV heads, Tq queries of this pass, T positions stored after it, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvviz.records.run import Run
from kvviz.records.source import Walk
from kvviz.records.tokens import label

SHOWN = 4  # values of a row, ids of a prompt


@dataclass(frozen=True)
class Row:
    """A variable beside the lit line: its name in the source, and its shape or value."""

    name: str
    text: str
    kind: Literal["", "q", "k", "v", "new"] = ""


def shape(*sizes: int) -> str:
    """As Python writes a shape: (1, 8, 13, 32), and (9,) for one size alone."""
    return str(tuple(int(s) for s in sizes))


def digits(values: Sequence[float] | np.ndarray, shown: int = SHOWN) -> str:
    """The first few values, three significant digits each.

    >>> digits([0.12345, -3.0, 1e-5], 2)
    '0.123, -3, …'
    """
    told = ", ".join(f"{float(v):.3g}" for v in values[:shown])
    return f"{told}, …" if len(values) > shown else told


def beside(run: Run, step: int, layer: int, head: int, walk: Walk) -> dict[str, tuple[Row, ...]]:
    """For each station of the walk, what the variables of its line hold at that pass, in that layer and head."""
    m, record = run.model, run.steps[step]
    Tq, T, before, W = record.rows, record.length_after, record.length_before, m.width
    kv = head * m.kv_heads // m.heads
    ids = [f"{i} {label(run.pieces[i])}" for i in map(int, record.ids)]
    fed = ", ".join(ids if Tq <= SHOWN else [*ids[: SHOWN - 1], "…", ids[-1]])
    span = f"{int(record.positions[0])}" if Tq == 1 else f"{int(record.positions[0])} … {int(record.positions[-1])}"
    hidden = Row("hidden_states", shape(1, Tq, W))
    stored = f"{walk.argument}.get_seq_length()"
    held = Row(stored, f"{before}")
    q = Row("query_states", shape(1, m.heads, Tq, m.head_dim), "q")
    k_new = Row("key_states", shape(1, m.kv_heads, Tq, m.head_dim), "k")
    v_new = Row("value_states", shape(1, m.kv_heads, Tq, m.head_dim), "v")
    k_all, v_all = shape(1, m.kv_heads, T, m.head_dim), shape(1, m.kv_heads, T, m.head_dim)
    k_old = shape(1, m.kv_heads, before, m.head_dim) if before else shape(0)
    where = f"[0, {kv}, -1]"
    last_k = Row(f"key_states{where}", digits(record.k[layer, kv, -1]), "k")
    last_v = Row(f"value_states{where}", digits(record.v[layer, kv, -1]), "v")
    last_q = Row(f"query_states[0, {head}, -1]", digits(record.q[layer, head, -1]), "q")
    row = record.attention[layer, head, -1].astype(np.float32)
    most = int(row.argmax())
    candidates = [
        f"{label(run.pieces[int(i)])} {float(p):.3f}"
        for i, p in zip(record.top_ids[:3], record.top_probs[:3], strict=False)
    ]
    chosen = f"{record.chosen} {label(run.pieces[record.chosen])}"
    table: dict[str, tuple[Row, ...]] = {
        "cut": (
            Row("input_ids", shape(1, T)),
            Row('model_kwargs["use_cache"]', "True"),
            Row("next_sequence_length", "1", "new"),
            Row("input_ids[:, -1:]", fed),
        ),
        "loop": (
            Row("input_ids", shape(1, Tq), "new") if step else Row("input_ids", shape(1, T)),
            Row("position_ids", span),
            held,
        ),
        "feed": (Row("input_ids", shape(1, Tq), "new"), Row("input_ids[0]", fed), Row("position_ids", span)),
        "model": (Row("input_ids", shape(1, Tq), "new"), Row("input_ids[0]", fed), held),
        "embed": (Row("input_ids[0]", fed), Row("inputs_embeds", shape(1, Tq, W), "new")),
        "position": _position(run, Tq, span),
        "mask": (
            Row("causal_mask", shape(1, 1, Tq, T), "new"),
            Row("causal_mask[0, 0, -1].sum()", f"{m.visible(layer, T - 1)}"),
        ),
        "layers": (
            Row("self.layers" if m.positions == "rotary" else "self.h", f"{m.layers}"),
            Row("i", f"{layer}"),
            hidden,
        ),
        "block": (hidden, Row("layer_idx", f"{layer}"), Row("attn_output", shape(1, Tq, W), "new")),
        "qkv": (hidden, q, k_new, v_new, last_v)
        if m.positions == "rotary"
        else (
            Row("query_states", shape(1, Tq, W), "q"),
            Row("key_states", shape(1, Tq, W), "k"),
            Row("value_states", shape(1, Tq, W), "v"),
            Row(".view(…).transpose(1, 2)", shape(1, m.heads, Tq, m.head_dim)),
            *(last_q, last_k, last_v),
        ),
        "rotate": (Row("position_ids", span), q, k_new, last_q, last_k),
        "update": (k_new, Row("key_states =", k_all, "k"), v_new, Row("value_states =", v_all, "v")),
        "cache": (Row("layer_idx", f"{layer}"), Row("len(self.layers)", f"{m.layers}"), k_new, v_new),
        "append_k": (
            Row("self.keys", k_old, "k"),
            k_new,
            last_k,
            Row("self.keys =", k_all, "k"),
            Row("self.keys.nbytes", f"{record.kv_bytes // (2 * m.layers):,} bytes"),
        ),
        "append_v": (
            Row("self.values", k_old, "v"),
            v_new,
            last_v,
            Row("self.values =", v_all, "v"),
            Row("self.values.nbytes", f"{record.kv_bytes // (2 * m.layers):,} bytes"),
        ),
        "hand_back": (Row("self.keys", k_all, "k"), Row("self.values", v_all, "v")),
        "attend": (
            q,
            Row("key_states", k_all, "k"),
            Row("value_states", v_all, "v"),
            Row("softmax", shape(1, m.heads, Tq, T)),
            Row(f"softmax[0, {head}, -1]", digits(row)),
            Row(f"softmax[0, {head}, -1, {most}]", f"{row[most]:.3f}  {label(run.pieces[int(run.ids[most])])}"),
            Row("attn_output", shape(1, Tq, m.heads, m.head_dim), "new"),
        ),
        "residual": (hidden,),
        "back": (
            Row("last_hidden_state", shape(1, Tq, W)),
            Row(stored, f"{T}", "new"),
            Row("K, V", f"{record.kv_bytes:,} bytes"),
        ),
        "logits": (Row("logits", shape(1, 1, m.vocab_size), "new"), Row("softmax(logits)", ", ".join(candidates))),
        "choose": (Row("next_tokens", chosen, "new"), Row("p", f"{record.chosen_prob:.3f}")),
        "lengthen": (Row("input_ids", shape(1, T)), Row("input_ids =", shape(1, T + 1), "new")),
    }
    return {s.name: table[s.name] for s in walk.stations}


def _position(run: Run, Tq: int, span: str) -> tuple[Row, ...]:
    m = run.model
    if m.positions == "rotary":
        return Row("position_ids", span), Row("cos, sin", shape(1, Tq, m.head_dim), "new")
    return Row("position_ids", span), Row("position_embeds", shape(1, Tq, m.width), "new")
