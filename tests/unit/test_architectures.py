"""Published models against published sizes, pasted configs, and what is no model at all."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kvviz.core import lessons, storage
from kvviz.core.refusal import Refusal
from kvviz.features.memory.record.architectures import FORMATS, Architecture, checked, checked_request, of_facts
from kvviz.features.memory.record.gpus import GPUS
from kvviz.features.memory.record.model_config import read
from kvviz.features.memory.record.presets import PRESETS

HALF, GIB, MIB = FORMATS["half"], 2**30, 2**20

LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("key", "token"),
    [
        ("llama-3-8b", 131_072),  # E01
        ("qwen3-4b", 147_456),  # E02: 92,160 with a head size of width / heads
        ("gpt2-xl", 307_200),
        ("mixtral-8x7b", 131_072),
        ("qwen2.5-7b", 57_344),
        ("smollm2-135m", 23_040),
        ("deepseek-v2", 69_120),
        ("deepseek-v3", 70_272),
        ("gpt2", 36_864),
    ],
)
def test_bytes_a_token_in_16_bits(key, token):
    assert PRESETS[key].token_bytes(HALF) == token
    assert PRESETS[key].cache_bytes(1, HALF) == token


@pytest.mark.parametrize(
    ("key", "positions", "batch", "expected"),
    [
        ("llama-3-8b", 8_192, 1, GIB),
        ("llama-2-7b", 4_096, 1, 2 * GIB),
        ("llama-2-7b", 2_048, 1, GIB),
        ("llama-2-7b", 32_768, 1, 16 * GIB),
        ("llama-3-70b", 32_768, 1, 10 * GIB),
        ("llama-3-70b", 131_072, 1, 40 * GIB),
        ("mistral-7b", 32_768, 1, 512 * MIB),
        ("gpt3", 2_048 + 512, 1, 11.25 * GIB),
        ("gpt3", 2_048 + 512, 8, 90 * GIB),
    ],
)
def test_worked_examples(key, positions, batch, expected):
    assert PRESETS[key].cache_bytes(positions, HALF, batch) == expected


def test_without_a_window_and_with_all_heads():
    assert PRESETS["mistral-7b"].cache_bytes(32_768, HALF, windows=False) == 4_096 * MIB
    assert PRESETS["llama-3-70b"].with_kv_heads(64).cache_bytes(32_768, HALF) == 80 * GIB


def test_gemma_has_local_and_global_layers():
    """34 layers, every sixth global: 5 keep all, 29 the newest 1,024; 2 · 4 · 256 values of 2 bytes a layer."""
    gemma = PRESETS["gemma-3-4b"]
    assert gemma.cache_bytes(32_768, HALF) == (5 * 32_768 + 29 * 1_024) * 4_096
    assert gemma.cache_bytes(32_768, HALF, windows=False) == 34 * 32_768 * 4_096


def test_precisions_of_the_cache():
    """E18, E20; and 128 recent positions in 16 bits beside 896 in int4."""
    gpt2, llama = PRESETS["gpt2"], PRESETS["llama-3-8b"]
    assert gpt2.token_bytes(FORMATS["int8"]) == 19_584
    assert gpt2.token_bytes(FORMATS["int4"]) == 10_368
    assert llama.cache_bytes(8_192, FORMATS["fp8"]) == GIB // 2
    assert gpt2.cache_bytes(1_024, FORMATS["int4"], tail=128) == 896 * 10_368 + 128 * 36_864


def test_precision_of_the_weights_moves_no_byte_of_the_cache():
    """D14: two controls. Llama-3-8B's weights take 16.06 GB in bf16, 4.5 bits a weight in int4."""
    model = PRESETS["llama-3-8b"]
    assert model.weight_bytes(HALF) == 16_060_522_496
    assert model.weight_bytes(FORMATS["int4"]) == 8_030_261_248 * 9 // 16
    for weights in FORMATS.values():
        model.weight_bytes(weights)
        assert model.cache_bytes(8_192, HALF) == GIB
    assert model.cache_bytes(8_192, FORMATS["int8"]) == 64 * 1_024 * 8_192 * 17 // 16  # 8.5 bits


