"""Lists the kernels of a training step, eager's beside the graph's: `scripts/bench kernels --model gpt2-12-gpu --device cuda`.

On a GPU these are its kernels and copies; on the CPU they are PyTorch's operators, with their own time. Forward and backward
count, once under torch.profiler after steps that warm up; before that, their time is taken without it: until the host is done,
and until the device is. Nothing is written but standard output.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

from workloads import WORKLOADS

_PARTS = ("forward, host", "forward", "backward, host", "backward")


def _synchronize(device: str) -> None:
    import torch

    if device != "cpu":
        torch.accelerator.synchronize()


class Step:
    """Takes forward and backward of one batch."""

    def __init__(self, options: argparse.Namespace, wrap: Callable[[Any], Any]) -> None:
        import torch
        from trial import on_device

        torch.manual_seed(0)
        workload = WORKLOADS[options.model]
        self._options, self._loss = options, workload.loss
        self._model = workload.make_model(0.1).to(options.device).train()
        self._called = wrap(self._model)
        self._batch = on_device(next(workload.batches(0)), options.device)

    def timed(self) -> list[float]:
        """Returns the milliseconds of each of _PARTS."""
        from trial import autocast

        device, times = self._options.device, []
        _synchronize(device)
        start = time.perf_counter()

        def lap() -> None:
            times.append((time.perf_counter() - start) * 1e3)

        with autocast(device, self._options.autocast):
            loss = self._loss(self._called(**self._batch))
        lap()
        _synchronize(device)
        lap()
        start = time.perf_counter()
        loss.backward()
        lap()
        _synchronize(device)
        lap()
        self._model.zero_grad()
        return times

    def kernels(self) -> tuple[Counter[str], Counter[str]]:
        """Returns the milliseconds and the number of launches of each kernel."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        on_gpu = self._options.device == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as recorded:
            self.timed()
        taken: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for event in recorded.events():
            if on_gpu == (event.device_type == torch.autograd.DeviceType.CUDA):
                taken[event.name] += (event.device_time if on_gpu else event.self_cpu_time_total) / 1e3
                count[event.name] += 1
        return taken, count


def measure(options: argparse.Namespace, name: str, wrap: Callable[[Any], Any]) -> None:
    """Prints what a step takes, and its kernels."""
    step = Step(options, wrap)
    for _ in range(5):
        step.timed()
    rows = [step.timed() for _ in range(options.steps)]
    parts = ", ".join(f"{part} {median(column):.2f}" for part, column in zip(_PARTS, zip(*rows, strict=True), strict=True))
    taken, count = step.kernels()
    print(f"{name}: {parts} ms; kernels {sum(taken.values()):.2f} ms, {sum(count.values())} of them")
    for kernel, milliseconds in taken.most_common(options.top):
        print(f"  {milliseconds:8.3f} ms {count[kernel]:5d}  {kernel[:110]}")


def main(arguments: list[str]) -> None:
    """Measures eager, the graph and, with --replay or --fuse, the graph with cuda_graphs or fused_kernels."""
    parser = argparse.ArgumentParser(
        prog="bench kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="mlp", choices=WORKLOADS)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--autocast", choices=("bfloat16", "float16"), help="the dtype of the region that forwards run in")
    parser.add_argument("--steps", type=int, default=15, help="that are timed (default: 15)")
    parser.add_argument("--top", type=int, default=25, help="kernels that are listed (default: 25)")
    parser.add_argument("--replay", action="store_true", help="the graph with cuda_graphs, too; its kernels are those without")
    parser.add_argument("--fuse", action="store_true", help="the graph with fused_kernels, too")
    options = parser.parse_args(arguments)
    WORKLOADS[options.model].prepare()
    import rekindle

    with tempfile.TemporaryDirectory() as directory:

        def wrapped(model: Any, **more: bool) -> Any:
            return rekindle.Module(model, rekindle.Options(cache_dir=directory, log="error", fallback="error", **more))

        measure(options, "eager", lambda model: model)
        measure(options, "graph", wrapped)
        if options.replay:
            measure(options, "graph, replayed", lambda model: wrapped(model, cuda_graphs=True))
        if options.fuse:
            measure(options, "graph, fused", lambda model: wrapped(model, fused_kernels=True))
        rekindle.lookup.store.flush()
