"""Memory as Streamlit runs it, with no model loaded: its own run, presets, pasted configs, GPUs and engines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from factories import PLAYER_CASES, make_run
from reading import components, outside_code, text_of

from kvviz.core import lessons, storage
from kvviz.features.memory import parts as memory_page
from kvviz.features.memory.record.architectures import FORMATS
from kvviz.features.memory.spec import SPEC
from kvviz.ui import kit, links

pytestmark = pytest.mark.usefixtures("no_models")

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


def check(app, language: str) -> str:
    """The recorded run holds 80 positions: 2 · 6 · 8 · 32 · 80 · 4 = 983,040 bytes."""
    assert not app.exception
    assert [e.value for e in app.error] == []
    assert [t.value for t in app.title] == [lessons.text(language, "memory", "title")]
    shown = text_of(app)
    assert storage.bundled().steps[-1].kv_bytes == 983_040
    formula = app.main.text[0].value
    assert "2 · 6 · 8 · 32 · 80 · 1 · 4 = 983,040" in formula
    assert shown.count("983,040") >= 6  # sentence, card, proof
    assert "131,072" in shown  # Llama-3-8B, a token
    assert "28,284" in shown  # blocks on an H100: (0.9 · 80 − 14.957 − 1.8) GiB / 2 MiB
    assert components(app).count("kvviz_chart") == 6
    assert "{" not in outside_code(shown), "a placeholder was left unfilled"
    return shown


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_the_page_shows_its_numbers(opened, language):
    check(opened("memory", lang=language), language)


@pytest.mark.parametrize("part", ["hero", "growth", "kinds", "carried", "fits", "engine"])
def test_without_its_body_that_test_fails(opened, monkeypatch, part):
    monkeypatch.setattr(memory_page, part, lambda *_, **__: None)
    with pytest.raises((AssertionError, IndexError)):
        check(opened("memory"), "en")


def test_without_its_proofs_it_fails_too(opened, monkeypatch):
    monkeypatch.setattr(kit, "proofs", lambda *_, **__: None)
    with pytest.raises(AssertionError):
        check(opened("memory"), "en")


def test_the_proof_holds_on_the_recorded_tensors(opened):
    shown = text_of(opened("memory"))
    assert "**✓ holds** 12 tensors hold 983,040 bytes, the formula says 983,040" in shown


def test_no_torch_is_needed():
    """The page's own modules, in a fresh interpreter."""
    code = (
        "import sys; import kvviz.features.memory.parts; print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"memory_model": "llama-3-8b", "memory_T": "8192"}, "**1.00 GiB** (1,073,741,824 bytes = 1.074 GB)"),  # E01
        ({"memory_model": "llama-3-8b", "memory_T": "8192", "memory_kv": "fp8"}, "**512 MiB**"),  # E20: 0.50 GiB
        ({"memory_model": "qwen3-4b"}, "147,456 bytes a token"),  # E02
        ({"memory_model": "llama-2-7b", "memory_T": "4096"}, "**2.00 GiB** (2,147,483,648 bytes = 2.147 GB)"),  # E04
        ({"memory_model": "llama-3-70b", "memory_T": "32768"}, "**10.0 GiB** (10,737,418,240 bytes = 10.74 GB)"),
        ({"memory_model": "mistral-7b", "memory_T": "32768"}, "without the window 4.00 GiB"),  # E07
        ({"memory_model": "mistral-7b", "memory_T": "32768"}, "**512 MiB**"),
        ({"memory_model": "gpt3", "memory_T": "2560"}, "**11.25 GiB** (12,079,595,520 bytes"),
        ({"memory_model": "llama-2-13b", "memory_T": "4096"}, "**3.125 GiB** (3,355,443,200 bytes"),
        ({"memory_model": "gpt3", "memory_T": "2560"}, "2,560 tokens are more than"),
        ({"memory_model": "gpt3", "memory_T": "2560", "memory_B": "8"}, "**90.0 GiB**"),
        ({"memory_model": "gpt2", "memory_kv": "int8"}, "19,584 bytes a token"),  # E18
        ({"memory_model": "gpt2", "memory_kv": "int4"}, "10,368 bytes a token"),
        ({"memory_model": "deepseek-v2"}, "69,120 bytes a token"),
        ({"memory_model": "deepseek-v3"}, "70,272 bytes a token"),
        ({"memory_model": "run"}, "6,144 bytes a token"),  # 12,288 in float32
        ({"memory_model": "own", "memory_L": "2", "memory_H": "4", "memory_Hkv": "4", "memory_D": "8"}, "256 bytes a"),
        ({"memory_model": "own", "memory_H": "0"}, "It has to be a whole number that somebody can mean: at least 1"),
        ({"memory_model": "own", "memory_H": "0"}, "` Query heads (H) ` reads ` 0 `."),
        ({"memory_model": "own", "memory_Hkv": "0"}, "` KV heads (Hkv) ` reads ` 0 `."),
        ({"memory_T": "1"}, "131,072 bytes a token. 1 token, batch 1: **128 KiB**"),
        ({"memory_T": "1"}, "128 KiB for 1 token, 256 KiB for twice as many"),
        ({"memory_block": "1", "memory_longest": "1"}, "A block of 1 token of"),
        ({"memory_model": "own", "memory_Hkv": "1"}, "2 · 32 layers · 1 KV head · 128"),
        ({"memory_model": "own", "memory_Hkv": "5"}, "5 KV heads cannot serve 32 query heads evenly"),
        ({"memory_by": "batch", "memory_B": "4", "memory_T": "8192"}, "A batch of 4 at 8,192 tokens takes 4.00 GiB"),
        ({"memory_model": "llama-3-70b", "memory_gpus": "16"}, "fewer than 16 GPUs"),
        ({"memory_model": "deepseek-v2", "memory_gpus": "8"}, "each of the 8 GPUs holds all of it"),
        ({"memory_model": "llama-3-70b", "memory_gpus": "2"}, "each of the 2 GPUs holds 4 of the 8 KV heads"),
        ({"memory_gpus": "3"}, "32 query heads and 8 KV heads cannot be shared out evenly among 3 GPUs"),
        ({"memory_model": "llama-3-70b"}, "**No cache fits.**"),
        # (16,060,522,496 + 80 · 131,072) bytes at 3.35 TB/s
        ({}, "takes at least 4.80 ms"),
        ({}, "532,827 tokens are what the memory has room for; ` Llama-3-8B ` was made for 8,192."),
        ({"memory_longest": "8193"}, "A request of 8,193 tokens is longer than ` Llama-3-8B ` was made for (8,192)"),
        ({"memory_T": "8192", "memory_model": "mistral-7b"}, "but all 32 layers keep only the newest 4,096"),
        ({"memory_model": "gemma-3-4b"}, "but 29 of the layers keep only the newest 1,024"),
        ({"memory_model": "own", "memory_L": "1", "memory_window": "8"}, "but its one layer keeps only the newest 8"),
        ({"memory_model": "mistral-7b"}, "and at batch 1 for at least **10,000,000 tokens**"),
        ({"memory_T": "8192"}, "and at batch 1 for up to **532,827 tokens**"),
        ({"memory_model": "own", "memory_Hkv": "1", "memory_gpus": "2"}, "has 1 KV head, fewer than 2 GPUs"),
        ({"memory_model": "mixtral-8x7b", "memory_gpu": "h200"}, "reads some of its experts only"),
    ],
)
def test_a_link_puts_the_page_in_its_state(opened, query, said):
    app = opened("memory", **query)
    assert not app.exception and [e.value for e in app.error] == []
    assert said in text_of(app)
    (link,) = [c.value for c in app.code if "?" in c.value and "lang=" in c.value]
    assert all(f"{name}={value}" in link for name, value in query.items())


