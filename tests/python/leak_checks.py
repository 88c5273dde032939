"""Memory over many wraps and many steps: what lives, and what a step allocates. scripts/leaks runs the long form."""

from __future__ import annotations

import argparse
import gc
import os
import pathlib
import sys
import tempfile
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import rekindle
import torch
from torch import nn

torch.set_num_threads(1)  # the models are too small for more

Model = Callable[[], nn.Module]


class Views(nn.Module):
    """A dict with views of an input and of an output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> Any:
        y = self.linear(x) * scale
        return {"y": y, "first": y[:1], "given": x[1:]}


class Branches(nn.Module):
    """Stays in eager, with two parts that do not."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(x)
        return self.two(x if x.sum() > 0 else -x)


MODELS: dict[str, Model] = {
    "perceptron": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
    "buffers": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 2)),
    "views": Views,
    "parts": Branches,
}


def step(model: nn.Module) -> None:
    """A forward and a backward of a fixed batch."""
    result = model(torch.ones(3, 4))
    total = result["y"].sum() + result["first"].sum() if isinstance(result, dict) else result.sum()
    model.zero_grad()
    total.backward()


def wrapped(make: Model) -> rekindle.Module:
    return rekindle.Module(make(), rekindle.Options(log="error"))


def live() -> dict[str, int]:
    """What is there now: tensors, our modules, blocks of Python's allocator, open files, resident bytes."""
    gc.collect()
    rekindle.lookup.store.flush()
    kinds = [type(thing) for thing in gc.get_objects()]
    return {
        "tensors": sum(issubclass(kind, torch.Tensor) for kind in kinds),
        "modules": sum(issubclass(kind, nn.Module) for kind in kinds),
        "blocks": sys.getallocatedblocks(),
        "files": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        "resident": resident(),
    }


def resident() -> int:
    """Bytes in memory; 0 where the system does not tell."""
    statm = pathlib.Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def growth_of_wraps(count: int, make: Model, warm_up: int = 60) -> dict[str, int]:
    """What `count` modules that are wrapped, trained for a step and dropped leave behind."""
    last: Any = None
    for i in range(warm_up + count):
        if i == warm_up:
            before = live()
        model = wrapped(make)
        step(model)
        last = weakref.ref(model.module)
        del model
    after = live()
    assert last() is None, "the wrapped module is still there"
    return {name: after[name] - before[name] for name in after}


# Steps until Python's lists of free tuples, which a collection empties, are as long as they get; eager needs as many.
_FREE_TUPLES = 2200


def growth_of_steps(count: int, make: Model) -> dict[str, int]:
    """What `count` steps of one module leave behind, without the help of the garbage collector."""
    model = wrapped(make)
    step(model)
    gc.collect()
    gc.disable()
    try:
        for _ in range(_FREE_TUPLES):
            step(model)
        blocks, bytes_before = sys.getallocatedblocks(), resident()
        for _ in range(count):
            step(model)
        return {"blocks": sys.getallocatedblocks() - blocks, "resident": resident() - bytes_before}
    finally:
        gc.enable()


def blocks_of_a_kept_call(make: Model, count: int = 1000) -> float:
    """Python's blocks that one forward leaves while its result is kept."""
    model = wrapped(make)
    x = torch.ones(3, 4)
    for _ in range(50):
        model(x)
    kept: list[Any] = [None] * count
    live()  # nothing is being stored or freed now
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        for i in range(count):
            kept[i] = model(x)
        return (sys.getallocatedblocks() - before) / count
    finally:
        gc.enable()


def passing_bytes(make: Model) -> int:
    """The most that Python has allocated at any moment of one forward, beyond what was there before."""
    model = wrapped(make)
    x = torch.ones(3, 4)
    for _ in range(50):
        model(x)
    tracemalloc.start()
    try:
        most = []
        for _ in range(5):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            result = model(x)
            most.append(tracemalloc.get_traced_memory()[1] - before)
            del result
    finally:
        tracemalloc.stop()
    return min(most)


def main() -> None:
    """The long form: fails where memory is not flat."""
    parser = argparse.ArgumentParser(description="Wraps many modules and runs many steps; fails if memory grows.")
    parser.add_argument("--wraps", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as directory:
        os.environ["REKINDLE_CACHE_DIR"] = directory
        for name, make in MODELS.items():
            grown = growth_of_wraps(options.wraps, make)
            flat = (
                grown["tensors"] == grown["modules"] == grown["files"] == 0 and grown["blocks"] <= 1000 + options.wraps
            )  # caches of Python fill
            flat = flat and grown["resident"] < 8 << 20
            print(f"{'ok  ' if flat else 'GROW'} {options.wraps} wraps of {name}: {grown}", flush=True)
            steps = growth_of_steps(options.steps, make)
            steady = steps["blocks"] < 100 and steps["resident"] < 4 << 20
            print(f"{'ok  ' if steady else 'GROW'} {options.steps} steps of {name}: {steps}", flush=True)
            print(
                f"     one call of {name}: {blocks_of_a_kept_call(make):.2f} blocks kept, {passing_bytes(make)} bytes at most",
                flush=True,
            )
            failures += not flat
            failures += not steady
        rekindle.lookup.store.flush()
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
