"""Where tensors live and what that machine is: CUDA where there is one, else Apple's GPU (MPS), else the CPU.

torch comes in with the first question that needs it, so that `owner_dtype` can be asked before.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import platform
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvviz.core.facts import MachineFacts
from kvviz.core.refusal import Refusal

if TYPE_CHECKING:
    import torch

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes a value
lost: set[str] = set()  # kinds of device that failed for good in this process: "cuda", "mps"


@dataclass(frozen=True)
class Allocator:
    """PyTorch's own counters in bytes, for all its tensors; None where it keeps none (a CPU, MPS's peak)."""

    allocated: int | None  # in live tensors
    reserved: int | None  # taken from the driver, in use or not
    peak: int | None  # most ever allocated since the last reset


def available() -> tuple[str, ...]:
    """The devices that work here, best first: "cuda:0", …, "mps", "cpu"."""
    import torch

    found = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    if torch.backends.mps.is_available():
        found.append("mps")
    return (*(name for name in found if name.split(":")[0] not in lost), "cpu")


def pick(device: str | None = None) -> torch.device:
    """The named device, else the owner's choice (KVVIZ_DEVICE), else the first of `available`.

    Raises Refusal "bad_device" with what there is. A device that the owner chose and that failed since gives way.
    """
    import torch

    there, named = available(), device or os.environ.get("KVVIZ_DEVICE", "").strip()
    if not named or (not device and named.lower().split(":")[0] in lost):
        return torch.device(there[0])
    match = re.fullmatch(r"(cuda|mps|cpu)(?::(\d{1,3}))?", named.lower())
    number = int(match[2] or 0) if match else 0
    name = f"cuda:{number}" if match and match[1] == "cuda" else match[1] if match and number == 0 else named
    if name not in there:
        raise Refusal("bad_device", device=named, there=", ".join(there))
    return torch.device(name)


def owner_dtype() -> str:
    """The number format of weights and cache where nobody asks for another: KVVIZ_DTYPE, else float32."""
    return os.environ.get("KVVIZ_DTYPE", "").strip() or "float32"


def dtypes(device: torch.device) -> tuple[str, ...]:
    """The number formats the device computes in, tried once: a matrix product and an attention of each."""
    return _tried(str(device))


@functools.cache
def _tried(device: str) -> tuple[str, ...]:
    return tuple(name for name in DTYPES if name == "float32" or _computes(device, name))


def _computes(device: str, dtype: str) -> bool:
    import torch

    try:
        x = torch.ones(1, 1, 2, 8, dtype=getattr(torch, dtype), device=device)  # (B, H, T, D)
        attended = torch.nn.functional.scaled_dot_product_attention(x, x, x)  # rows of ones
        return float((attended @ x.mT).float().sum().cpu()) == 32.0  # 2·2 sums of 8
    except Exception:  # each backend has its own
        return False


def check_dtype(dtype: str, device: torch.device) -> None:
    """Raises Refusal "bad_dtype" for a name kvviz does not know, "dtype_not_here" for one the device can't do."""
    if dtype not in DTYPES:
        raise Refusal("bad_dtype", dtype=dtype)
    if dtype != "float32" and dtype not in dtypes(device):
        raise Refusal("dtype_not_here", dtype=dtype, device=str(device), there=", ".join(dtypes(device)))


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished: without it a clock sees only the launch."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def allocator(device: torch.device) -> Allocator:
    import torch

    if device.type == "cuda":
        return Allocator(
            torch.cuda.memory_allocated(device),
            torch.cuda.memory_reserved(device),
            torch.cuda.max_memory_allocated(device),
        )
    if device.type == "mps":
        return Allocator(torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory(), None)
    return Allocator(None, None, None)


def is_out_of_memory(error: BaseException) -> bool:
    """Is it one of the many ways in which torch, a driver or Python says that memory has run out?"""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in said for words in _NO_MEMORY)


# PyTorch's CPU allocator (Linux, Windows), CUDA and MPS, cuBLAS.
_NO_MEMORY = ("defaultcpuallocator: ", "out of memory", "cublas_status_alloc_failed")


def is_failure(error: BaseException) -> bool:
    """Does the error come from the device itself, not from the program: a failed assertion in a kernel, say?"""
    import torch

    if is_out_of_memory(error):
        return False
    if isinstance(error, getattr(torch, "AcceleratorError", ())):
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in said for words in _FAILED)


_FAILED = ("cuda error", "device-side assert", "cublas_status_", "cudnn_status_", "mps backend", "command buffer")


def free(device: torch.device) -> None:
    """Hand back what the allocator holds for nobody. Says nothing where the device no longer answers."""
    import torch

    gc.collect()  # captures and their frames may form circles
    with contextlib.suppress(RuntimeError):
        if device.type == "cuda":
            torch.cuda.empty_cache()
        elif device.type == "mps":
            torch.mps.empty_cache()


def answers(device: torch.device) -> bool:
    """Does the device still add two numbers? After a failed assertion inside a kernel, CUDA never does again."""
    import torch

    try:
        return float(torch.ones(2, device=device).sum().cpu()) == 2.0
    except Exception:
        return False


def machine_facts(device: torch.device) -> MachineFacts:
    import torch
    import transformers

    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = f"Apple GPU ({_processor()})" if device.type == "mps" else _processor()
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