def test_lengths_within_the_model_s_own_are_not_marked(opened):
    """Its own 8,192 as the longest request, and 70 texts that leave room for 7,611 tokens each."""
    shown = text_of(opened("memory", memory_B="70", memory_longest="8192"))
    assert "**7,611 tokens**" in shown
    assert "what the memory has room for" not in shown and "than ` Llama-3-8B ` was made for" not in shown


def test_precision_of_the_weights_leaves_the_cache_alone(opened):
    """D14: Llama-3-8B at 8,192 tokens: 14.96 GiB of weights in bf16, 4.5 bits a weight are 4.207 GiB."""
    for weights, size in (("half", "14.96 GiB"), ("int4", "4.207 GiB")):
        shown = text_of(opened("memory", memory_T="8192", memory_weights=weights))
        assert f"take {size}" in shown and "the cache in bf16 / fp16 1.00 GiB" in shown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_T", "1000000000000"),  # 10^12 tokens
        ("memory_T", "-5"),
        ("memory_L", "-1"),
        ("memory_model", "<b>x</b>"),
        ("memory_kv", "int3"),
        ("memory_gpu", "abacus"),
        ("memory_percent", "0"),
        ("memory_total", "much"),
        ("memory_peak", "-1.5"),
    ],
)
def test_nonsense_in_a_link_gets_a_note(opened, name, value):
    app = opened("memory", **{name: value})
    assert not app.exception and [e.value for e in app.error] == []
    assert any(name in i.value and value in i.value for i in app.info)
    assert "<b>" not in outside_code(text_of(app))
    assert links.own(SPEC.fields, {name: value}) == {}


