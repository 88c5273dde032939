"""Processes in which random programs run: a parent that has imported torch forks one for each job.

A job is one JSON object a line of standard input, its outcome one a line of standard output. A process that dies or hangs is an
outcome too.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from typing import Any

_SECONDS = 180
# What optimizers and the first check of a gradient import, which would take most of a program's time.
_SLOW_IMPORTS = ("sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes", "torch._functorch.apis")


class Worker:
    """A parent that forks a process per job. Used by one thread."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("REKINDLE_", "RANDOM_"))}
        environment |= {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """The outcome of the job's program, in one process or, with "second", in two that share a cache."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.TemporaryDirectory() as directory:
            self._process.stdin.write(json.dumps({**job, "directory": directory}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        return json.loads(line) if line else {"wrong": _ended("the process that forks has ended")}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_SECONDS)


def _ended(how: str) -> dict[str, Any]:
    return {"step": -1, "text": how, "differences": [how]}


def _forked(job: dict[str, Any]) -> dict[str, Any]:
    from random_run import run

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(json.dumps(run(job)).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    text = b""
    while select.select([reader], [], [], _SECONDS)[0]:
        part = os.read(reader, 1 << 20)
        text += part
        if not part:
            break
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    how = "it hangs" if status == signal.SIGKILL else f"it ended with status {status}"
    return (
        json.loads(text) if text and not status else {"wrong": _ended(how), "calls": 0, "graphs": 0, "sources": [], "bypass": []}
    )


def outcome_of(job: dict[str, Any]) -> dict[str, Any]:
    """Runs the job's steps, and the second process's if it has any."""
    first = _forked({**job, "steps": job["steps"]})
    if first["wrong"] or not job.get("second"):
        return first
    second = _forked({**job, "steps": job["second"]})
    if second["wrong"]:
        second["wrong"]["text"] = f"second process: {second['wrong']['text']}"
    sums = {name: first[name] + second[name] for name in ("calls", "graphs", "sources", "bypass")}
    return {**second, **sums}


def _main() -> None:
    results = os.fdopen(os.dup(1), "wb")  # what a program prints must not get between the outcomes
    os.dup2(2, 1)
    import random_run  # noqa: F401
    import rekindle
    import torch

    for name in _SLOW_IMPORTS:
        importlib.import_module(name)
    torch.set_num_threads(1)  # no thread of torch's pool exists, which a fork would lose
    with torch.no_grad():  # nor of autograd; the export loads what every export loads
        rekindle.Module(torch.nn.Linear(2, 2).eval(), rekindle.Options(cache="off", log="off"))(torch.zeros(1, 2))
    for line in sys.stdin.buffer:
        results.write(json.dumps(outcome_of(json.loads(line))).encode() + b"\n")
        results.flush()


if __name__ == "__main__":
    _main()
