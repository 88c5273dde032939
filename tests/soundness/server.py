"""Processes for the pairs: forks of one that has imported torch and the exporter, or interpreters of their own.

`python server.py` is such a parent: one job per line of standard input, one result per line of standard output.
`python server.py once` runs one job in this very process.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, BinaryIO

_SECONDS = 120


class Worker:
    """A parent that forks a process per job. Used by one thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment())

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """The result of a process that was forked for the job."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"error": "the process that forks has ended"}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_SECONDS)


def run_fresh(job: dict[str, Any], flags: tuple[str, ...] = ()) -> dict[str, Any]:
    """The result of the job in an interpreter of its own, whose environment has the job's variables from the start."""
    environment = _environment()
    for name, value in job["env"].items():
        environment.pop(name, None) if value is None else environment.update({name: value})
    done = subprocess.run(
        [*_command(*flags), "once"], input=json.dumps(job).encode(), capture_output=True, timeout=_SECONDS, env=environment
    )
    if done.returncode:
        return {"error": done.stderr.decode(errors="replace")[-2000:]}
    return json.loads(done.stdout.splitlines()[-1])


def _command(*flags: str) -> list[str]:
    return [sys.executable, *flags, str(pathlib.Path(__file__).resolve())]


def _environment() -> dict[str, str]:
    """Without the caller's settings; a fixed hash seed, so that a case that needs another one says so."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REKINDLE_", "SUBJECT_"))}
    return {**kept, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _serve(results: BinaryIO) -> None:
    import rekindle
    import torch
    from child import run

    torch.set_num_threads(1)  # no thread of torch's pool exists, which a fork would lose
    with torch.no_grad():  # nor of autograd; the export loads what every export loads
        rekindle.Module(torch.nn.Linear(2, 2).eval(), rekindle.Options(cache="off", log="off"))(torch.zeros(1, 2))
    for line in sys.stdin.buffer:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reader)
                with os.fdopen(writer, "wb") as pipe:
                    pipe.write(json.dumps(run(json.loads(line))).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        results.write((text or json.dumps({"error": f"the process ended with status {status}"}).encode()) + b"\n")
        results.flush()


def _main() -> None:
    results = os.fdopen(os.dup(1), "wb")  # what a subject prints must not get between the results
    os.dup2(2, 1)
    if sys.argv[1:] == ["once"]:
        from child import run

        results.write(json.dumps(run(json.loads(sys.stdin.buffer.read()))).encode() + b"\n")
        results.flush()
    else:
        _serve(results)


if __name__ == "__main__":
    _main()
