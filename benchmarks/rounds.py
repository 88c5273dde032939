"""Runs the rounds of the benchmark: every subject in a fresh process, and its steps in turn with those of an eager process."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import Turn, figures
from subjects import SUBJECTS, in_order, preloaded, why_absent
from trial_process import Trial, TrialError, TrialProcess

# Variables that would make another subject of every process: a subject has those that it names.
# PYTHONDONTWRITEBYTECODE: Rekindle would be compiled at each start, in 0.1 s, and PyTorch, which was installed, would not.
_OF_SUBJECTS = ("REKINDLE_", "MALLOC_", "TORCHINDUCTOR_", "TORCH_CACHING_PRECOMPILE", "LD_PRELOAD", "PYTHONDONTWRITEBYTECODE")


def drop_settings() -> None:
    """Removes from the environment, which processes that are started inherit, what is for subjects to set."""
    for name in [name for name in os.environ if name.startswith(_OF_SUBJECTS)]:
        del os.environ[name]


@dataclass(frozen=True)
class Plan:
    """Says what to measure.

    steps: those that every subject takes alone, from its start on
    turns, turn_steps: blocks of steps after these, in turn with eager, and their length
    ortmodule: the interpreter that has onnxruntime-training
    device, autocast: where models are trained, and the dtype of the autocast around their forward, if any
    """

    models: list[str]
    subjects: list[str]
    threads: list[int]
    rounds: int = 3
    steps: int = 100
    turns: int = 4
    turn_steps: int = 5
    dropout: float = 0.1
    ortmodule: str | None = None
    device: str = "cpu"
    autocast: str | None = None

    def absent(self) -> list[dict[str, str]]:
        """Returns what cannot be measured here, and why."""
        pairs = [(model, name, why_absent(name, model, self.ortmodule)) for model in self.models for name in self.subjects]
        return [{"model": model, "subject": name, "why": why} for model, name, why in pairs if why is not None]


@dataclass
class Progress:
    """Tells how far a run is, and how long the rest takes if its processes take as long as those before."""

    total: int  # processes
    done: int = 0
    _seconds: dict[tuple[Any, ...], float] = field(default_factory=dict)

    def finished(self, cell: tuple[Any, ...], seconds: float) -> None:
        """Notes that a process of a subject, model and number of threads has ended."""
        self.done += 1
        self._seconds[cell] = seconds

    def seconds_left(self, cells: list[tuple[Any, ...]]) -> float:
        """Returns the seconds that processes take; one of a kind not seen yet takes the mean of the others."""
        mean = sum(self._seconds.values()) / max(1, len(self._seconds))
        return sum(self._seconds.get(cell, mean) for cell in cells)


class Rounds:
    """Measures a plan. `tell` takes a line of progress, `keep` all records so far after every group of processes."""

    def __init__(self, plan: Plan, tell: Callable[[str], None], keep: Callable[[list[dict[str, Any]]], None]) -> None:
        self._plan = plan
        self._tell = tell
        self._keep = keep
        self._absent = {(entry["model"], entry["subject"]) for entry in plan.absent()}
        self._left = [(model, threads, name) for _, model, threads in self._groups() for name in self._present(model)]
        self._progress = Progress(len(self._left))

    def _groups(self) -> Iterator[tuple[int, str, int]]:
        for number in range(self._plan.rounds):
            for model in self._plan.models:
                for threads in self._plan.threads:
                    yield number, model, threads

    def _present(self, model: str) -> list[str]:
        return [name for name in self._plan.subjects if (model, name) not in self._absent]

    def measure(self) -> list[dict[str, Any]]:
        """Returns a record for every process: its model, threads, round and subject, and figures, or why it `failed`."""
        records: list[dict[str, Any]] = []
        for number, model, threads in self._groups():
            names = in_order(self._present(model), number) if self._present(model) else []
            for name, found in self._group(number, model, threads, names):
                records.append({"model": model, "threads": threads, "round": number, "subject": name, **found})
            self._keep(records)
        return records

    def _trial(self, name: str, model: str, threads: int, scratch: Path) -> Trial:
        plan, subject = self._plan, SUBJECTS[name]
        steps = {"export": 1, "floor": plan.turn_steps}.get(subject.variant, plan.steps)
        return Trial(
            name,
            subject.variant,
            model,
            steps,
            scratch / subject.directory,
            plan.dropout,
            settings={**subject.settings, **preloaded(subject)},
            threads=threads,
            python=plan.ortmodule if subject.variant == "ortmodule" and plan.ortmodule else sys.executable,
            device=plan.device,
            autocast=plan.autocast,
        )

    def _group(self, number: int, model: str, threads: int, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the figures of each subject of one round of a model."""
        failed: dict[str, str] = {}
        with contextlib.ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rekindle-bench-")))
            reference: TrialProcess | None = None
            for name in names:
                started = time.monotonic()
                try:
                    if SUBJECTS[name].after in failed:
                        raise TrialError(f"{SUBJECTS[name].after}, which fills its cache, failed")
                    if reference is None:
                        trial = dataclasses.replace(self._trial("eager", model, threads, scratch), steps=self._plan.turn_steps)
                        reference = stack.enter_context(TrialProcess(trial, scratch / "reference.log"))
                        reference.steps(trial.steps)
                    found = self._subject(self._trial(name, model, threads, scratch), reference, scratch / f"{name}.log")
                except TrialError as error:
                    self._tell(f"bench: {error}")
                    failed[name] = str(error).splitlines()[-1]
                    found = {"failed": failed[name]}
                self._left.remove((model, threads, name))
                self._progress.finished((model, threads, name), time.monotonic() - started)
                self._tell(self._line(number, (model, threads, name), found))
                yield name, found

    def _subject(self, trial: Trial, reference: TrialProcess, log: Path) -> dict[str, Any]:
        with TrialProcess(trial, log) as process:
            events = process.steps(trial.steps)
            turns = [] if trial.variant == "export" else [self._turn(process, reference, i) for i in range(self._plan.turns)]
            return figures(process.finish(), events, turns)

    def _turn(self, process: TrialProcess, reference: TrialProcess, number: int) -> Turn:
        """Lets both processes take a block of steps, one after the other; who begins changes from turn to turn."""
        blocks = {}
        for side in (process, reference) if number % 2 == 0 else (reference, process):
            side.request(self._plan.turn_steps)
            blocks[side] = side.steps(self._plan.turn_steps)
        return Turn(blocks[process], blocks[reference])

    def _line(self, number: int, cell: tuple[str, int, str], found: dict[str, Any]) -> str:
        model, threads, name = cell
        left = self._progress.seconds_left(self._left)
        if "failed" in found:
            cells = ["failed"]
        elif "export_seconds" in found:
            cells = [f"export {found['export_seconds']:.2f} s"]
        else:
            cells = [f"start {found['start_seconds']:7.2f} s"] if "start_seconds" in found else []
            cells += [f"step {1000 * found['step_seconds']:8.2f} ms ({found['step_ratio']:.2f} of eager)"]
            cells += [f"peak {found['peak_mib']:5.0f} MiB"] if "peak_mib" in found else []
        place = f"{self._progress.done}/{self._progress.total}, {left / 60:.0f} min left"
        return f"round {number + 1}  {model:8} {threads} threads  {name:20} {'  '.join(cells)}  [{place}]"


def overhead() -> dict[str, Any]:
    """Returns the costs that `bench step` measures, in microseconds, without its plans. Raises TrialError if that fails."""
    command = [sys.executable, str(Path(__file__).with_name("bench.py")), "step", "--json", "--plans", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TrialError(f"bench step failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)["costs"]