def test_several_gpus_share_kv_heads_until_there_are_none_left():
    model = PRESETS["llama-3-70b"]
    shares = [model.cache_bytes(32_768, HALF, gpus=n) / GIB for n in (1, 2, 4, 8, 16)]
    assert shares == [10, 5, 2.5, 1.25, 1.25]  # 8 KV heads: at 16 GPUs each is held twice
    latent = PRESETS["deepseek-v2"]
    assert latent.cache_bytes(1, HALF, gpus=8) == 69_120  # the latent can't be divided by heads


def test_kinds_of_attention_on_one_model():
    """DeepSeek-V2's paper: MLA's 9/2 · D values equal GQA with 2.25 groups. Llama-3-8B: D = 128."""
    model = PRESETS["llama-3-8b"]
    assert model.with_kv_heads(32).token_bytes(HALF) == 524_288
    assert model.with_kv_heads(1).token_bytes(HALF) == 16_384
    assert model.with_latent().token_bytes(HALF) == 32 * 576 * 2
    assert PRESETS["deepseek-v2"].with_latent() is PRESETS["deepseek-v2"]
    assert PRESETS["deepseek-v2"].with_kv_heads(128).token_bytes(HALF) == 60 * 2 * 128 * 128 * 2


def test_a_length_past_the_model_s_own():
    assert PRESETS["gpt3"].past(2_560) and not PRESETS["gpt3"].past(2_048)
    assert not Architecture("x", 1, 1, 1, 1).past(10**6)  # not known


def test_what_the_engine_s_own_run_holds():
    """The recorded run's cache was counted on tensors."""
    run = storage.bundled()
    model = of_facts(run.model)
    assert model.cache_bytes(run.length, FORMATS["fp32"]) == run.steps[-1].kv_bytes
    assert (model.layers, model.kv_heads, model.head_dim) == (6, 8, 32)
    assert dataclasses.replace(PRESETS["story-gpt2"], source=None) == model


@pytest.mark.parametrize("key", list(PRESETS))
def test_presets_are_possible_and_say_where_from(key):
    preset = checked(PRESETS[key])
    assert preset.source.url and preset.source.what
    assert preset.parameters > 10**6 and preset.trained
    assert (preset.window > 0) == (preset.windowed > 0) and preset.windowed <= preset.layers


def by_hand(vocab, width, layers, heads, kv_heads, D, inner, tied, gated=True, norms=2, positions=0, extra=0):
    """Weights of a decoder, matrix by matrix; `extra` a layer."""
    attention = width * heads * D + 2 * width * kv_heads * D + heads * D * width
    a_layer = attention + (3 if gated else 2) * width * inner + norms * width + extra
    return vocab * width * (1 if tied else 2) + positions * width + layers * a_layer + width * (1 if gated else 2)


@pytest.mark.parametrize(
    ("key", "parameters"),
    [
        ("llama-2-7b", by_hand(32_000, 4_096, 32, 32, 32, 128, 11_008, False)),
        ("llama-2-13b", by_hand(32_000, 5_120, 40, 40, 40, 128, 13_824, False)),
        ("llama-2-70b", by_hand(32_000, 8_192, 80, 64, 8, 128, 28_672, False)),
        ("llama-3-8b", by_hand(128_256, 4_096, 32, 32, 8, 128, 14_336, False)),
        ("llama-3-70b", by_hand(128_256, 8_192, 80, 64, 8, 128, 28_672, False)),
        ("mistral-7b", by_hand(32_000, 4_096, 32, 32, 8, 128, 14_336, False)),
        ("smollm2-135m", by_hand(49_152, 576, 30, 9, 3, 64, 1_536, True)),
        # biases of Q, K, V: 3,584 + 2 · 512
        ("qwen2.5-7b", by_hand(152_064, 3_584, 28, 28, 4, 128, 18_944, False, extra=4_608)),
        # norms of Q and K: 2 · 128
        ("qwen3-4b", by_hand(151_936, 2_560, 36, 32, 8, 128, 9_728, True, extra=256)),
        # norms have a bias, and so have all matrices: 3 + 1 + 4 + 1 widths
        *(
            (key, by_hand(50_257, w, layers, h, h, 64, 4 * w, True, False, 4, 1_024, 9 * w))
            for key, w, layers, h in (
                ("gpt2", 768, 12, 12),
                ("gpt2-medium", 1_024, 24, 16),
                ("gpt2-large", 1_280, 36, 20),
                ("gpt2-xl", 1_600, 48, 25),
            )
        ),
        # router, and seven experts more
        ("mixtral-8x7b", by_hand(32_000, 4_096, 32, 32, 8, 128, 8 * 14_336, False, extra=8 * 4_096)),
        # four norms a layer, two of Q and K
        ("gemma-3-4b", by_hand(262_208, 2_560, 34, 8, 4, 256, 10_240, True, norms=4, extra=512)),
    ],
)
def test_parameters_matrix_by_matrix(key, parameters):
    assert PRESETS[key].parameters == parameters


