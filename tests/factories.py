"""Runs made of random numbers, for tests of what reads records. Their attention is the softmax of
their own Q and K under the causal mask and the layers' windows, so scores, weights and slabs agree with one another."""

from __future__ import annotations

import dataclasses

import numpy as np

from kvviz.core import MachineFacts, ModelFacts, Proof, Run, Sampling, StepRecord, TwinPass

MACHINE = MachineFacts("cpu", "Test CPU", 2, "3.11", "2.13.0", "5.24.0", "Linux x86_64")
WORDS = [
    *(" the", " who", " and", " Wood", "man", " Dorothy", " said", ",", ".", " in", " a", " little", " wind"),
    *(" princess", " was", " to", " of", " it", "\n", " F", "or", "othy"),
]

# Runs that the player is shown on: by name, what `make_run` takes.
PLAYER_CASES: dict[str, dict] = {
    "six": {"layers": 6, "heads": 8, "head_dim": 32, "P": 9, "N": 68},
    "twelve": {"layers": 12, "heads": 12, "head_dim": 64, "P": 64, "N": 65},
    "thirty": {"layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64, "P": 20, "N": 20, "positions": "rotary"},
    "shared": {"layers": 6, "heads": 8, "kv_heads": 2, "head_dim": 32, "P": 9, "N": 12, "positions": "rotary"},
    "window": {"layers": 6, "heads": 8, "P": 12, "N": 12, "windows": (8, 8, 0, 8, 8, 0), "key": "window"},
    "long": {"layers": 6, "heads": 8, "head_dim": 32, "P": 180, "N": 24},
    "thousand": {"layers": 2, "heads": 4, "head_dim": 16, "P": 1000, "N": 4},
    "markup": {
        "prompt": [
            *(b"<b>", b"bold", b"</", b"b>", b"<script>", b"alert(1)", b"</script>"),
            *(b" $x$", b" *y*", b" :smile:", b" [z](w)"),
        ],
        "chosen": [b"<i>", b"{token}", b"[q](w)", b"\xf0\x9f", b"\x99\x82", b"\n\n"],
        "N": 7,
    },
    "alone": {"layers": 6, "heads": 8, "head_dim": 32, "P": 9, "N": 20, "compared": False},
    "one": {"layers": 1, "heads": 1, "head_dim": 8, "P": 1, "N": 1},
    "none": {"layers": 6, "heads": 8, "head_dim": 32, "P": 9, "N": 0},
}


def model_facts(layers: int, heads: int, kv_heads: int, head_dim: int, **other: object) -> ModelFacts:
    facts: dict[str, object] = {
        "name": "random", "architecture": "GPT2LMHeadModel", "layers": layers, "heads": heads,
        "kv_heads": kv_heads, "head_dim": head_dim, "width": heads * head_dim, "vocab_size": len(WORDS),
        "positions": "learned", "trained_positions": 1024, "max_positions": 1024, "parameters": 1000,
        "dtype": "float32", "value_bytes": 4, "weight_bytes": 4000, "eos_id": None, "random_weights": True,
    }  # fmt: skip
    return ModelFacts(**(facts | other))  # type: ignore[arg-type]


def make_run(
    layers: int = 6,
    heads: int = 8,
    kv_heads: int | None = None,
    head_dim: int = 32,
    P: int = 9,
    N: int = 20,
    *,
    prompt: list[bytes] | None = None,
    chosen: list[bytes] | None = None,
    compared: bool = True,
    seed: int = 0,
    key: str | None = None,
    **facts: object,
) -> Run:
    """A run of N passes. `prompt` and `chosen` name tokens by their bytes; else words are drawn."""
    rng = np.random.default_rng(seed)
    pieces: dict[int, bytes] = {i: w.encode() for i, w in enumerate(WORDS)}
    ids_of = {b: i for i, b in pieces.items()}

    def identify(piece: bytes) -> int:
        if piece not in ids_of:
            ids_of[piece] = len(ids_of)
            pieces[ids_of[piece]] = piece
        return ids_of[piece]

    prompt_ids = [identify(p) for p in prompt] if prompt else list(rng.integers(0, len(WORDS), P))
    run = Run(
        key=key or f"random-{layers}-{heads}-{kv_heads}-{len(prompt_ids)}-{seed}-{compared}",
        prompt=b"".join(pieces[int(i)] for i in prompt_ids).decode("utf-8", "replace"),
        prompt_ids=np.array(prompt_ids, dtype=np.int64),
        model=model_facts(layers, heads, kv_heads or heads, head_dim, **facts),
        machine=MACHINE,
        sampling=Sampling(),
        pieces=pieces,
        compared=compared,
    )
    for index in range(N):
        named = identify(chosen[index]) if chosen and index < len(chosen) else None
        step = next_step(run, named=named, compared=compared, seed=seed)
        run = run.with_step(step, pieces)
    return run


def next_step(run: Run, *, named: int | None = None, compared: bool | None = None, seed: int = 0) -> StepRecord:
    """The pass after the last one of `run`. It chooses `named`, or one of WORDS."""
    m, index, before = run.model, len(run.steps), run.length
    rng = np.random.default_rng([seed, index])
    rows = run.P if index == 0 else 1
    T = before + rows
    q = rng.normal(size=(m.layers, m.heads, rows, m.head_dim)).astype(np.float16)
    k = rng.normal(size=(m.layers, m.kv_heads, rows, m.head_dim)).astype(np.float16)
    v = rng.normal(size=(m.layers, m.kv_heads, rows, m.head_dim)).astype(np.float16)
    depth = (0.5 + np.arange(m.layers) / m.layers)[:, None, None, None]
    k, v = (k * depth).astype(np.float16), (v * depth * 0.7).astype(np.float16)
    held = [s.k for s in run.steps]
    all_k = np.concatenate([*held, k], axis=2).astype(np.float32)  # (L, Hkv, T, D)
    all_k = np.repeat(all_k, m.heads // m.kv_heads, axis=1)  # (L, H, T, D)
    scores = q.astype(np.float32) @ all_k.transpose(0, 1, 3, 2) * m.attention_scale  # (L, H, rows, T)
    keys, queries = np.arange(T)[None, :], before + np.arange(rows)[:, None]
    widths = np.array(m.windows or [0] * m.layers)[:, None, None, None]  # (L, 1, 1, 1)
    visible = (keys <= queries) & ((widths == 0) | (keys > queries - widths))  # (L, 1, rows, T)
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    top_ids = rng.choice(len(WORDS), 10, replace=False)
    top_probs = np.sort(rng.dirichlet(np.full(12, 0.5)))[::-1][:10].astype(np.float32)
    if named is not None:
        top_ids = np.concatenate([[named], top_ids[top_ids != named]])[:10]
    kv_bytes = 2 * m.layers * m.kv_heads * m.head_dim * T * m.value_bytes
    proofs = [Proof("bytes", "holds", kv_bytes, kv_bytes), Proof("length", "holds", T, T)]
    twin = None
    if compared if compared is not None else run.compared:
        delta = float(rng.uniform(1e-6, 3e-5))
        twin = TwinPass(2.0 + T / 50, T, int(top_ids[0]), True, delta, delta / 2, 1.0)
        proofs = [
            Proof("tokens", "holds", 0, 0),
            Proof("logits", "holds", delta, 1e-3),
            Proof("same_kv", "holds", delta / 2, 1e-3),
            *proofs,
        ]
    return StepRecord(
        index=index,
        phase="prefill" if index == 0 else "decode",
        ids=run.prompt_ids if index == 0 else run.ids[-1:],
        positions=np.arange(before, T),
        length_before=before,
        length_after=T,
        kv_shape=(m.layers, 2, 1, m.kv_heads, T, m.head_dim),
        kv_tensors=2 * m.layers,
        kv_bytes=kv_bytes,
        attention=weights.astype(np.float16),
        q=q,
        k=k,
        v=v,
        top_ids=top_ids.astype(np.int64),
        top_probs=top_probs,
        chosen=int(top_ids[0]),
        chosen_prob=float(top_probs[0]),
        is_end=False,
        ms=2.0 + float(rng.uniform(0, 0.3)),
        proofs=tuple(proofs),
        twin=twin,
        predictions=rng.integers(0, len(WORDS), rows) if index == 0 else None,
        prediction_probs=rng.uniform(0.05, 0.9, rows).astype(np.float32) if index == 0 else None,
    )


def failing(run: Run, step: int, verdict: str = "fails") -> Run:
    """The run with a twin that chose another token at `step`, and proofs that say so."""
    bad = run.steps[step]
    other = int(bad.top_ids[1])
    proofs = (Proof("tokens", verdict, 1, 0), Proof("logits", verdict, 0.25, 1e-3), *bad.proofs[2:])
    twin = dataclasses.replace(bad.twin, chosen=other, same_token=False, max_abs_dlogit=0.25)
    steps = list(run.steps)
    steps[step] = dataclasses.replace(bad, twin=twin, proofs=proofs)
    return dataclasses.replace(run, steps=tuple(steps), key=f"{run.key}-{verdict}")


def drifting(run: Run, step: int) -> Run:
    """The run with a twin that chose the same token at `step`, from logits that are out of tolerance."""
    bad = run.steps[step]
    proofs = (bad.proofs[0], Proof("logits", "fails", 0.25, 1e-3), *bad.proofs[2:])
    twin = dataclasses.replace(bad.twin, max_abs_dlogit=0.25)
    steps = list(run.steps)
    steps[step] = dataclasses.replace(bad, twin=twin, proofs=proofs)
    return dataclasses.replace(run, steps=tuple(steps), key=f"{run.key}-logits")
