"""Runs one training in its own process, driven and measured by demo.py and bench.py.

It writes one JSON object per line on standard output: `ready` when the imports are done, `step` after each
optimizer step, `result` at the end. A number read from standard input runs that many further steps; the
end of input ends the run. Everything else a library prints goes to standard error.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import torch
from trial_process import PHASES, VARIANTS
from workloads import WORKLOADS

_WARM_UP = 5  # steps left out of the median: the allocator, the threads and the plans settle in them


@dataclasses.dataclass
class FirstStep:
    """Holds the seconds of the parts of the first step; their sum runs from before the model is built to its end."""

    construct: float  # the model, its wrapper and the optimizer
    forward: float
    backward: float
    optimizer: float

    @property
    def total(self) -> float:
        """Returns the seconds from just before the model's construction to the end of the first optimizer step."""
        return self.construct + self.forward + self.backward + self.optimizer


class Stopwatch:
    """Measures the seconds since the last lap."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Returns the seconds since the last call, or since construction."""
        last, self._last = self._last, time.perf_counter()
        return self._last - last


def memory_mib(field: str) -> float:
    """Returns a field of /proc/self/status in MiB, such as VmRSS (resident now) or VmHWM (its highest value so far)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}: peak memory needs Linux")


def take_over_stdout() -> TextIO:
    """Returns the real standard output and sends everything else that is printed to standard error."""
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return events


class Trial:
    """Trains a model, step by step."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._workload = WORKLOADS[arguments.model]
        self._variant = arguments.variant
        self._batches = self._workload.batches(arguments.seed)
        self._baseline_mib = memory_mib("VmRSS")
        self._losses: list[float] = []
        self._step_seconds: list[float] = []

        watch = Stopwatch()
        torch.manual_seed(arguments.seed)
        model = self._workload.make_model(arguments.dropout)
        model.train()
        self._model = self._wrap(model, arguments)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=self._workload.learning_rate)
        self._first_step = FirstStep(watch.lap(), 0.0, 0.0, 0.0)

    def _wrap(self, model: torch.nn.Module, arguments: argparse.Namespace) -> torch.nn.Module:
        if self._variant == "compile":
            return torch.compile(model)
        if self._variant == "rekindle":
            import rekindle

            return rekindle.Module(model, rekindle.Options(cache_dir=arguments.cache_dir))
        return model

    def step(self) -> dict[str, Any]:
        """Takes one optimizer step and returns its event."""
        batch = next(self._batches)
        watch = Stopwatch()
        loss = self._workload.loss(self._model(**batch))
        value = loss.item()
        forward = watch.lap()
        loss.backward()
        backward = watch.lap()
        self._optimizer.step()
        self._optimizer.zero_grad()
        optimizer = watch.lap()
        if not self._losses:
            self._first_step = FirstStep(self._first_step.construct, forward, backward, optimizer)
        self._losses.append(value)
        self._step_seconds.append(forward + backward + optimizer)
        return {"event": "step", "step": len(self._losses), "loss": value, "seconds": self._step_seconds[-1]}

    def result(self) -> dict[str, Any]:
        """Returns everything measured so far; the memory is the process's highest, so ask at the end."""
        settled = self._step_seconds[_WARM_UP:] or self._step_seconds[-1:]
        peak = memory_mib("VmHWM")
        return {
            "event": "result",
            "variant": self._variant,
            "first_step_seconds": self._first_step.total,
            "first_step": dataclasses.asdict(self._first_step),
            "step_seconds": statistics.median(settled),
            "peak_mib": peak,
            "peak_growth_mib": peak - self._baseline_mib,
            "losses": self._losses,
            "status": self._status(),
        }

    def _status(self) -> dict[str, Any] | None:
        """Returns where the graph came from and what that took; None for a variant that has no such thing."""
        if self._variant != "rekindle":
            return None
        import rekindle

        status = rekindle.status(self._model)
        return {
            "source": status.source,
            "phases": {phase: getattr(status, f"{phase}_seconds") for phase in PHASES},
            "reasons": [f"{code}: {message}" for code, message in status.fallback],
        }


def prepare(model: str, variant: str) -> None:
    """Imports what the run needs, so that the first step's clock sees the work and not the disk."""
    if WORKLOADS[model].prepare is not None:
        WORKLOADS[model].prepare()
    if variant == "rekindle":
        import rekindle  # noqa: F401


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
    return parser.parse_args()


def main() -> None:
    """Runs the trial."""
    arguments = parse_arguments()
    events = take_over_stdout()

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event), file=events, flush=True)

    prepare(arguments.model, arguments.variant)
    tell({"event": "ready", "threads": torch.get_num_threads()})
    trial = Trial(arguments)
    for count in requests(arguments.steps, sys.stdin):
        for _ in range(count):
            tell(trial.step())
    tell(trial.result())


if __name__ == "__main__":
    main()
