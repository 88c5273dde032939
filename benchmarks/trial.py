"""Runs one training in its own process, driven and measured by demo.py and bench.py.

It writes one JSON object per line on standard output: `ready` when the imports are done, `step` after each
optimizer step, `result` at the end. A number read from standard input runs that many further steps; the
end of input ends the run. Everything else a library prints goes to standard error.

Two variants train nothing: a step of `export` is one torch.onnx.export of the model, a step of `floor` the products of a step.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import torch
from export_trial import Export
from stopwatch import Stopwatch
from trial_process import AUTOCAST, PHASES, VARIANTS
from workloads import WORKLOADS

_WARM_UP = 5  # steps left out of the median: the allocator, the threads and the plans settle in them


def memory_mib(field: str) -> float:
    """Returns a field of /proc/self/status in MiB, such as VmRSS (resident now) or VmHWM (its highest value so far)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}: peak memory needs Linux")


def check_preloaded() -> None:
    """Raises RuntimeError where a library of LD_PRELOAD is not in this process: the loader only prints that it has none."""
    loaded = Path("/proc/self/maps").read_text()
    for name in os.environ.get("LD_PRELOAD", "").split():
        if Path(name).name.split(".so")[0] not in loaded:
            raise RuntimeError(f"{name} was to be preloaded and is not loaded: install it, or leave this subject out")


def take_over_stdout() -> TextIO:
    """Returns the real standard output and sends everything else that is printed to standard error."""
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return events


