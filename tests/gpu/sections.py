"""The sections of scripts/gpu-check that no other suite has; see gpu_check.py for what a section prints."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import rekindle
import torch
from chains import CHAINS
from device_cases import REFUSED, SERVED
from device_of_tests import fuse_on, load_test_device, replay_from_the_first_run
from device_twins import Made, Twins
from function_support import FUNCTIONS
from small_models import MODELS, SmallModel
from torch import nn

Check = tuple[str, Callable[[], str | None]]  # its name; returns what is wrong, or nothing; None: there is nothing to check


def _rows(device: str) -> int:
    return 64 if device == "cuda" else 8  # the test device is slow


def environment(device: str) -> Iterator[Check]:
    """One check: whether the device is there; its name is the section's note."""
    if device == "cuda":
        found = torch.cuda.get_device_properties(0)
        print(f"{found.name}, sm_{found.major}{found.minor}, torch {torch.__version__}", file=sys.stderr)
    yield f"{device} is there", lambda: "" if torch.accelerator.is_available() else "no device"


def calls(device: str) -> Iterator[Check]:
    """Asks what tests/device/test_calls.py does, on every index."""
    indices = [f"{device}:{i}" for i in range(min(2, torch.accelerator.device_count()))]
    for name, forward in SERVED.items():
        for index in indices:
            yield f"{name} on {index}", lambda f=forward, i=index: _served(Twins(Made(f), i), [(3, 4), (3, 4), (5, 4)])  # type: ignore[misc]
    for name, forward in REFUSED.items():
        yield name, lambda f=forward: _refused(Twins(Made(f), f"{device}:0"))  # type: ignore[misc]


def _served(twins: Twins, sizes: list[tuple[int, ...]]) -> str:
    device = next(twins.module.parameters()).device
    for size in sizes:
        twins.call(torch.randn(size, device=device))
    return f"in eager: {twins.status.bypass}" if twins.status.eager_calls else ""


def _refused(twins: Twins) -> str:
    twins.call(torch.randn(3, 4, device=next(twins.module.parameters()).device))
    return "" if twins.reasons() == ["unsupported_device"] else f"not refused: {twins.status}"


def replays(device: str) -> Iterator[Check]:
    """The forwards of `calls`, and the small models' training, by launches that the device repeats (cuda_graphs)."""
    if device == "test":
        replay_from_the_first_run(device)
    for name, forward in SERVED.items():
        yield name, lambda f=forward: _replayed(Twins(Made(f), f"{device}:0", cuda_graphs=True))  # type: ignore[misc]
    for model in MODELS:
        yield model.name, lambda m=model: _trained(m, device, cuda_graphs=True)  # type: ignore[misc]
        if device == "cuda":
            yield f"{model.name}, timed", lambda m=model: _timed(m)  # type: ignore[misc]


def _replayed(twins: Twins) -> str:
    device = next(twins.module.parameters()).device
    for _ in range(8):
        twins.call(torch.randn(3, 4, device=device))
    return "" if twins.status.replayed_calls >= 2 else f"{twins.status.replayed_calls} of 8 calls are replayed"


def fused(device: str) -> Iterator[Check]:
    """Chains of pointwise operators in all types, and the small models' training, with fused_kernels."""
    fuse_on(device)
    for name, forward in CHAINS.items():
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            yield f"{name} in {dtype}", lambda f=forward, d=dtype: _fused(f, d, device)  # type: ignore[misc]
    for model in MODELS:
        yield model.name, lambda m=model: _trained(m, device, fused_kernels=True)  # type: ignore[misc]


def _fused(forward: Callable[[Any, torch.Tensor], Any], dtype: torch.dtype, device: str) -> str:
    twins = Twins(Made(forward).to(dtype), f"{device}:0", fused_kernels=True)
    for copy in (twins.eager, twins.module):
        copy.scale = copy.scale.to(dtype)
    rounded = {"rtol": 4e-2, "atol": 4e-2} if dtype.itemsize == 2 else {}
    for _ in range(3):
        twins.call(torch.randn(64, 4, device=device, dtype=dtype), **rounded)
    if twins.status.eager_calls:
        return f"in eager: {twins.status.bypass}"
    return "" if twins.status.fused_kernels else "no fused kernel is in use"


def _timed(model: SmallModel) -> str:
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