def test_a_pasted_config():
    found = read(json.dumps(LLAMA_3_8B))
    assert (found.layers, found.heads, found.kv_heads, found.head_dim, found.trained) == (32, 32, 8, 128, 8_192)
    assert found.cache_bytes(8_192, HALF) == GIB
    assert found.parameters == 8_030_261_248 and found.estimated


def config(key: str, kind: str, width: int, inner: int, vocab: int, **more: object) -> str:
    """A preset's config.json: its published sizes, the rest from the preset."""
    p = PRESETS[key]
    sizes = {"num_hidden_layers": p.layers, "num_attention_heads": p.heads, "num_key_value_heads": p.kv_heads}
    sizes |= {"head_dim": p.head_dim, "hidden_size": width, "intermediate_size": inner, "vocab_size": vocab}
    return json.dumps(sizes | {"model_type": kind} | more)


@pytest.mark.parametrize(
    ("key", "text"),
    [  # against what the weight files hold
        ("llama-3-8b", config("llama-3-8b", "llama", 4_096, 14_336, 128_256)),
        ("llama-3-8b", json.dumps({k: v for k, v in LLAMA_3_8B.items() if k not in ("architectures", "model_type")})),
        ("llama-3-8b", json.dumps({k: v for k, v in LLAMA_3_8B.items() if k != "model_type"})),
        ("llama-3-70b", config("llama-3-70b", "llama", 8_192, 28_672, 128_256)),
        ("llama-2-13b", config("llama-2-13b", "llama", 5_120, 13_824, 32_000)),
        ("mistral-7b", config("mistral-7b", "mistral", 4_096, 14_336, 32_000)),
        ("smollm2-135m", config("smollm2-135m", "llama", 576, 1_536, 49_152, tie_word_embeddings=True)),
        ("qwen2.5-7b", config("qwen2.5-7b", "qwen2", 3_584, 18_944, 152_064)),
        ("qwen3-4b", config("qwen3-4b", "qwen3", 2_560, 9_728, 151_936, tie_word_embeddings=True)),
        ("gemma-3-4b", config("gemma-3-4b", "gemma3_text", 2_560, 10_240, 262_208)),
        ("gpt2", config("gpt2", "gpt2", 768, 3_072, 50_257, n_positions=1_024)),
    ],
)
def test_parameters_of_a_config_are_all_of_them(key, text):
    assert read(text).parameters == PRESETS[key].parameters


def test_biases_that_a_config_asks_for():
    """32 layers: Q 4,096, K and V 1,024 each, output 4,096; and the MLP's 14,336 twice and 4,096."""
    plain = 8_030_261_248
    assert read(json.dumps(LLAMA_3_8B | {"attention_bias": True})).parameters == plain + 32 * 10_240
    assert read(json.dumps(LLAMA_3_8B | {"mlp_bias": True})).parameters == plain + 32 * 32_768


@pytest.mark.parametrize(
    "changed",
    [{"model_type": "falcon"}, {"vocab_size": None}, {"intermediate_size": None}, {"num_local_experts": 8}],
)
def test_parameters_are_not_guessed(changed):
    assert read(json.dumps(LLAMA_3_8B | changed)).parameters is None


def test_a_config_of_another_class_is_not_taken_for_llama_s():
    text = {k: v for k, v in LLAMA_3_8B.items() if k != "model_type"} | {"architectures": ["FalconForCausalLM"]}
    assert read(json.dumps(text)).parameters is None


