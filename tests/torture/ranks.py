"""Jobs of four ranks of which some find other caches, code, environments or sizes, come late, stop, or die."""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import corruption
from rank import SECONDS
from worker import Broken, last_line

RANKS = 4
_LIMIT = 2 * SECONDS + 60  # seconds, after which a job hangs
_NEAR = 1e-4
_RUN = pathlib.Path(__file__).with_name("rank.py")


@dataclass
class Fault:
    """Says what is another one in one round.

    full: ranks whose cache has the entry
    others: per rank, what rank.py is given
    environments: per rank, variables
    corrupted: ranks whose full cache is damaged
    strikes: what is done to a rank once it has begun, if anything: its process, a random generator
    dies: whether the job may end with an error
    start: as of rekindle.Options
    """

    name: str
    full: set[int]
    others: dict[int, dict[str, Any]] = field(default_factory=dict)
    environments: dict[int, dict[str, str]] = field(default_factory=dict)
    corrupted: set[int] = field(default_factory=set)
    strikes: dict[int, Callable[[subprocess.Popen, random.Random], None]] = field(default_factory=dict)
    dies: bool = False
    start: str = "wait"

    @property
    def steps(self) -> int:
        """Returns the steps of the job: enough to train on after a helper is done."""
        return 4 if self.start == "wait" else 100


def _kill(process: subprocess.Popen, choose: random.Random) -> None:
    time.sleep(choose.uniform(0.0, 1.5))
    process.kill()


def _stop(process: subprocess.Popen, choose: random.Random) -> None:
    time.sleep(choose.uniform(0.0, 1.0))
    process.send_signal(signal.SIGSTOP)
    time.sleep(choose.choice((2, 5, 20)))
    process.send_signal(signal.SIGCONT)


def _fault(choose: random.Random) -> Fault:
    full = {rank for rank in range(RANKS) if choose.random() < 0.4}
    some = {rank for rank in range(RANKS) if choose.random() < 0.4} or {choose.randrange(RANKS)}
    one = choose.randrange(RANKS)
    kind = choose.choice(("mixed", "code", "sizes", "environment", "late", "full disk", "corrupt", "stop", "kill"))
    match kind:
        case "code":
            return Fault(kind, full, others={rank: {"rate": 2.0} for rank in some})
        case "sizes":
            return Fault(kind, full, others={rank: {"rows": choose.choice((1, 2, 7))} for rank in some})
        case "environment":
            return Fault(kind, full, environments={rank: {"SCALE": "0.25"} for rank in some})
        case "late":
            return Fault(kind, full, others={one: {"late": choose.choice((1, 4))}})
        case "full disk":
            return Fault(kind, full, others={rank: {"bytes": choose.choice((0, 4096))} for rank in some})
        case "corrupt":
            return Fault(kind, full | some, corrupted=some)
        case "stop":
            return Fault(kind, full, strikes={one: _stop})
        case "kill":
            return Fault(kind, full, strikes={one: _kill}, dies=True)
    return Fault(kind, full)


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def _start(directory: pathlib.Path, rank: int, port: str, fault: Fault) -> subprocess.Popen:
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "PORT": port, "OMP_NUM_THREADS": "1"}
    environment["REKINDLE_START"] = fault.start
    other = json.dumps(fault.others.get(rank, {}))
    command = [sys.executable, str(_RUN), str(directory), str(directory / f"cache{rank}"), other, str(fault.steps)]
    with (directory / f"said{rank}").open("w") as said:
        return subprocess.Popen(
            command, env=environment | fault.environments.get(rank, {}), text=True, stdout=subprocess.PIPE, stderr=said
        )


@contextmanager
def _job(directory: pathlib.Path, fault: Fault) -> Iterator[list[subprocess.Popen]]:
    port = _free_port()
    processes = [_start(directory, rank, port, fault) for rank in range(RANKS)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _round(directory: pathlib.Path, fault: Fault, choose: random.Random) -> list[dict[str, Any] | None]:
    """Runs a job; returns what each rank prints, None for one that ended with an error."""
    end = time.monotonic() + _LIMIT
    with _job(directory, fault) as processes:
        for rank, strike in fault.strikes.items():
            while not (directory / f"begun{rank}").exists() and processes[rank].poll() is None:
                time.sleep(0.01)
            strike(processes[rank], choose)
        found: list[dict[str, Any] | None] = []
        for rank, process in enumerate(processes):
            try:
                output, _ = process.communicate(timeout=max(1.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Broken(f"rank {rank} hangs") from None
            found.append(json.loads(last_line(output)) if process.returncode == 0 else None)
        return found


def _check(directory: pathlib.Path, fault: Fault, found: list[dict[str, Any] | None]) -> None:
    for rank, report in enumerate(found):
        said = (directory / f"said{rank}").read_text()
        if report is None and not fault.dies:
            raise Broken(f"rank {rank} ended with {last_line(said)!r}")
        if report is not None and not report["apart"] <= _NEAR:
            raise Broken(f"rank {rank} is {report['apart']:.1e} from eager, with {report}")
        warnings = [line for line in said.splitlines() if line.startswith("rekindle: warning")]
        if len(warnings) != len(set(warnings)):
            raise Broken(f"rank {rank} says the same twice: {warnings}")


def rounds(count: int, seed: int) -> str:
    """Runs `count` jobs, each with a fault of its own; raises Broken for one that hangs, or has wrong numbers."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="rekindle-torture-"))
    filled = base / "filled"
    filled.mkdir()
    whole = Fault("filling", set())
    _check(filled, whole, found := _round(filled, whole, random.Random(seed)))
    if any(report is None or report["eager"] for report in found):
        raise Broken(f"without a fault, not every call runs from a graph: {found}")
    names: list[str] = []
    exports = 0
    for number in range(count):
        choose = random.Random(f"{seed}-{number}")
        fault, directory = _fault(choose), base / f"round{number}"
        fault.start = choose.choice(("wait", "background"))
        directory.mkdir()
        for rank in fault.full:
            shutil.copytree(filled / "cache0", directory / f"cache{rank}", symlinks=True)
        damage = [str(corruption.corrupt(directory / f"cache{rank}", choose)) for rank in sorted(fault.corrupted)]
        try:
            found = _round(directory, fault, choose)
            _check(directory, fault, found)
        except Broken as error:
            raise Broken(f"ranks round {number}, seed {seed}: {fault.name} {damage}: {error}\nkept: {directory}") from error
        names.append(f"{fault.name}, {fault.start}")
        exports += sum(report["exports"] for report in found if report is not None)
        shutil.rmtree(directory)
    shutil.rmtree(base)
    kinds = "; ".join(f"{name}: {names.count(name)}" for name in sorted(set(names)))
    return f"{count} jobs of {RANKS} ranks ({kinds}): no hang, no wrong number; {exports} exports"
