"""What the player is sent: read back here as the format's description says, and held against the run."""

from __future__ import annotations

import copy
import dataclasses
import json
import struct

import numpy as np
import pytest
from factories import PLAYER_CASES, failing, make_run, next_step

from kvviz.core import Proof, Run
from kvviz.player import message
from kvviz.player.message import LIMIT, WINDOW, Focus, Have, Size, build


def unpack(blob: bytes) -> tuple[dict, list[tuple[dict, np.ndarray]]]:
    (length,) = struct.unpack_from("<I", blob)
    assert (4 + length) % 8 == 0

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    header = json.loads(blob[4 : 4 + length], parse_constant=refuse)
    arrays = []
    for entry in header["arrays"]:
        assert entry["offset"] % 8 == 0
        start = 4 + length + entry["offset"]
        arrays.append((entry, np.frombuffer(blob[start : start + entry["bytes"]], "<f2")))
    return header, arrays


class Browser:
    """Keeps what messages bring, as the player's JS does, but by the words of the format."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.header: dict = {}
        self.tokens: list[str] = []
        self.passes: list[dict] = []
        self.norms = np.zeros((0, run.model.layers, 2), "<f2")
        self.headnorms: dict[int, np.ndarray] = {}
        self.attention: dict[tuple[int, int], list[np.ndarray]] = {}
        self.slabs: dict[tuple[int, int], dict[str, np.ndarray]] = {}

    def take(self, blob: bytes) -> None:
        assert len(blob) <= LIMIT
        header, arrays = unpack(blob)
        self.header = header
        assert header["from"] == len(self.passes)
        if header["prompt"]:
            self.tokens = list(header["prompt"][0])
        self.passes += header["passes"]
        self.tokens += [p["token"] for p in header["passes"]]
        m = self.run.model
        for entry, data in arrays:
            layer, head, start, stop = entry["layer"], entry["head"], entry["from"], entry["to"]
            if entry["kind"] == "norms":
                self.norms = np.concatenate([self.norms, data.reshape(-1, m.layers, 2)])
            elif entry["kind"] == "headnorms":
                held = self.headnorms.get(layer, np.zeros((0, m.kv_heads, 2), "<f2"))
                self.headnorms[layer] = np.concatenate([held, data.reshape(-1, m.kv_heads, 2)])
            elif entry["kind"] == "attention":
                heads = range(m.heads) if head < 0 else [head]
                P, W = self.run.P, min(self.run.P, WINDOW)
                first = W * (W + 1) // 2 + (W + P if P > W else 0)
                offset = 0
                for s in range(start, stop):
                    size = first if s == 0 else P + s
                    for h in heads:
                        rows = self.attention.setdefault((layer, h), [])
                        assert len(rows) == s
                        rows.append(data[offset : offset + size])
                        offset += size
                assert offset == len(data)
            else:
                slab = self.slabs.setdefault((layer, head), {})
                held = slab.get(entry["kind"], np.zeros((0, m.head_dim), "<f2"))
                assert len(held) == start
                slab[entry["kind"]] = np.concatenate([held, data.reshape(-1, m.head_dim)])
                assert len(slab[entry["kind"]]) == stop


def read_all(run: Run, focus: Focus, have: Have | None = None) -> tuple[Browser, Have, int]:
    """Messages until nothing on screen is lacking; how many it took."""
    browser, have = Browser(run), have or Have()
    for count in range(1, 40):
        browser.take(build(run, have, focus, {}))
        if not browser.header["more"]:
            return browser, have, count
    raise AssertionError("the messages never end")


@pytest.mark.parametrize("case", ["six", "shared", "long", "one"])
def test_the_browser_gets_what_the_run_holds(case: str) -> None:
    run = make_run(**PLAYER_CASES[case])
    m, N = run.model, len(run.steps)
    layer, head = m.layers - 1, m.heads - 1
    browser, _, _ = read_all(run, Focus(layer, head, slab=True))
    assert len(browser.passes) == N
    assert len(browser.tokens) == run.P + N
    k = np.concatenate([s.k for s in run.steps], axis=2).astype(np.float64)  # (L, Hkv, T, D)
    v = np.concatenate([s.v for s in run.steps], axis=2).astype(np.float64)
    expected = np.stack(
        [np.linalg.norm(x.transpose(2, 0, 1, 3).reshape(run.length, m.layers, -1), axis=2) for x in (k, v)]
    )
    np.testing.assert_allclose(browser.norms.transpose(2, 0, 1), expected, rtol=2e-3)
    per_head = np.stack([np.linalg.norm(x[layer], axis=2).T for x in (k, v)], axis=2)  # (T, Hkv, 2)
    np.testing.assert_allclose(browser.headnorms[layer], per_head, rtol=2e-3)
    slab = browser.slabs[layer, head]
    kv = head * m.kv_heads // m.heads
    np.testing.assert_array_equal(slab["q"], run.queries(layer, head, N - 1))
    np.testing.assert_array_equal(slab["k"], run.keys(layer, kv, N - 1))
    np.testing.assert_array_equal(slab["v"], run.values(layer, kv, N - 1))
    rows = browser.attention[layer, head]
    assert len(rows) == N
    for step in range(1, N):
        np.testing.assert_array_equal(rows[step], run.attention_row(layer, head, run.P + step - 1))
    if run.P <= WINDOW:
        square = np.concatenate([run.attention_row(layer, head, i) for i in range(run.P)])
        np.testing.assert_array_equal(rows[0], square)


def test_a_thousand_tokens_travel_in_small_messages() -> None:
    run = make_run(**PLAYER_CASES["thousand"])
    browser, have, _ = read_all(run, Focus(1, 2, slab=True))
    first = browser.attention[1, 2][0].astype(np.float64)
    weights = run.steps[0].attention[1, 2].astype(np.float64)  # (1000, 1000)
    i, j = np.tril_indices(WINDOW)
    np.testing.assert_array_equal(first[: len(i)], weights[744 + i, 744 + j])
    sums = first[len(i) : len(i) + WINDOW]
    np.testing.assert_allclose(sums, weights[744:, :744].sum(axis=1), rtol=1e-3)
    np.testing.assert_array_equal(first[len(i) + WINDOW :], weights[999])
    assert have.slabs[1, 2] == 1003


def test_a_large_model_needs_several_messages_and_each_fits() -> None:
    run = make_run(layers=3, heads=2, head_dim=256, P=700, N=3)  # K, Q, V of one head: 1.1 MB
    _, have, count = read_all(run, Focus(2, 1, slab=True))
    assert count > 1
    assert have.slabs[2, 1] == run.length == 702


def test_nothing_is_sent_twice() -> None:
    run = make_run(**PLAYER_CASES["six"])
    focus = Focus(2, 3, slab=True)
    _, have, _ = read_all(run, focus)
    for _ in range(30):  # what is sent ahead also comes to an end
        header, arrays = unpack(build(run, have, focus, {}))
        if not arrays:
            break
    assert arrays == []
    assert (header["from"], header["to"], header["passes"], header["prompt"]) == (68, 68, [], [])
    longer = run.with_step(next_step(run), {})
    blob = build(longer, have, focus, {})
    header, arrays = unpack(blob)
    assert (header["from"], header["to"], len(header["passes"])) == (68, 69, 1)
    assert {(e["from"], e["to"]) for e, _ in arrays if e["kind"] in ("norms", "attention", "headnorms")} == {(68, 69)}
    T = 9 + 68
    attention = [e for e, _ in arrays if e["kind"] == "attention"]
    assert sum(e["bytes"] for e in attention) == 6 * 8 * T * 2
    assert {(e["from"], e["to"], e["bytes"]) for e, _ in arrays if e["kind"] == "k"} == {(T - 1, T, 64)}
    assert len(blob) < 40_000


def test_a_layer_not_yet_there_comes_first() -> None:
    run = make_run(layers=12, heads=12, head_dim=64, P=64, N=30)
    have = Have()
    browser = Browser(run)
    browser.take(build(run, have, Focus(0, 0), {}))
    assert (11, 5) not in browser.attention
    blob = build(run, have, Focus(11, 5), {})
    browser.take(blob)
    assert len(browser.attention[11, 5]) == 30
    assert len(blob) <= 500_000


def test_what_the_browser_says_it_has_is_taken_with_care() -> None:
    run = make_run(**PLAYER_CASES["shared"])  # 6 layers, 8 heads, 12 passes, 20 positions
    said = {"passes": 7, "language": "zh", "headnorms": [2, 5], "attention": [17, 4], "slabs": [47, 20]}
    have = Have(3, {0: 3}, offered=14)
    have.take(said, Size.of(run))
    assert have == Have(7, {2: 5}, {(2, 1): 4}, {(5, 7): 20}, "zh", offered=14)
    for bad in (
        None,
        [],
        "x",
        {"passes": "7"},
        {"passes": -3},
        {"attention": [48, 1]},
        {"attention": [1.5, 1]},
        {"slabs": 9},
    ):
        have = Have(3, {0: 3})
        have.take(bad, Size.of(run))
        assert have == Have()
    have.take({"passes": 10**9, "slabs": [0, 10**9]}, Size.of(run))
    assert have == Have(12, slabs={(0, 0): 20})


def test_passes_made_ahead_are_what_later_messages_would_bring() -> None:
    """6 layers, 8 heads, 12 passes: a browser that takes the parts one by one holds what one message would bring."""
    whole = make_run(**PLAYER_CASES["shared"])
    shorter = [dataclasses.replace(whole, steps=whole.steps[:n]) for n in (9, 10, 11, 12)]
    have, focus = Have(), Focus(2, 1, slab=True)
    first = build(shorter[0], have, focus, {"room": 5})
    before = copy.deepcopy(have)
    ahead = message.build_ahead(shorter[1:], have, focus, {"room": 5})
    assert have == before and len(ahead) == 3
    packed = message.pack([first, *ahead])
    count = struct.unpack("<I", packed[-4:])[0]
    sizes = struct.unpack(f"<{count}I", packed[-4 * (count + 1) : -4])
    assert count == 4 and sum(sizes) == len(packed) - 4 * 5
    browser, start = Browser(whole), 0
    for size, passes in zip(sizes, (9, 10, 11, 12), strict=True):
        browser.take(packed[start : start + size])
        start += size
        assert browser.header["to"] == browser.header["total"] == passes and not browser.header["more"]
    at_once = Browser(whole)
    at_once.take(build(whole, Have(), focus, {"room": 5}))
    assert browser.tokens == at_once.tokens
    assert browser.attention.keys() == at_once.attention.keys()
    for unit, rows in at_once.attention.items():
        assert all(np.array_equal(a, b) for a, b in zip(browser.attention[unit], rows, strict=True))


def test_passes_made_ahead_stay_within_their_bytes(monkeypatch) -> None:
    whole = make_run(**PLAYER_CASES["shared"])
    shorter = [dataclasses.replace(whole, steps=whole.steps[:n]) for n in (9, 10, 11, 12)]
    have = Have()
    build(shorter[0], have, Focus(), {})
    sizes = [len(b) for b in message.build_ahead(shorter[1:], have, Focus(), {})]
    monkeypatch.setattr(message, "READY", sum(sizes) - 1)
    assert [len(b) for b in message.build_ahead(shorter[1:], have, Focus(), {})] == sizes[:2]


def test_infinite_and_undefined_numbers_are_named() -> None:
    run = make_run(**PLAYER_CASES["six"])
    step = run.steps[3]
    proofs = (Proof("logits", "fails", float("nan"), 1e-3), Proof("same_kv", "fails", float("inf"), 1e-3))
    twin = dataclasses.replace(step.twin, max_abs_dlogit=float("nan"))
    steps = (*run.steps[:3], dataclasses.replace(step, proofs=proofs, twin=twin), *run.steps[4:])
    browser, _, _ = read_all(dataclasses.replace(run, steps=steps, key="undefined"), Focus())
    assert browser.passes[3]["proofs"] == [["logits", "fails", "nan", 1e-3], ["same_kv", "fails", "inf", 1e-3]]
    assert browser.passes[3]["twin"]["dl"] == "nan"


def test_norms_too_large_for_a_half_stay_numbers() -> None:
    run = make_run(layers=1, heads=1, head_dim=64, P=2, N=1)
    step = run.steps[0]
    large = np.full_like(step.k, 60000)
    run = dataclasses.replace(run, steps=(dataclasses.replace(step, k=large),), key="large")
    browser, _, _ = read_all(run, Focus())
    assert browser.norms[0, 0, 0] == 65504


def test_facts_of_a_pass() -> None:
    run = failing(make_run(**PLAYER_CASES["markup"]), 4)
    facts = message.pass_facts(run, run.steps[4])
    assert (facts["rows"], facts["before"], facts["T"], facts["position"]) == (1, 14, 15, 14)
    assert facts["shape"] == [6, 2, 1, 8, 15, 32]
    assert facts["bytes"] == 2 * 6 * 8 * 32 * 15 * 4 == 184_320
    assert facts["token"] == "99 82"
    assert facts["twin"]["same"] is False
    assert facts["twin"]["token"] == facts["top"][1][0]
    prefill = message.pass_facts(run, run.steps[0])
    assert len(prefill["predictions"]) == 11
    assert prefill["token"] == "<i>"


def test_tokens_that_make_one_character_are_named_together() -> None:
    run = make_run(**PLAYER_CASES["markup"])
    assert message.shared_characters(run) == [[14, 16, "🙂"]]
    assert message.shared_characters(make_run(**PLAYER_CASES["six"])) == []


def test_a_run_without_passes_still_shows_its_prompt() -> None:
    run = make_run(**PLAYER_CASES["none"])
    header, arrays = unpack(build(run, Have(), Focus(), {"language": "en"}))
    assert len(header["prompt"][0]) == 9
    assert (header["to"], arrays, header["more"]) == (0, [], False)
    assert header["caller"] == {"language": "en"}


def test_scores_are_scaled_as_the_model_scales_them() -> None:
    """Most models divide by √D; some, as Gemma, by a number of their own."""
    run = make_run(**PLAYER_CASES["six"])
    assert read_all(run, Focus())[0].header["model"]["scale"] == pytest.approx(1 / np.sqrt(32))
    own = dataclasses.replace(run, model=dataclasses.replace(run.model, attention_scale=0.0625), key="own")
    assert read_all(own, Focus())[0].header["model"]["scale"] == 0.0625


def test_windows_are_named_only_where_there_are_any() -> None:
    """Layer 0 sees the newest 8, layer 2 sees all. What is kept from a query is sent as a weight of exactly 0."""
    assert "windows" not in read_all(make_run(**PLAYER_CASES["six"]), Focus())[0].header["model"]
    everywhere = make_run(**PLAYER_CASES["six"] | {"windows": (0,) * 6})
    assert "windows" not in read_all(everywhere, Focus())[0].header["model"]
    browser = read_all(make_run(**PLAYER_CASES["window"]), Focus())[0]
    assert browser.header["model"]["windows"] == [8, 8, 0, 8, 8, 0]
    for (layer, _), rows in browser.attention.items():
        row = rows[5]  # decode step 5: the query at 16, keys 0 to 16
        assert len(row) == 17
        assert (row > 0).sum() == (17 if layer in (2, 5) else 8)
    assert {layer for layer, _ in browser.attention} >= {0, 2}
