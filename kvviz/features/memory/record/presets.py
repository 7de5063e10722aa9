"""Published models, with the numbers that their authors give and where those stand.

Counts of parameters are those of the weight files (a paper's own where there are none). All but GPT-3's and the
stories' were checked against the classes of transformers 5.24, built without memory from the configs' numbers.
"""

from __future__ import annotations

from kvviz.features.memory.record.architectures import Architecture, Source

_HUB = "https://huggingface.co/"
_GPT2 = "config.json, as in Radford et al. 2019, table 2"


def _hub(repository: str, what: str = "config.json") -> Source:
    return Source(f"{_HUB}{repository}", what)


# key -> model; the key stands in links.
PRESETS: dict[str, Architecture] = {
    "story-gpt2": Architecture(
        "story-gpt2", 6, 8, 8, 32, 1_024, 6_049_792,
        source=Source("kvviz/models/builtin/story-gpt2", "config.json, ships with kvviz"),
    ),
    "story-llama": Architecture(
        "story-llama", 6, 8, 2, 32, 256, 5_278_976,
        source=Source("kvviz/models/builtin/story-llama", "config.json, ships with kvviz"),
    ),
    "smollm2-135m": Architecture(
        "SmolLM2-135M", 30, 9, 3, 64, 8_192, 134_515_008, source=_hub("HuggingFaceTB/SmolLM2-135M")
    ),
    "gpt2": Architecture(
        "GPT-2 small", 12, 12, 12, 64, 1_024, 124_439_808, source=_hub("openai-community/gpt2", _GPT2)
    ),
    "gpt2-medium": Architecture(
        "GPT-2 medium", 24, 16, 16, 64, 1_024, 354_823_168, source=_hub("openai-community/gpt2-medium", _GPT2)
    ),
    "gpt2-large": Architecture(
        "GPT-2 large", 36, 20, 20, 64, 1_024, 774_030_080, source=_hub("openai-community/gpt2-large", _GPT2)
    ),
    "gpt2-xl": Architecture(
        "GPT-2 XL", 48, 25, 25, 64, 1_024, 1_557_611_200, source=_hub("openai-community/gpt2-xl", _GPT2)
    ),
    "gpt3": Architecture(
        "GPT-3 175B", 96, 96, 96, 128, 2_048, 175_000_000_000,
        source=Source("https://arxiv.org/abs/2005.14165", "table 2.1; 2,048 tokens: section 2.1"),
    ),
    "llama-2-7b": Architecture(
        "Llama-2-7B", 32, 32, 32, 128, 4_096, 6_738_415_616, source=_hub("meta-llama/Llama-2-7b-hf")
    ),
    "llama-2-13b": Architecture(
        "Llama-2-13B", 40, 40, 40, 128, 4_096, 13_015_864_320, source=_hub("meta-llama/Llama-2-13b-hf")
    ),
    "llama-2-70b": Architecture(
        "Llama-2-70B", 80, 64, 8, 128, 4_096, 68_976_648_192, source=_hub("meta-llama/Llama-2-70b-hf")
    ),
    "llama-3-8b": Architecture(
        "Llama-3-8B", 32, 32, 8, 128, 8_192, 8_030_261_248, source=_hub("meta-llama/Meta-Llama-3-8B")
    ),
    "llama-3-70b": Architecture(
        "Llama-3-70B", 80, 64, 8, 128, 8_192, 70_553_706_496, source=_hub("meta-llama/Meta-Llama-3-70B")
    ),
    "mistral-7b": Architecture(
        "Mistral-7B-v0.1", 32, 32, 8, 128, 32_768, 7_241_732_096, window=4_096, windowed=32,
        source=_hub("mistralai/Mistral-7B-v0.1", "config.json: sliding_window 4,096 in every layer"),
    ),
    "mixtral-8x7b": Architecture(
        "Mixtral-8x7B", 32, 32, 8, 128, 32_768, 46_702_792_704, experts=True, source=_hub("mistralai/Mixtral-8x7B-v0.1")
    ),
    "qwen2.5-7b": Architecture("Qwen2.5-7B", 28, 28, 4, 128, 131_072, 7_615_616_512, source=_hub("Qwen/Qwen2.5-7B")),
    "qwen3-4b": Architecture(
        "Qwen3-4B", 36, 32, 8, 128, 40_960, 4_022_468_096,
        source=_hub("Qwen/Qwen3-4B", "config.json: head_dim 128, though hidden_size / heads = 80"),
    ),
    "gemma-3-4b": Architecture(
        "Gemma-3-4B", 34, 8, 4, 256, 131_072, 3_880_263_168, window=1_024, windowed=29,
        source=Source("https://arxiv.org/abs/2503.19786", "section 2: 5 local layers, window 1,024, to 1 global"),
    ),
    "deepseek-v2": Architecture(
        "DeepSeek-V2", 60, 128, 128, 128, 163_840, 235_741_434_880, latent=512 + 64, experts=True,
        source=Source("https://arxiv.org/abs/2405.04434", "section 3.1.2: MLA, 512 + 64 values a layer"),
    ),
    "deepseek-v3": Architecture(
        "DeepSeek-V3", 61, 128, 128, 128, 163_840, 671_026_419_200, latent=512 + 64, experts=True,
        source=Source("https://arxiv.org/abs/2412.19437", "section 4.2: MLA, 512 + 64 values a layer"),
    ),
}  # fmt: skip