def streams(device: str) -> Iterator[Check]:
    """Two side streams in turn, each behind a kernel that sleeps, with a backward on either."""

    def in_turn() -> str:
        twins = Twins(nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)), device)
        main, sides = torch.accelerator.current_stream(), [torch.Stream(device=device) for _ in range(2)]
        for step in range(12):
            side = sides[step % 2]
            x = torch.randn(_rows(device), 256, device=device)
            side.wait_stream(main)
            with side:
                if device == "cuda":
                    torch.cuda._sleep(20_000_000)
                twins.call(x)
            main.wait_stream(side)
        return f"in eager: {twins.status.bypass}" if twins.status.eager_calls else ""

    yield "two streams in turn", in_turn


def functions(device: str) -> Iterator[Check]:
    """The autograd Functions of tests/python."""

    def run(make: Callable[[], nn.Module]) -> str | None:
        with torch.device(device):  # what their forwards make is there, too
            twins = Twins(make(), device)
            try:
                twins.eager(torch.randn(5, 4)).sum().backward()
            except Exception:  # what a backward makes in the device's thread is on the host, say
                return None
            for _ in range(2):
                twins.call(torch.randn(5, 4))
        return ""

    for part in ("", "_calls", "_kinds", "_memory", "_results"):
        importlib.import_module(f"function_cases{part}")
    cases = {name: make for name, make in FUNCTIONS.items() if name != "Fused"}  # a copy of its parameters lacks their attribute
    for name, make in cases.items():
        yield name, lambda m=make: run(m)  # type: ignore[misc]


def steps(device: str) -> Iterator[Check]:
    """A step waits for the device and allocates no more often than eager's; kernels are counted, too."""
    for model in MODELS:
        yield model.name, lambda m=model: _counted(m, device)  # type: ignore[misc]


def _counted(model: SmallModel, device: str) -> str:
    module, inputs = model.make().to(device), [x.to(device) for x in model.inputs(_rows(device))]
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
        yield model.name, lambda m=model: _trained(m, device)  # type: ignore[misc]


def _trained(model: SmallModel, device: str, **options: bool) -> str:
    losses = {}
    for name in ("eager", "graph"):
        torch.manual_seed(0)
        module = model.make().to(device)
        called = rekindle.Module(module, rekindle.Options(log="error", **options)) if name == "graph" else module
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-2)
        losses[name] = []
        for step in range(50 if device == "cuda" else 6):  # the test device is slow
            inputs = [x.to(device) for x in model.inputs(_rows(device) // (1 + (step % 5 == 0)))]
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
                called(*(x.to(device) for x in model.inputs(_rows(device) * (1 + step % 8)))).backward()
                module.zero_grad()
        peaks[name] = torch.cuda.max_memory_allocated()
    print(f"{model.name}: {peaks}", file=sys.stderr)
    return f"bytes at most: {peaks}" if peaks["graph"] > 1.05 * peaks["eager"] + (1 << 20) else ""


def sanitizer(device: str) -> Iterator[Check]:
    """The section `streams` under compute-sanitizer, where it is installed."""
    tool = shutil.which("compute-sanitizer") if device == "cuda" else None

    def run() -> str | None:
        if tool is None:
            return None
        command = [tool, "--error-exitcode", "7", sys.executable, __file__, "streams", "--device", device]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout[-500:]

    yield "compute-sanitizer", run


def _outcome(check: Callable[[], str | None]) -> str | None:
    try:
        return check()
    except AssertionError as error:
        return f"differs from eager: {(str(error).strip().splitlines() or [''])[0]}"
    except Exception as error:  # a section goes on, and names what raised
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def main() -> int:
    """Runs one section and prints its outcome; 1 when anything is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("section")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    if given.device == "test":
        load_test_device()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    right, skipped, wrong = 0, 0, []
    with tempfile.TemporaryDirectory() as directory:
        os.environ["REKINDLE_CACHE_DIR"] = directory
        for name, check in globals()[given.section](given.device):
            found = _outcome(check)
            right += found == ""
            skipped += found is None
            wrong += [f"{name}: {found}"] if found else []
        rekindle.lookup.store.flush()
    note = torch.cuda.get_device_name() if given.section == "environment" and given.device == "cuda" else ""
    print(json.dumps({"right": right, "wrong": wrong, "skipped": skipped, **({"note": note} if note else {})}))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
