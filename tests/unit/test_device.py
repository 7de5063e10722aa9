"""Which device is taken, what it can do, and the clock around it: with stand-ins for the devices that are not here."""

from __future__ import annotations

import time

import pytest
import torch

from kvviz.core import lessons
from kvviz.engine import load
from kvviz.measure import clock as timing
from kvviz.models import device
from kvviz.theory.memory import human
from tests.unit.conftest import refused

CUDA, MPS, CPU = torch.device("cuda:1"), torch.device("mps"), torch.device("cpu")


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """No owner's choice, no device lost, nothing remembered of what stand-ins could do."""
    monkeypatch.delenv("KVVIZ_DEVICE", raising=False)
    monkeypatch.delenv("KVVIZ_DTYPE", raising=False)
    monkeypatch.setattr(device, "lost", set())
    device._tried.cache_clear()
    yield
    device._tried.cache_clear()


def machine(monkeypatch, *, cuda: int = 0, mps: bool = False) -> None:
    """A machine that says it has these."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "first"), [(2, False, "cuda:0"), (1, True, "cuda:0"), (0, True, "mps"), (0, False, "cpu")]
)
def test_cuda_comes_before_mps_before_the_cpu(monkeypatch, cuda, mps, first):
    machine(monkeypatch, cuda=cuda, mps=mps)
    assert str(device.pick()) == first
    assert str(device.pick("cpu")) == "cpu"


@pytest.mark.parametrize(
    ("named", "taken"),
    [
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        ("CUDA:0", "cuda:0"),
        ("mps", "mps"),
        ("mps:0", "mps"),
        ("cpu:0", "cpu"),
    ],
)
def test_the_owner_may_choose(monkeypatch, named, taken):
    machine(monkeypatch, cuda=2, mps=True)
    assert str(device.pick(named)) == taken
    monkeypatch.setenv("KVVIZ_DEVICE", named)
    assert str(device.pick()) == taken
    assert str(device.pick("cpu")) == "cpu"  # a call that names one goes before


@pytest.mark.parametrize("named", ["cuda:2", "cuda:99", "abacus", "meta", "xla", "cuda:-1", "cpu:1", "mps:1", "cuda:"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch, named):
    machine(monkeypatch, cuda=2)
    refusal = refused("bad_device", device.pick, named)
    assert refusal.values == {"device": named, "there": "cuda:0, cuda:1, cpu"}
    for language in lessons.LANGUAGES:
        assert "cuda:0, cuda:1, cpu" in lessons.text(language, "refusals", refusal.code, **refusal.shown())
    monkeypatch.setenv("KVVIZ_DEVICE", named)
    refused("bad_device", device.pick)


def test_a_lost_device_gives_way(monkeypatch):
    machine(monkeypatch, cuda=2)
    monkeypatch.setenv("KVVIZ_DEVICE", "cuda")
    device.lost.add("cuda")
    assert device.pick() == CPU
    assert refused("bad_device", device.pick, "cuda:0").values["there"] == "cpu"
    monkeypatch.delenv("KVVIZ_DEVICE")
    assert device.pick() == CPU


@pytest.mark.parametrize(
    ("where", "order"),
    [
        (CUDA, ["cuda:1 idle", "clock", "work", "cuda:1 idle", "clock"]),
        (MPS, ["mps idle", "clock", "work", "mps idle", "clock"]),
        (CPU, ["clock", "work", "clock"]),
    ],
)
def test_the_device_is_idle_at_both_readings_of_the_clock(monkeypatch, where, order):
    """A24: without it, a clock sees the launch alone."""
    seen, now = [], iter([10.0, 10.25])

    def clock() -> float:
        seen.append("clock")
        return next(now)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda d: seen.append(f"{d} idle"))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: seen.append("mps idle"))
    monkeypatch.setattr(time, "perf_counter", clock)
    with timing.timed(where) as watch:
        seen.append("work")
    monkeypatch.undo()
    assert seen == order
    assert watch.ms == 250.0


def test_allocator_figures_of_mps(monkeypatch):
    """A26: what it counts, under its own names; what it does not is n/a."""
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 1024)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 4096)
    assert device.allocator(MPS) == device.Allocator(allocated=1024, reserved=4096, peak=None)
    assert (human(1024), human(None)) == ("1.00 KiB", "n/a")


def test_a_mac_says_which_chip(monkeypatch):
    monkeypatch.setattr(device, "_processor", lambda: "arm")
    facts = device.machine_facts(MPS)
    assert (facts.device, facts.device_name) == ("mps", "Apple GPU (arm)")


def test_a_cpu_computes_in_all_three():
    assert device.dtypes(CPU) == ("float32", "float16", "bfloat16")


def test_a_number_format_the_device_cannot_do_is_refused(monkeypatch):
    real, tried = torch.nn.functional.scaled_dot_product_attention, []

    def old(q, k, v, **kwargs):
        tried.append(q.dtype)
        if q.dtype == torch.bfloat16:
            raise TypeError("BFloat16 is not supported on MPS")
        return real(q, k, v, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", old)
    assert device.dtypes(CPU) == device.dtypes(CPU) == ("float32", "float16")
    assert tried == [torch.float16, torch.bfloat16]  # once each
    refusal = refused("dtype_not_here", load, "story-gpt2", device="cpu", dtype="bfloat16")
    assert refusal.values == {"dtype": "bfloat16", "device": "cpu", "there": "float32, float16"}
    assert "float32, float16" in str(refusal)


def test_a_number_format_that_computes_nonsense_does_not_count(monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda q, k, v: q * float("nan"))
    assert device.dtypes(CPU) == ("float32",)


def test_the_owner_may_choose_the_number_format(monkeypatch):
    monkeypatch.setenv("KVVIZ_DTYPE", "bfloat16")
    model = load("story-llama", device="cpu")
    assert (model.facts.dtype, model.facts.value_bytes) == ("bfloat16", 2)
    assert next(model.module.parameters()).dtype == torch.bfloat16
    assert load("story-llama", device="cpu", dtype="float32").facts.dtype == "float32"
    monkeypatch.setenv("KVVIZ_DTYPE", "float64")
    assert refused("bad_dtype", load, "story-llama", device="cpu").values == {"dtype": "float64"}


def accelerator_error(text: str) -> RuntimeError:
    return getattr(torch, "AcceleratorError", RuntimeError)(text)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("MPS backend out of memory (MPS allocated: 5.05 GB, other allocations: 2.30 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        accelerator_error("CUDA error: out of memory"),
    ],
)
def test_no_memory_has_many_names(error):
    assert device.is_out_of_memory(error)
    assert not device.is_failure(error)


def test_what_this_cpu_says_when_memory_is_out():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert device.is_out_of_memory(caught.value)


def test_a_failing_device_and_a_failing_program_differ():
    assert device.is_failure(accelerator_error("CUDA error: device-side assert triggered"))
    assert device.is_failure(RuntimeError("CUDA error: an illegal memory access was encountered"))
    for error in (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("CUDA error: x"), KeyError(1)):
        assert not device.is_failure(error)
        assert not device.is_out_of_memory(error)


def test_a_device_that_works_answers(monkeypatch):
    assert device.answers(CPU)
    monkeypatch.setattr(torch, "ones", lambda *a, **k: torch.zeros(2))
    assert not device.answers(CPU)

    def dead(*_, **__):
        raise accelerator_error("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch, "ones", dead)
    assert not device.answers(CUDA)


@pytest.mark.parametrize(("where", "emptied"), [(CUDA, ["cuda"]), (MPS, ["mps"]), (CPU, [])])
def test_what_nobody_holds_is_handed_back(monkeypatch, where, emptied):
    seen = []

    def dead() -> None:
        seen.append("cuda")
        raise accelerator_error("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "empty_cache", dead)  # a lost device raises here too
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: seen.append("mps"))
    device.free(where)
    assert seen == emptied