def on_device(batch: dict[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of a batch on a device."""
    return {name: tensor.to(device) for name, tensor in batch.items()}


def autocast(device: str, dtype: str | None) -> contextlib.AbstractContextManager[Any]:
    """Returns the autocast region that a forward runs in; without a dtype there is none."""
    return torch.autocast(device, getattr(torch, dtype)) if dtype is not None else contextlib.nullcontext()


class Trial:
    """Trains a model, step by step."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._workload = WORKLOADS[arguments.model]
        self._variant = arguments.variant
        self._device, self._autocast = arguments.device, arguments.autocast
        self._batches = self._workload.batches(arguments.seed)
        self._baseline_mib = memory_mib("VmRSS") if self._device == "cpu" else 0.0
        self._losses: list[float] = []
        self._step_seconds: list[float] = []
        self._phases: dict[str, float] = {}  # of the first step

        watch = Stopwatch(self._device)
        torch.manual_seed(arguments.seed)
        model = self._workload.make_model(arguments.dropout).to(self._device)
        model.train()
        self._first_step = {"construct": watch.lap()}
        self._model = self._wrap(model, arguments)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=self._workload.learning_rate)
        self._first_step["wrap"] = watch.lap()

    def _wrap(self, model: torch.nn.Module, arguments: argparse.Namespace) -> torch.nn.Module:
        if self._variant == "compile":
            return torch.compile(model)
        if self._variant == "ortmodule":
            from onnxruntime.training.ortmodule import ORTModule

            return ORTModule(model)
        if self._variant == "rekindle":
            import rekindle

            return rekindle.Module(model, rekindle.Options(cache_dir=arguments.cache_dir))
        return model

    def step(self) -> dict[str, Any]:
        """Takes one optimizer step and returns its event."""
        batch = on_device(next(self._batches), self._device)
        watch = Stopwatch(self._device)
        with autocast(self._device, self._autocast):
            loss = self._workload.loss(self._model(**batch))
        value = loss.item()
        parts = {"forward": watch.lap()}
        loss.backward()
        parts["backward"] = watch.lap()
        self._optimizer.step()
        self._optimizer.zero_grad()
        parts["optimizer"] = watch.lap()
        self._losses.append(value)
        self._step_seconds.append(sum(parts.values()))
        event = {"event": "step", "step": len(self._losses), "loss": value, "seconds": self._step_seconds[-1], **parts}
        if self._variant == "rekindle":
            event["source"] = self._status().source
        if len(self._losses) == 1:
            self._first_step |= parts
            if self._variant == "rekindle":
                self._phases = {phase: getattr(self._status(), f"{phase}_seconds") for phase in PHASES}
        return event

    def result(self) -> dict[str, Any]:
        """Returns everything measured so far; the memory is the process's highest, so ask at the end.

        first_step: seconds of the parts of the first step, from before the model is built to the end of the optimizer's step
        """
        settled = self._step_seconds[_WARM_UP:] or self._step_seconds[-1:]
        peak = memory_mib("VmHWM") if self._device == "cpu" else torch.accelerator.max_memory_allocated() / 2**20
        self._save()
        return {
            "event": "result",
            "variant": self._variant,
            "first_step_seconds": sum(self._first_step.values()),
            "first_step": self._first_step,
            "step_seconds": statistics.median(settled),
            "peak_mib": peak,
            "peak_growth_mib": peak - self._baseline_mib,
            "losses": self._losses,
            "status": self._told(),
        }

    def _save(self) -> None:
        """Writes what torch.compile stores for other processes only when it is asked to."""
        if self._variant == "compile" and os.environ.get("TORCH_CACHING_PRECOMPILE") == "1":
            torch.compiler.save_cache_artifacts()

    def _status(self) -> Any:
        import rekindle

        return rekindle.status(self._model)

    def _told(self) -> dict[str, Any] | None:
        """Returns where the graph came from and what that took; None for a variant that has no such thing."""
        if self._variant != "rekindle":
            return None
        status = self._status()
        reasons = [f"{code}: {message}" for code, message in status.fallback]
        return {"source": status.source, "phases": self._phases, "reasons": reasons}


class Replay:
    """Makes the products of a step again and again: the floor."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import floor

        workload = WORKLOADS[arguments.model]
        torch.manual_seed(arguments.seed)
        self._device = arguments.device
        model = workload.make_model(arguments.dropout).train().to(self._device)
        batch = on_device(next(workload.batches(arguments.seed)), self._device)
        with autocast(self._device, arguments.autocast):
            self._forward, self._backward = floor.record(lambda: workload.loss(model(**batch)))
        self._steps = 0

    def step(self) -> dict[str, Any]:
        """Makes the products of one step and returns its event."""
        watch = Stopwatch(self._device)
        self._forward.replay()
        parts = {"forward": watch.lap()}
        self._backward.replay()
        parts["backward"] = watch.lap()
        self._steps += 1
        return {"event": "step", "step": self._steps, "seconds": sum(parts.values()), **parts}

    def result(self) -> dict[str, Any]:
        """Returns how many products a step has."""
        return {"event": "result", "products": len(self._forward.calls) + len(self._backward.calls)}


def prepare(model: str, variant: str, device: str) -> None:
    """Imports what the run needs, and starts the device, so that the first step's clock sees the work and not the disk."""
    torch.zeros(1, device=device)
    WORKLOADS[model].prepare()
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # the first one imports half of torch._dynamo
    if variant == "rekindle":
        import rekindle  # noqa: F401
    elif variant == "ortmodule":
        import onnxruntime.training.ortmodule  # noqa: F401


def requests(steps: int, commands: TextIO) -> Iterator[int]:
    """Yields how many steps to take next: first those of the command line, then one number per line of input."""
    yield steps
    for line in commands:
        yield int(line)


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=WORKLOADS, required=True)
    parser.add_argument("--variant", choices=VARIANTS, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--cache-dir", help="Rekindle's cache directory")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--autocast", choices=AUTOCAST, help="the dtype that the forward's products have")
    return parser.parse_args()


def main() -> None:
    """Runs the trial."""
    arguments = parse_arguments()
    events = take_over_stdout()

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event), file=events, flush=True)

    check_preloaded()
    prepare(arguments.model, arguments.variant, arguments.device)
    tell({"event": "ready", "threads": torch.get_num_threads(), "torch": torch.__version__})
    trial = {"floor": Replay, "export": Export}.get(arguments.variant, Trial)(arguments)
    for count in requests(arguments.steps, sys.stdin):
        for _ in range(count):
            tell(trial.step())
    tell(trial.result())


if __name__ == "__main__":
    main()
