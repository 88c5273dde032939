"""Trains one model three times in fresh processes: eager, Rekindle with an empty cache, Rekindle again.

It prints where the time to the first step went, checks that the loss curves agree, draws them to
artifacts/demo.png and lists what the cache now holds. The exit status is 0 when all checks hold.
"""

import argparse
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from demo_chart import draw
from demo_table import table
from trial_process import Measurement, Trial, TrialError, TrialProcess, add_variant_options, chosen_variants

_ROOT = Path(__file__).resolve().parent.parent
_STEPS = {"gpt": 100, "gpt2-4": 50}  # two minutes in all on two cores
_PROGRESS_SECONDS = 5.0  # between lines of progress where no terminal can be redrawn


class Progress:
    """Shows the progress of one run on one line of the terminal, or as a line every few seconds without one."""

    def __init__(self, label: str, steps: int) -> None:
        self._label = label
        self._steps = steps
        self._start = self._shown = time.monotonic()
        self._busy_seconds = 0.0
        self._terminal = sys.stdout.isatty()

    def waiting(self) -> None:
        """Says that the first step is still ahead."""
        self._show(f"starting, {time.monotonic() - self._start:.0f} s")

    def step(self, event: dict) -> None:
        """Shows a finished step."""
        number = event["step"]
        self._busy_seconds += event["seconds"]
        speed = number / self._busy_seconds
        line = f"step {number:4}/{self._steps}  {speed:5.2f} steps/s  loss {event['loss']:.4f}"
        self._show(line, last=number == self._steps)

    def _show(self, line: str, last: bool = False) -> None:
        if self._terminal:
            print(f"\r  {self._label:22} {line:60}", end="\n" if last else "", flush=True)
        elif last or time.monotonic() - self._shown >= _PROGRESS_SECONDS:
            print(f"  {self._label:22} {line}", flush=True)
            self._shown = time.monotonic()


def train(trial: Trial, log: Path) -> Measurement:
    """Runs one trial to its end, showing progress."""
    progress = Progress(trial.label, trial.steps)
    started = False
    with TrialProcess(trial, log) as process:
        for event in process.events(trial.steps):
            if event is not None and event["event"] == "step":
                started = True
                progress.step(event)
            elif not started:
                progress.waiting()
        return process.finish()


def relative_difference(losses: list[float], reference: list[float]) -> float:
    """Returns the largest relative difference between two loss curves; infinite where a loss is not finite."""
    worst = 0.0
    for loss, expected in zip(losses, reference, strict=True):
        if not (math.isfinite(loss) and math.isfinite(expected)):
            return math.inf
        worst = max(worst, abs(loss - expected) / abs(expected))
    return worst


def check_agreement(measurements: list[Measurement], tolerance: float) -> list[str]:
    """Compares Rekindle's loss curves with eager's and says the outcome; returns what is wrong."""
    eager = next((m for m in measurements if m.trial.variant == "eager"), None)
    wrapped = [m for m in measurements if m.trial.variant == "rekindle"]
    if eager is None or not wrapped:
        print("\nNothing to compare: the loss curves agree or not only when eager and Rekindle both ran.")
        return []
    worst = max(relative_difference(m.losses, eager.losses) for m in wrapped)
    steps, dropout = eager.trial.steps, eager.trial.dropout
    if worst > tolerance:
        return [f"loss curves differ by up to {worst:.1e} relative in {steps} steps; {tolerance:.0e} is allowed"]
    masks = f"dropout {dropout:g} drew eager's masks" if dropout > 0 else "no dropout"
    difference = f"at most {worst:.1e} relative difference" if worst > 0 else "no difference at all"
    print(f"\nThe loss curves agree: {difference} in {steps} steps ({masks}).")
    return []


