"""The sections of scripts/gpu-check that no other suite has; see gpu_check.py for what a section prints."""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
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
from small_models import MODELS
from torch import nn
from training_sections import Check, memory, rows, steps, timed, trained, training  # noqa: F401  (main finds sections by name)


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
        yield model.name, lambda m=model: trained(m, device, cuda_graphs=True)  # type: ignore[misc]
        if device == "cuda":
            yield f"{model.name}, timed", lambda m=model: timed(m)  # type: ignore[misc]


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
        yield model.name, lambda m=model: trained(m, device, fused_kernels=True)  # type: ignore[misc]


def _fused(forward: Callable[[Any, torch.Tensor], Any], dtype: torch.dtype, device: str) -> str:
    twins = Twins(Made(forward).to(dtype), f"{device}:0", fused_kernels=True)
    for one in (twins.eager, twins.module):
        one.scale = one.scale.to(dtype)
    exact = copy.deepcopy(twins.eager).double()
    torch.manual_seed(0)
    for _ in range(3):
        x = torch.randn(64, 4, device=device, dtype=dtype)
        twins.call(x) if dtype is torch.float64 else twins.call_beside(exact, x)
    if twins.status.eager_calls:
        return f"in eager: {twins.status.bypass}"
    return "" if twins.status.fused_kernels else "no fused kernel is in use"


def streams(device: str) -> Iterator[Check]:
    """Two side streams in turn, each behind a kernel that sleeps, with a backward on either."""

    def in_turn() -> str:
        twins = Twins(nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)), device)
        main, sides = torch.accelerator.current_stream(), [torch.Stream(device=device) for _ in range(2)]
        for step in range(12):
            side = sides[step % 2]
            x = torch.randn(rows(device), 256, device=device)
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
