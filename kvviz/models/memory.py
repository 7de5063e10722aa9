"""What a model needs in memory, and what there is, before anything is loaded.

Reads headers and what the system says only; torch is asked for a GPU alone, and never imported here for a CPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import psutil

from kvviz.core.refusal import Refusal
from kvviz.models import catalog, device
from kvviz.models.weights import parameters

# Beside the weights: K and V, one pass's scores and logits, what a library takes for its own work.
MARGIN = 256 * 2**20
# transformers 5.17 and 5.24 map the file and convert tensor by tensor. Loading SmolLM2's 513 MiB of float32 as
# bfloat16 took 308 MiB of anonymous memory at most for 257 MiB of weights; the mapped file can be dropped at any time.
LOADING = 1.2


class Figures(NamedTuple):
    """Bytes needed and there; None where that is not known, which is no reason to refuse."""

    needed: int | None
    there: int | None
    device: str

    @property
    def fits(self) -> bool:
        return self.needed is None or self.there is None or self.needed <= self.there


def needed(entry: catalog.Entry, dtype: str = "float32", device_name: str = "cpu") -> int | None:
    """Bytes that loading and running take: weights in that dtype (with LOADING in the host's memory), and MARGIN.

    None when unknown.
    """
    try:
        count = parameters(entry.path) if entry.path else entry.parameters
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # loading it will say what is damaged
        count = entry.parameters
    if not count or dtype not in device.DTYPES:
        return None
    return int(count * device.DTYPES[dtype] * (LOADING if device_name == "cpu" else 1)) + MARGIN


def there(name: str) -> int | None:
    """Bytes free on that device ("cpu", "mps", "cuda:0"); None when it can't be told."""
    if name == "cpu":
        return _host()
    import torch

    try:
        if name == "mps":
            return max(0, torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
        kept = torch.cuda.memory_reserved(name) - torch.cuda.memory_allocated(name)  # by PyTorch, for nobody
        return torch.cuda.mem_get_info(name)[0] + kept
    except (RuntimeError, AssertionError):  # torch was built without it, or the device no longer answers
        return None


def figures(entry: catalog.Entry, device_name: str | None = None, dtype: str | None = None) -> Figures:
    """What `entry` needs, and what is there, on the device that would be picked. Imports no torch for a CPU.

    Before torch is there, a machine that seems to have a GPU gives None for `there`.
    """
    name = device_name or _picked()
    want = needed(entry, dtype or device.owner_dtype(), name)
    if name != "cpu" and "torch" not in sys.modules:
        return Figures(want, None, name)
    return Figures(want, there(name), name)


def _picked() -> str:
    if (named := os.environ.get("KVVIZ_DEVICE", "").strip().lower()) == "cpu":
        return "cpu"
    if "torch" in sys.modules:
        try:
            return str(device.pick())
        except Refusal:  # loading will say so
            return named
    return named or ("mps" if sys.platform == "darwin" else "cuda:0" if os.path.exists("/dev/nvidiactl") else "cpu")


def gib(n: int | None) -> str:
    """Bytes as GiB with two digits, as the sentence has them."""
    return "n/a" if n is None else f"{n / 2**30:,.2f} GiB"


def check(entry: catalog.Entry, device_name: str, dtype: str) -> None:
    """Raises a Refusal when the model can't fit: on the device, or in the host's memory, through which its weights go.

    "no_memory_for_model", or "no_memory_dtype", "no_memory_device", "no_memory_either" where bfloat16, another device
    or either of them would do.
    """
    if (found := _lacking(entry, device_name, dtype)) is None:
        return
    said = {"needed": gib(found.needed), "there": gib(found.there), "device": found.device}
    half = dtype == "float32" and _computes(device_name, "bfloat16") and not _lacking(entry, device_name, "bfloat16")
    other = next((d for d in device.available() if d != device_name and not _lacking(entry, d, dtype)), None)
    if half:
        said["half"] = gib(needed(entry, "bfloat16", found.device))
    if other:
        said["other"] = other
    code = "no_memory_either" if half and other else "no_memory_dtype" if half else "no_memory_device"
    raise Refusal(code if half or other else "no_memory_for_model", model=entry.name, dtype=dtype, **said)


def _lacking(entry: catalog.Entry, device_name: str, dtype: str) -> Figures | None:
    """The figures of the first memory that the model does not fit into, or None."""
    every = (figures(entry, name, dtype) for name in dict.fromkeys((device_name, "cpu")))
    return next((found for found in every if not found.fits), None)


def _computes(device_name: str, dtype: str) -> bool:
    import torch

    return dtype in device.dtypes(torch.device(device_name))


def _host(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes a process may still take: what the system calls available, or what its control groups leave if that is
    less. None where the system doesn't say."""
    try:
        free = psutil.virtual_memory().available
    except (OSError, psutil.Error):  # a container that hides /proc/meminfo, say
        return None
    return max(0, min([free, *_left_by_groups(proc, cgroups)]))


def _left_by_groups(proc: Path, cgroups: Path) -> list[int]:
    """Limit less use in each control group from this process's own up to the root. Cached files (inactive_file) can
    go, so they do not count as used."""
    try:
        groups = [line.split(":", 2) for line in (proc / "self" / "cgroup").read_text().splitlines()]
    except OSError:
        return []
    left = []
    for number, controllers, path in (g for g in groups if len(g) == 3):
        if number == "0" and not controllers:  # version 2
            root, limit, used, cached = cgroups, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):  # version 1
            root, cached = cgroups / "memory", "total_inactive_file"
            limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        own = root / path.lstrip("/")  # in a container this may be a path of the host, and not there
        for folder in (own, *own.parents):
            if folder != root and root not in folder.parents:
                break
            try:
                most = int((folder / limit).read_text())  # "max": no limit
                use = int((folder / used).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                left.append(most - use + int(stat.get(cached, 0)))
            except (OSError, ValueError):
                continue
    return left