def check_sources(measurements: list[Measurement]) -> list[str]:
    """Checks that an empty cache led to an export, and a filled one to a hit; returns what is wrong."""
    wrapped = [m for m in measurements if m.trial.variant == "rekindle"]
    problems = []
    for measurement, expected in zip(wrapped, ("export", "local")):
        source = measurement.status["source"]
        if source != expected:
            reasons = "; ".join(measurement.status["reasons"]) or "no reason given"
            problems.append(f"the graph of '{measurement.trial.label}' came from {source}, not {expected}: {reasons}")
    return problems


def list_cache(cache_dir: Path) -> list[str]:
    """Runs the `rekindle cache ls` command on the demo's cache; returns what is wrong."""
    beside_python = Path(sys.executable).parent / "rekindle"
    command = str(beside_python) if beside_python.exists() else shutil.which("rekindle")
    if command is None:
        return [f"no rekindle command beside {sys.executable} or on PATH: build it with ./scripts/setup"]
    print(f"\n$ REKINDLE_CACHE_DIR={os.path.relpath(cache_dir)} rekindle cache ls", flush=True)
    environment = {**os.environ, "REKINDLE_CACHE_DIR": str(cache_dir)}
    code = subprocess.run([command, "cache", "ls"], env=environment, check=False).returncode
    return [] if code == 0 else [f"`{command} cache ls` ended with code {code}"]


def require_rekindle() -> None:
    """Ends the program with the remedy where the package is not installed."""
    if importlib.util.find_spec("rekindle") is None:
        sys.exit(
            f"demo: {sys.executable} cannot import rekindle: build it with ./scripts/setup, or start with"
            " ./scripts/demo, which does that first. `--variant eager` runs without it."
        )


def plan_trials(arguments: argparse.Namespace, output: Path) -> list[Trial]:
    """Returns the runs in order; the two of a caching variant share a directory that is empty before the first."""
    runs = {
        "eager": ["eager"],
        "rekindle": ["rekindle, empty cache", "rekindle, again"],
        "compile": ["compile, empty cache", "compile, again"],
    }
    trials = []
    for variant in arguments.variant:
        cache_dir = output / f"demo-cache-{variant}"
        shutil.rmtree(cache_dir, ignore_errors=True)
        for label in runs[variant]:
            trials.append(
                Trial(
                    label,
                    variant,
                    arguments.model,
                    arguments.steps,
                    cache_dir,
                    arguments.dropout,
                    arguments.seed,
                )
            )
    return trials


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--model", choices=tuple(_STEPS), default="gpt", help="ours, or transformers' GPT-2")
    parser.add_argument("--steps", type=int, help="steps of each run (default: about two minutes in all)")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    add_variant_options(parser)
    parser.add_argument("--tolerance", type=float, default=1e-4, help="allowed relative difference of losses")
    parser.add_argument("--output", type=Path, default=_ROOT / "artifacts", metavar="DIRECTORY")
    arguments = parser.parse_args()
    arguments.steps = _STEPS[arguments.model] if arguments.steps is None else arguments.steps
    if arguments.steps < 1:
        parser.error(f"--steps is {arguments.steps}: at least one step is needed")
    arguments.variant = chosen_variants(arguments)
    return arguments


def main() -> int:
    """Runs the demo; returns the exit status."""
    arguments = parse_arguments()
    if "rekindle" in arguments.variant:
        require_rekindle()
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)

    print(f"Training {arguments.model}, {arguments.steps} steps in each of these fresh processes:", flush=True)
    trials = plan_trials(arguments, output)
    try:
        measurements = [train(trial, output / f"demo-{number}.log") for number, trial in enumerate(trials, 1)]
    except TrialError as error:
        sys.exit(f"\ndemo: {error}")

    print("\n" + table(measurements))
    problems = check_sources(measurements) + check_agreement(measurements, arguments.tolerance)
    draw(measurements, output / "demo.png")
    print(f"Picture: {os.path.relpath(output / 'demo.png')}")
    if "rekindle" in arguments.variant:
        problems += list_cache(trials[arguments.variant.index("rekindle")].cache_dir)
    for problem in problems:
        print(f"demo: FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