def test_a_pasted_config_is_read_and_stays_out_of_the_link(opened):
    app = opened("memory", memory_model="config", memory_T="32768")
    assert "Nothing pasted yet" in text_of(app)
    name = "<b>mine</b> $x$ *y*"
    app.text_area(key="memory_config").set_value(json.dumps(CONFIG | {"_name_or_path": name})).run()
    assert not app.exception and [e.value for e in app.error] == []
    shown = text_of(app)
    assert "**10.0 GiB**" in shown and name in shown
    assert all(markup not in outside_code(shown) for markup in ("<b>", "$x$", "*y*"))
    (link,) = [c.value for c in app.code if "?" in c.value and "lang=" in c.value]
    assert "memory_model=config" in link and "mine" not in link and "memory_config" not in link


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(CONFIG | {"num_attention_heads": 0}), "` num_attention_heads ` reads ` 0 `."),
        (json.dumps(CONFIG | {"num_hidden_layers": 10**9}), "` num_hidden_layers ` reads ` 1,000,000,000 `."),
        (json.dumps(CONFIG | {"num_hidden_layers": 10**9}), "from 1 to 1,000."),
        (json.dumps(CONFIG | {"num_key_value_heads": 5}), "5 KV heads cannot serve 64"),
        (json.dumps(CONFIG | {"max_position_embeddings": -1}), "max_position_embeddings"),
        (json.dumps({"model_type": "bert", "num_hidden_layers": 12}), "is not a decoder"),
        (
            json.dumps({"model_type": "t5", "is_encoder_decoder": True}),
            "does write token by token, and it keeps K and V",
        ),
        (json.dumps({"name": "x"}), "does not describe a model"),
        ("hello", "This is not JSON"),
        ("x" * 10 * 2**20, "10,485,760 characters"),
    ],
)
def test_what_is_no_config_gets_a_sentence(opened, text, said):
    app = opened("memory", memory_model="config")
    app.text_area(key="memory_config").set_value(text).run()
    assert not app.exception and [e.value for e in app.error] == []
    assert [w.value for w in app.warning if said in w.value]
    assert "stands below" in text_of(app)


