"""What stands in the variables at each station of a walk: shapes and values of one recorded pass.

Shapes are those of the pass with a batch of 1; values of K, V and weights are the record's, rounded to three digits.
Shape letters: L layers, H heads, Hkv KV heads, Tq queries of this pass, T positions stored after it, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvviz.core.run import Run
from kvviz.core.tokens import label
from kvviz.features.source.record.walk import Walk

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
    q = Row("query_states", shape(1, m.heads, Tq, m.head_dim), "q")
    k_new = Row("key_states", shape(1, m.kv_heads, Tq, m.head_dim), "k")
    v_new = Row("value_states", shape(1, m.kv_heads, Tq, m.head_dim), "v")
    all_rows = shape(1, m.kv_heads, T, m.head_dim)
    old_rows = shape(1, m.kv_heads, before, m.head_dim) if before else shape(0)
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
    llama = m.positions == "rotary"
    layers = f"{m.layers}"
    index = "decoder_layer.self_attn.layer_idx" if llama else "i"
    carried = f'model_kwargs["{walk.argument}"].get_seq_length()'
    split = shape(1, m.heads, Tq, m.head_dim)
    half = f"{record.kv_bytes // (2 * m.layers):,} bytes"
    table: dict[str, tuple[Row, ...]] = {
        "cut": (
            Row("input_ids", shape(1, T)),
            Row('model_kwargs["use_cache"]', "True"),
            Row("next_sequence_length =", "1", "new"),
            Row("input_ids[:, -1:]", fed),
        ),
        "loop": (Row("input_ids", shape(1, T)), Row(carried, f"{before}"))
        if step == 0
        else (
            Row("input_ids", shape(1, T)),
            Row('model_inputs["input_ids"]', shape(1, Tq)),
            Row('model_inputs["position_ids"]', span),
            Row(carried, f"{before}"),
        ),
        "feed": (
            Row("input_ids", shape(1, Tq)),
            Row("input_ids[0]", fed),
            Row('model_inputs["position_ids"]', span),
        ),
        "model": (Row("input_ids", shape(1, Tq)), Row("input_ids[0]", fed), Row(stored, f"{before}")),
        "embed": (Row("input_ids[0]", fed), Row("inputs_embeds =", shape(1, Tq, W), "new")),
        "position": (
            Row("position_ids", span),
            Row("position_embeddings[0] =", shape(1, Tq, m.head_dim), "new")
            if llama
            else Row("position_embeds =", shape(1, Tq, W), "new"),
        ),
        "mask": (
            Row("causal_mask =", shape(1, 1, Tq, T), "new"),
            Row("causal_mask[0, 0, -1].sum() =", f"{m.visible(layer, T - 1)}"),
        ),
        "layers": (Row("self.layers" if llama else "self.h", layers), Row(index, f"{layer}"), hidden),
        "block": (
            hidden,
            Row("self.self_attn.layer_idx" if llama else "self.attn.layer_idx", f"{layer}"),
            Row("hidden_states =" if llama else "attn_output =", shape(1, Tq, W), "new"),
        ),
        "qkv": (hidden, Row("query_states", split, "q"), Row("key_states =", k_new.text, "k"))
        if llama
        else (
            hidden,
            Row("query_states =", shape(1, Tq, W), "q"),
            Row("key_states =", shape(1, Tq, W), "k"),
            Row("value_states =", shape(1, Tq, W), "v"),
            Row("….view(…).transpose(1, 2)", split),
        ),
        "rotate": (
            Row("cos", shape(1, Tq, m.head_dim)),
            q,
            k_new,
            Row(f"{last_q.name} =", last_q.text, "q"),
            Row(f"{last_k.name} =", last_k.text, "k"),
        ),
        "update": (
            *(k_new, v_new, last_k, last_v),
            Row("key_states =", all_rows, "k"),
            Row("value_states =", all_rows, "v"),
        ),
        "cache": (Row("layer_idx", f"{layer}"), Row("self.layers[layer_idx]", "DynamicLayer"), k_new, v_new),
        "append_k": (
            Row("self.keys", old_rows, "k"),
            k_new,
            last_k,
            Row("self.keys =", all_rows, "k"),
            Row("self.keys.nbytes =", half),
        ),
        "append_v": (
            Row("self.values", old_rows, "v"),
            v_new,
            last_v,
            Row("self.values =", all_rows, "v"),
            Row("self.values.nbytes =", half),
        ),
        "hand_back": (Row("self.keys", all_rows, "k"), Row("self.values", all_rows, "v")),
        "attend": (
            q,
            last_q,
            Row("key_states", all_rows, "k"),
            Row("value_states", all_rows, "v"),
            Row("softmax(…)", shape(1, m.heads, Tq, T)),
            Row(f"…[0, {head}, -1]", digits(row)),
            Row(f"…[0, {head}, -1, {most}]", f"{row[most]:.3f}  {label(run.pieces[int(run.ids[most])])}"),
            Row("attn_output =", shape(1, Tq, m.heads, m.head_dim), "new"),
        ),
        "residual": (Row("residual", shape(1, Tq, W)), Row("hidden_states =", shape(1, Tq, W), "new")),
        "back": (hidden, Row(stored, f"{T}"), Row("K, V", f"{record.kv_bytes:,} bytes")),
        "logits": (Row("logits =", shape(1, 1, m.vocab_size), "new"), Row("softmax(logits)", ", ".join(candidates))),
        "choose": (Row("next_tokens =", chosen, "new"), Row("softmax(logits)[…]", f"{record.chosen_prob:.3f}")),
        "lengthen": (Row("input_ids", shape(1, T)), Row("input_ids =", shape(1, T + 1), "new")),
    }
    return {s.name: table[s.name] for s in walk.stations}
