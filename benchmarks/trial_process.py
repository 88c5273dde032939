"""Starts trials (trial.py) from the parent's side, follows their events, hands them further steps."""

import argparse
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

_FOLDER = Path(__file__).resolve().parent
VARIANTS = ("eager", "rekindle", "compile", "ortmodule", "floor", "export")
AUTOCAST = ("bfloat16", "float16")
_OF_THE_DEMO = ("eager", "rekindle", "compile")
# What rekindle.status() times within the first step, as <key>_seconds, and what to call it.
PHASES = {
    "lookup": "cache lookup",
    "export": "export",
    "build": "differentiate",
    "verify": "compare with eager",
    "plan": "plan",
}
_LOG_TAIL = 25  # lines of a failed trial's log that are worth a reader's time


class TrialError(RuntimeError):
    """Says that a trial ended without a result; the message holds the end of its log."""


def add_variant_options(parser: argparse.ArgumentParser) -> None:
    """Adds what chosen_variants reads to a command line."""
    parser.add_argument(
        "--variant",
        action="append",
        choices=_OF_THE_DEMO,
        help="run only this one; may be repeated (default: eager and rekindle)",
    )
    parser.add_argument("--compile", action="store_true", help="run torch.compile as well; takes minutes")


def chosen_variants(arguments: argparse.Namespace) -> list[str]:
    """Returns the variants that a command line asks for, in the order in which they run."""
    chosen = arguments.variant or ["eager", "rekindle"]
    return [*chosen, "compile"] if arguments.compile and "compile" not in chosen else chosen


def measured_by(program: str, *arguments: str) -> dict[str, Any]:
    """Runs a program of this folder in a fresh process and returns the JSON object of its last line."""
    command = [sys.executable, str(_FOLDER / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TrialError(f"{program} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Trial:
    """Describes what to run: one model in one variant, against one cache directory.

    settings: environment variables of the trial's process
    threads: of its operators; None leaves that to torch
    device, autocast: where it runs, and the dtype of the autocast around its forward, if any
    """

    label: str
    variant: str  # one of VARIANTS
    model: str
    steps: int
    cache_dir: Path  # ignored by eager
    dropout: float = 0.1
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    python: str = sys.executable
    device: str = "cpu"
    autocast: str | None = None

    def command(self) -> list[str]:
        """Returns the command line of the trial's process."""
        command = [self.python, str(_FOLDER / "trial.py"), "--model", self.model, "--variant", self.variant]
        command += ["--steps", str(self.steps), "--seed", str(self.seed), "--dropout", str(self.dropout)]
        command += ["--device", self.device, *(["--autocast", self.autocast] if self.autocast else [])]
        if self.variant == "rekindle":
            command += ["--cache-dir", str(self.cache_dir)]
        return command

    def environment(self) -> dict[str, str]:
        """Returns the parent's environment with this trial's settings, and torch.compile's cache in the trial's directory."""
        environment = dict(os.environ)
        if self.variant == "compile":
            environment["TORCHINDUCTOR_CACHE_DIR"] = str(self.cache_dir)
        if self.threads is not None:
            environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(self.threads))
        return environment | dict(self.settings)


@dataclass
class Measurement:
    """Holds a trial's result with what only its parent can see: the time since the process was started."""

    trial: Trial  # what was run
    import_seconds: float  # from the process's start to the end of its imports
    start_seconds: float  # from the process's start to the end of the first step
    ready: dict[str, Any] = field(default_factory=dict)  # the fields of trial.py's `ready` event: threads
    result: dict[str, Any] = field(default_factory=dict)  # the fields of its `result` event

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["result"][name]
        except KeyError:
            raise AttributeError(f"the result of {self.trial.label} has no {name}") from None


class TrialProcess:
    """Drives a running trial. Use it as a context manager: leaving the block ends the process."""

    def __init__(self, trial: Trial, log: Path) -> None:
        self._trial = trial
        self._log = log
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._ready: dict[str, Any] = {}
        self._ready_at = 0.0
        self._first_step_at = 0.0
        self._started_at = time.perf_counter()
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                trial.command(),
                env=trial.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # the process is gone already
            self._process.stdin.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        """Stamps events as they arrive, however late the main thread looks at them."""
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                self._ready = event
                self._ready_at = time.perf_counter()
            elif event["event"] == "step" and event["step"] == 1:
                self._first_step_at = time.perf_counter()
            self._events.put(event)
        self._events.put(None)

    def request(self, steps: int) -> None:
        """Asks for further steps; their events follow. Raises TrialError where the process has ended."""
        try:
            self._process.stdin.write(f"{steps}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failure() from error

    @property
    def trial(self) -> Trial:
        """Returns what this process runs."""
        return self._trial

    def events(self, count: int, poll_seconds: float = 0.5) -> Iterator[dict[str, Any] | None]:
        """Yields events up to and with the `count`-th step, and None after poll_seconds without one."""
        while count > 0:
            try:
                event = self._events.get(timeout=poll_seconds)
            except queue.Empty:
                yield None
                continue
            if event is None:
                raise self._failure()
            count -= event["event"] == "step"
            yield event

    def steps(self, count: int) -> list[dict[str, Any]]:
        """Waits for the next `count` steps, already asked for, and returns their events."""
        return [event for event in self.events(count) if event is not None and event["event"] == "step"]

    def finish(self) -> Measurement:
        """Ends the trial after the steps it was asked for and returns what it measured."""
        self._process.stdin.close()
        result: dict[str, Any] = {}
        while (event := self._events.get()) is not None:
            result = event
        if self._process.wait() != 0 or result.get("event") != "result":
            raise self._failure()
        return Measurement(
            self._trial,
            import_seconds=self._ready_at - self._started_at,
            start_seconds=self._first_step_at - self._started_at,
            ready=self._ready,
            result=result,
        )

    def _failure(self) -> TrialError:
        code = self._process.wait()
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])
        return TrialError(f"the run '{self._trial.label}' ended with code {code}; the end of {self._log}:\n{tail}")
