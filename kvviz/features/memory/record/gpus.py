"""GPUs: memory and bandwidth from their makers' sheets.

Makers write GB, but the memory chips come in powers of two: an RTX 4090 has 12 of 2 GiB. kvviz counts GiB; the driver
then reports a little less.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.features.memory.record.architectures import Source


@dataclass(frozen=True)
class Gpu:
    """`memory` in GiB, `bandwidth` in bytes a second, `announced` as year and month."""

    name: str
    memory: int
    bandwidth: float
    announced: str
    source: Source

    @property
    def memory_bytes(self) -> int:
        return self.memory * 2**30


def _nvidia(path: str, what: str = "specifications") -> Source:
    return Source(f"https://www.nvidia.com/en-us/{path}", what)


GPUS: dict[str, Gpu] = {  # by memory; the key stands in links
    "t4": Gpu("NVIDIA T4", 16, 320e9, "2018-09", _nvidia("data-center/tesla-t4/")),
    "l4": Gpu("NVIDIA L4", 24, 300e9, "2023-03", _nvidia("data-center/l4/")),
    "rtx-4090": Gpu("NVIDIA RTX 4090", 24, 1_008e9, "2022-09", _nvidia("geforce/graphics-cards/40-series/rtx-4090/")),
    "a100-40": Gpu("NVIDIA A100 40 GB", 40, 1_555e9, "2020-05", _nvidia("data-center/a100/")),
    "l40s": Gpu("NVIDIA L40S", 48, 864e9, "2023-08", _nvidia("data-center/l40s/")),
    "a100-80": Gpu("NVIDIA A100 80 GB SXM", 80, 2_039e9, "2020-11", _nvidia("data-center/a100/")),
    "h100": Gpu("NVIDIA H100 SXM", 80, 3_350e9, "2022-03", _nvidia("data-center/h100/")),
    "h200": Gpu("NVIDIA H200 SXM", 141, 4_800e9, "2023-11", _nvidia("data-center/h200/")),
    "b200": Gpu(
        "NVIDIA B200", 180, 8_000e9, "2024-03",
        _nvidia("data-center/dgx-b200/", "an eighth of a DGX B200's 1,440 GB, 64 TB/s"),
    ),
    "mi300x": Gpu(
        "AMD MI300X", 192, 5_300e9, "2023-12",
        Source("https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html", "specifications"),
    ),
}  # fmt: skip