def test_tries_put_the_page_in_their_state(opened):
    app = opened("memory")
    app.button(key="try-memory-window").click().run()
    assert "**512 MiB**" in text_of(app)
    app.button(key="try-memory-llama").click().run()
    assert "**1.00 GiB**" in text_of(app)
    app.button(key="try-memory-log").click().run()
    shown = text_of(app)
    assert "**3.81 GiB for K and V**" in shown  # E08
    assert "less 17.06 at the peak, weights included, and 0.35 other" in shown and "0.00 weights" not in shown
    assert "1.56 requests of 20,000 tokens" in shown
    assert "from 3.805 to 3.815 GiB, which is 1,948 to 1,953 blocks" in shown  # the log has 1,952
    app.button(key="try-memory-long").click().run()
    assert "fewer than one request of 29,000 tokens** (0.82 of it). The engine refuses to start" in text_of(app)
    # The log has 1,478. 2.885 and 2.895 GiB of blocks of 2 MiB: 1,477.1 and 1,482.2
    assert "from 2.885 to 2.895 GiB, which is 1,477 to 1,482 blocks" in text_of(app)
    app.button(key="try-memory-nothing").click().run()
    shown = text_of(app)
    assert "**−1.40 GiB. There is no memory for cache blocks**" in shown  # E11
    assert "less 14.00 weights, 1.50 activations and 0.30 other" in shown


def test_the_utilisation_decides_what_is_left(opened):
    """E11: 5.8 GiB at 0.9, 1.0 at 0.7."""
    fields = {"memory_total": "24.0", "memory_resident": "14.0", "memory_peak": "1.5", "memory_other": "0.3"}
    for percent, left in (("90", "5.80"), ("70", "1.00")):
        app = opened("memory", memory_percent=percent, **fields)
        assert f"**{left} GiB for K and V**" in text_of(app)
    assert "reserved in advance, not used" in text_of(app)


@pytest.mark.parametrize(
    ("language", "tokens", "total"),
    [("en", "From 1 to 10,000,000.", "From 0.01 to 100,000.0."), ("zh", "1 到 10,000,000。", "0.01 到 100,000.0。")],
)
def test_the_help_of_a_number_says_its_limits(opened, language, tokens, total):
    """The browser puts a number outside them back without a word."""
    found = {n.key: n.help for n in opened("memory", lang=language).number_input}
    assert found["memory_T"] == tokens and found["memory_total"].endswith(total)
    assert found["memory_total"] != total  # what it says of a field left empty stays
    assert all(any(c.isdigit() for c in said) for name, said in found.items() if name.startswith("memory_"))


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_what_people_ask_is_answered_with_the_calculator_s_numbers(language):
    """E05: every number in the text is the formula's."""
    text = "\n".join(lessons.sections(language, "memory").values())
    for number in (
        "131,072", "36,864", "19,584", "10,368", "1.88", "3.56", "0.50", "10.0 GiB", "80.0 GiB", "147,456", "92,160",
        "2.147 GB", "2,042,016", "997.08", "2,552", "512 MiB", "4.00 GiB", "70,272", "0.224", "0.236",
    ):  # fmt: skip
        assert number in text, number


@pytest.mark.parametrize("case", ["one", "shared", "alone", "window", "markup"])
def test_runs_of_other_sizes_are_shown(opened, case):
    run = make_run(**PLAYER_CASES[case])
    app = opened("memory", state={"kv_opened": run}, memory_model="run")
    assert not app.exception and [e.value for e in app.error] == []
    assert f"{run.steps[-1].kv_bytes:,}" in text_of(app)
    interpreted = outside_code(text_of(app))
    assert all(markup not in interpreted for markup in ("<b>", "<script>", "$x$", ":smile:", "[z](w)", "*y*", "<i>"))


def test_a_choice_that_the_browser_kept_is_read(opened):
    """After a reload the browser tells the text of the list's line, before there is a list to find it in."""
    app = opened("memory", state={"memory_weights": "int4"})
    by_name = opened("memory", state={"memory_weights": FORMATS["int4"].name})
    assert not by_name.exception and [e.value for e in by_name.error] == []
    said = [[m.value for m in each.main.markdown] for each in (app, by_name)]  # the sidebar says how long a model loads
    assert FORMATS["int4"].name != "int4" and said[0] == said[1]
