"""Where tensors live and what that machine is. CUDA where there is one, the CPU elsewhere."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import torch
import transformers

from kvviz.records.facts import MachineFacts
from kvviz.refusal import Refusal


@dataclass(frozen=True)
class Allocator:
    """PyTorch's own counters in bytes, for all its tensors; None where it keeps none (a CPU)."""

    allocated: int | None  # in live tensors
    reserved: int | None  # taken from the driver, in use or not
    peak: int | None  # most ever allocated since the last reset


def pick(device: str | None = None) -> torch.device:
    """The named device, else the first CUDA device, else the CPU. Raises Refusal "bad_device"."""
    if device is None:
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        named = torch.device(device)
    except RuntimeError:
        raise Refusal("bad_device", device=device) from None
    if named.type == "cuda" and (named.index or 0) < torch.cuda.device_count():
        return torch.device("cuda", named.index or 0)
    if named.type == "cpu":
        return torch.device("cpu")
    raise Refusal("bad_device", device=device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished: without it a clock sees only the launch."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def allocator(device: torch.device) -> Allocator:
    if device.type != "cuda":
        return Allocator(None, None, None)
    return Allocator(
        torch.cuda.memory_allocated(device),
        torch.cuda.memory_reserved(device),
        torch.cuda.max_memory_allocated(device),
    )


def machine_facts(device: torch.device) -> MachineFacts:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return MachineFacts(
        device=str(device),
        device_name=name,
        threads=torch.get_num_threads(),
        python=platform.python_version(),
        torch=torch.__version__,
        transformers=transformers.__version__,
        system=f"{platform.system()} {platform.machine()}",
    )


def _processor() -> str:
    """The processor's own name where Linux tells it, else what the platform says."""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith("model name"):
                    return " ".join(line.split(":", 1)[1].split())
    return platform.processor() or platform.machine()
