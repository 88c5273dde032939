"""Sections of scripts/gpu-check that train the small models: what a step asks of the device, losses, memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import rekindle
import torch
from small_models import MODELS, SmallModel

Check = tuple[str, Callable[[], str | None]]  # its name; returns what is wrong, or nothing; None: there is nothing to check


def rows(device: str) -> int:
    """How many a batch has."""
    return 64 if device == "cuda" else 8  # the test device is slow


def timed(model: SmallModel) -> str:
    """Prints what forward and backward take beside eager's; no time is wrong."""
    module, inputs, taken = model.make().cuda(), [x.cuda() for x in model.inputs(16)], {}
    wrapped = rekindle.Module(module, rekindle.Options(log="error", cuda_graphs=True))
    for name, called in (("eager", module), ("replayed", wrapped)):
        for step in range(56):
            if step == 6:
                torch.cuda.synchronize()
                start = time.perf_counter()
            called(*inputs).backward()
        torch.cuda.synchronize()
        taken[name] = f"{(time.perf_counter() - start) / 50 * 1e6:.0f} us"
    print(f"{model.name}: {taken}", file=sys.stderr)
    return ""


def steps(device: str) -> Iterator[Check]:
    """A step waits for the device and allocates no more often than eager's; kernels are counted, too."""
    for model in MODELS:
        yield model.name, lambda m=model: _counted(m, device)  # type: ignore[misc]


def _counted(model: SmallModel, device: str) -> str:
    module, inputs = model.make().to(device), [x.to(device) for x in model.inputs(rows(device))]
    wrapped = rekindle.Module(module, rekindle.Options(log="error"))
    found = {}
    for name, called in (("eager", module), ("graph", wrapped)):
        step = lambda called=called: called(*inputs).backward()  # noqa: E731
        for _ in range(3):
            step()
        found[name] = _counts(step, device)
        module.zero_grad()
    print(f"{model.name}: {found}", file=sys.stderr)
    worse = any(found["graph"][what] > count for what, count in found["eager"].items() if what != "kernels")
    return f"more than eager: {found}" if worse else ""


def _counts(step: Callable[[], None], device: str) -> dict[str, int]:
    """How often a step waits, launches a kernel and, on a GPU, allocates."""
    if device != "cuda":
        own = torch.ops.test_device
        before = own.synchronizations(), own.kernels()
        step()
        return {"waits": own.synchronizations() - before[0], "kernels": own.kernels() - before[1]}
    torch.cuda.synchronize()
    allocated = torch.cuda.memory_stats()["allocation.all.allocated"]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    calls = [event.name for event in seen.events()]  # of the CUDA runtime and driver among others
    return {
        "waits": sum("Synchronize" in name for name in calls),
        "kernels": sum("LaunchKernel" in name for name in calls),
        "allocations": torch.cuda.memory_stats()["allocation.all.allocated"] - allocated,
    }


def training(device: str) -> Iterator[Check]:
    """Losses of 50 steps beside eager's, on a GPU."""
    for model in MODELS:
        yield model.name, lambda m=model: trained(m, device)  # type: ignore[misc]


def trained(model: SmallModel, device: str, **options: bool) -> str:
    """Trains in eager and from a graph with these options; returns what is wrong, or nothing."""
    losses = {}
    for name in ("eager", "graph"):
        torch.manual_seed(0)
        module = model.make().to(device)
        called = rekindle.Module(module, rekindle.Options(log="error", **options)) if name == "graph" else module
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-2)
        losses[name] = []
        for step in range(50 if device == "cuda" else 6):  # the test device is slow
            inputs = [x.to(device) for x in model.inputs(rows(device) // (1 + (step % 5 == 0)))]
            optimizer.zero_grad()
            loss = called(*inputs)
            loss.backward()
            optimizer.step()
            losses[name].append(float(loss))
    if (status := rekindle.status(called)).eager_calls:
        return f"in eager: {status.bypass}"
    if "cuda_graphs" in options and not status.replayed_calls:
        return "no call is replayed"
    apart = max(abs(a - b) / (abs(b) + 1e-6) for a, b in zip(losses["graph"], losses["eager"], strict=True))
    return f"the losses are {apart:.1e} apart" if apart > 1e-3 else ""


def memory(device: str) -> Iterator[Check]:
    """The most that is allocated in steps of 8 sizes is at most eager's."""
    for model in MODELS:
        yield model.name, lambda m=model: _held(m, device)  # type: ignore[misc]


def _held(model: SmallModel, device: str) -> str | None:
    if device != "cuda":
        return None  # nothing counts there
    peaks = {}
    module = model.make().to(device)
    for name, called in (("eager", module), ("graph", rekindle.Module(module, rekindle.Options(log="error")))):
        for timed in (False, True):
            torch.cuda.reset_peak_memory_stats()
            for step in range(16 if timed else 8):
                called(*(x.to(device) for x in model.inputs(rows(device) * (1 + step % 8)))).backward()
                module.zero_grad()
        peaks[name] = torch.cuda.max_memory_allocated()
    print(f"{model.name}: {peaks}", file=sys.stderr)
    return f"bytes at most: {peaks}" if peaks["graph"] > 1.05 * peaks["eager"] + (1 << 20) else ""