@pytest.mark.parametrize(
    ("changed", "key", "value", "least", "most"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads", "0", "1", "100,000"),
        ({"num_hidden_layers": 10**15}, "num_hidden_layers", "1,000,000,000,000,000", "1", "1,000"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers", "1,000,000,000", "1", "1,000"),
        ({"num_key_value_heads": 10**9}, "num_key_value_heads", "1,000,000,000", "1", "100,000"),
        ({"head_dim": 10**6}, "head_dim", "1,000,000", "1", "100,000"),
        ({"hidden_size": 32 * 10**6}, "hidden_size / 32", "1,000,000", "1", "100,000"),
        ({"hidden_size": 10**10}, "hidden_size", "10,000,000,000", "1", "1,000,000,000"),
        ({"model_type": "qwen2", "sliding_window": 8, "max_window_layers": -1}, "max_window_layers", "-1", "0", None),
    ],
)
def test_a_refused_number_is_called_as_the_config_does_with_its_real_bounds(changed, key, value, least, most):
    with pytest.raises(Refusal) as raised:
        read(json.dumps(LLAMA_3_8B | changed))
    assert raised.value.code == "config_number"
    said = raised.value.shown()
    assert (said["key"], said["value"], said["least"], said["most"]) == (key, value, least, most or said["most"])
    assert f"from {least} to {said['most']}." in str(raised.value)


def test_bounds_are_within_what_is_read():
    most = LLAMA_3_8B | {"num_hidden_layers": 1_000, "num_attention_heads": 100_000, "num_key_value_heads": 100_000}
    found = read(json.dumps(most | {"head_dim": 100_000, "sliding_window": 10**9, "max_position_embeddings": 10**9}))
    assert (found.layers, found.heads, found.head_dim, found.window) == (1_000, 100_000, 100_000, 10**9)


def test_configs_of_other_families():
    gpt2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 12, "n_head": 12, "n_embd": 768}
    gpt2 |= {"n_positions": 1024, "vocab_size": 50257}
    assert read(json.dumps(gpt2)).token_bytes(HALF) == 36_864
    assert read(json.dumps(gpt2)).parameters == pytest.approx(124_439_808, rel=2e-3)
    qwen3 = LLAMA_3_8B | {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 2560, "head_dim": 128}
    assert read(json.dumps(qwen3)).token_bytes(HALF) == 147_456
    mistral = LLAMA_3_8B | {"model_type": "mistral", "sliding_window": 4096}
    assert read(json.dumps(mistral)).cache_bytes(32_768, HALF) == 512 * MIB
    qwen2 = LLAMA_3_8B | {"model_type": "qwen2", "sliding_window": 131072, "use_sliding_window": False}
    assert read(json.dumps(qwen2)).windowed == 0
    v3 = LLAMA_3_8B | {"num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128}
    v3 |= {"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    v3 |= {"n_routed_experts": 256}
    assert read(json.dumps(v3)).token_bytes(HALF) == 70_272
    assert read(json.dumps(v3)).parameters is None
    text = {k: v for k, v in LLAMA_3_8B.items() if k != "architectures"}
    text |= {"model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024, "head_dim": 256}
    gemma = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    assert read(json.dumps(gemma)).windowed == 29
    listed = text | {"layer_types": ["sliding_attention"] * 30 + ["full_attention"] * 4}
    assert read(json.dumps(gemma | {"text_config": listed})).windowed == 30
    half = LLAMA_3_8B | {"model_type": "bart", "architectures": ["BartForCausalLM"], "is_encoder_decoder": False}
    assert read(json.dumps(half)).cache_bytes(8_192, HALF) == GIB  # a decoder alone
    falcon = {"model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544}
    assert read(json.dumps(falcon | {"multi_query": True})).kv_heads == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (json.dumps(LLAMA_3_8B | {"num_attention_heads": 0}), "config_number"),
        (json.dumps(LLAMA_3_8B | {"num_key_value_heads": 0}), "config_number"),
        (json.dumps(LLAMA_3_8B | {"num_key_value_heads": 5}), "size_groups"),
        (json.dumps(LLAMA_3_8B | {"max_position_embeddings": -8192}), "config_number"),
        (json.dumps(LLAMA_3_8B | {"max_position_embeddings": 10**12}), "config_number"),
        (json.dumps(LLAMA_3_8B | {"num_hidden_layers": -32}), "config_number"),
        (json.dumps(LLAMA_3_8B | {"num_hidden_layers": 10**6}), "config_number"),
        (json.dumps(LLAMA_3_8B | {"num_hidden_layers": "32"}), "config_number"),
        (json.dumps(LLAMA_3_8B | {"num_hidden_layers": True}), "config_number"),
        (json.dumps(LLAMA_3_8B | {"num_hidden_layers": 32.5}), "config_number"),
        (json.dumps(LLAMA_3_8B | {"hidden_size": 4097}), "config_head_size"),
        (json.dumps({k: v for k, v in LLAMA_3_8B.items() if k != "num_attention_heads"}), "config_missing"),
        (json.dumps(LLAMA_3_8B | {"layer_types": ["linear_attention"] * 32}), "config_layer_kind"),
        (json.dumps(LLAMA_3_8B | {"layer_types": ["full_attention"]}), "config_layer_kind"),
        (json.dumps(LLAMA_3_8B | {"architectures": ["BertForMaskedLM"]}), "config_encoder"),
        (json.dumps({"model_type": "bert", "num_hidden_layers": 12, "num_attention_heads": 12}), "config_encoder"),
        (json.dumps({"model_type": "t5", "is_encoder_decoder": True, "num_layers": 6}), "config_two_parts"),
        (json.dumps({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}), "config_two_parts"),
        (json.dumps({"model_type": "whisper", "num_hidden_layers": 4}), "config_two_parts"),
        (json.dumps({"model_type": "new", "is_encoder_decoder": True, "num_layers": 6}), "config_two_parts"),
        (
            json.dumps({"model_type": "t5", "architectures": ["T5EncoderModel"], "is_encoder_decoder": True}),
            "config_encoder",
        ),
        (json.dumps({"model_type": "mamba", "num_hidden_layers": 24}), "config_state"),
        (json.dumps({"name": "a package", "version": "1.0"}), "config_shape"),
        ("[1, 2, 3]", "config_shape"),
        ("7", "config_shape"),
        ("", "config_not_json"),
        ("{", "config_not_json"),
        ('{"num_hidden_layers": NaN}', "config_not_json"),
        ("[" * 100_000, "config_not_json"),
        ('{"n_layer": ' + "9" * 5_000 + "}", "config_not_json"),
        ("x" * 10 * 2**20, "config_long"),
    ],
)
def test_what_is_no_config_of_a_decoder_gets_a_sentence(text, code):
    with pytest.raises(Refusal) as raised:
        read(text)
    assert raised.value.code == code
    for language in lessons.LANGUAGES:
        said = lessons.text(language, "refusals", code, **raised.value.shown(lessons.literal))
        assert len(said) < 400 and "{" not in said


def test_sizes_nobody_can_mean():
    with pytest.raises(Refusal) as raised:
        checked(Architecture("own", 12, 12, 0, 64))
    assert raised.value.values["part"] == "kv_heads"
    for positions, batch in ((10**12, 1), (-5, 1), (0, 1), (8, 0)):
        with pytest.raises(Refusal):
            checked_request(positions, batch)
    checked_request(10**7, 10**5)


def test_names_in_a_config_are_cut_and_printable():
    found = read(json.dumps(LLAMA_3_8B | {"_name_or_path": "<b>x</b>\n\u202e" + "y" * 100}))
    assert len(found.name) == 60 and "\n" not in found.name and "\u202e" not in found.name


def test_gpus():
    """Makers' sheets: an H100 SXM has 80 GB and 3.35 TB/s, an H200 141 GB and 4.8 TB/s."""
    assert (GPUS["h100"].memory, GPUS["h100"].bandwidth) == (80, 3.35e12)
    assert (GPUS["h200"].memory, GPUS["h200"].bandwidth) == (141, 4.8e12)
    assert GPUS["rtx-4090"].memory_bytes == 24 * GIB
    assert all(g.source.url.startswith("https://") and len(g.announced) == 7 for g in GPUS.values())
