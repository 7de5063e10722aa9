"""What the page "Memory" is."""

from dataclasses import dataclass

from kvviz.features.memory.record.architectures import FORMATS, MOST, MOST_BATCH, MOST_POSITIONS
from kvviz.features.memory.record.gpus import GPUS
from kvviz.features.memory.record.presets import PRESETS
from kvviz.features.memory.record.sizes import MOST_MEMORY
from kvviz.ui.spec import OneOf, PageSpec, Real, Try, Whole, setting


@dataclass(frozen=True)
class Own:
    """Model, length, batch and precision of the cache; numbers of a model of one's own; GPU; the engine's budget.

    None: as the run, the model or the GPU has it.
    """

    memory_model: str | None = setting(OneOf(("run", *PRESETS, "own", "config")))
    memory_T: int | None = setting(Whole(1, MOST_POSITIONS))
    memory_B: int | None = setting(Whole(1, MOST_BATCH))
    memory_kv: str | None = setting(OneOf(tuple(FORMATS)))
    memory_by: str = setting(OneOf(("dtype", "batch")), "dtype")
    memory_L: int | None = setting(Whole(0, MOST["layers"]))  # zero gets a sentence
    memory_H: int | None = setting(Whole(0, MOST["heads"]))
    memory_Hkv: int | None = setting(Whole(0, MOST["kv_heads"]))
    memory_D: int | None = setting(Whole(0, MOST["head_dim"]))
    memory_window: int | None = setting(Whole(0, MOST["window"]))
    memory_millions: int | None = setting(Whole(0, 100_000_000))
    memory_gpu: str | None = setting(OneOf(tuple(GPUS)))
    memory_gpus: int | None = setting(Whole(1, 1024))
    memory_weights: str | None = setting(OneOf(tuple(FORMATS)))
    memory_total: float | None = setting(Real(0.0, MOST_MEMORY))
    memory_percent: int | None = setting(Whole(1, 100))
    memory_resident: float | None = setting(Real(0.0, 100_000.0))
    memory_peak: float | None = setting(Real(0.0, 100_000.0))
    memory_other: float | None = setting(Real(0.0, 100_000.0))
    memory_block: int | None = setting(Whole(1, 1024))
    memory_longest: int | None = setting(Whole(1, MOST_POSITIONS))
    memory_request: int | None = setting(Whole(1, MOST_POSITIONS))


SPEC = PageSpec("memory", "price", 12, own=Own, tries=(Try("llama"), Try("window"), Try("mla")))
