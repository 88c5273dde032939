"""The C++ worker (worker.cc), from Python."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

TIMEOUT = 120  # of one use; a hang is a failure


class Broken(Exception):
    """The cache did something that it promises never to do."""


class Worker:
    """Starts worker processes of one build."""

    def __init__(self, build: pathlib.Path) -> None:
        self.program = build / "tests" / "torture_worker"
        self.clock = next((build / "tests").glob("libshifted_clock*"), None)
        if not self.program.exists():
            raise SystemExit(f"torture: there is no {self.program}; scripts/setup builds it, --build names another build")

    def churn(self, directory: pathlib.Path, seed: str, mode: str = "churn") -> subprocess.Popen[str]:
        """A process that stores and reads until it is killed. mode: "endure" when the directory may vanish."""
        return subprocess.Popen([self.program, mode, directory, seed], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def committed_by(self, process: subprocess.Popen[str]) -> list[str]:
        """What a killed process said it had stored; raises Broken if it ended on its own."""
        out, err = process.communicate(timeout=TIMEOUT)
        if process.returncode != -9:
            raise Broken(f"a worker ended with {process.returncode}: {out[-500:]} {err[-500:]}")
        return [line.split()[1] for line in out.splitlines() if line.startswith("committed ")]

    def fill(self, directory: pathlib.Path, count: int, seed: str) -> list[str]:
        """Makes a cache of so many entries; their names."""
        made = self.run(["fill", directory, str(count), seed])
        return [line.split()[1] for line in made.stdout.splitlines()]

    def use(self, directory: pathlib.Path, names: list[str], **how: Any) -> dict[str, Any]:
        """Uses the cache in every way and reports; raises Broken when a byte was wrong or it crashed."""
        return json.loads(self.run(["use", directory], "\n".join(names), **how).stdout)

    def refuses(self, directory: pathlib.Path) -> bool:
        """Whether the directory is refused because its format is not ours."""
        done = self.run(["use", directory], allowed=(0, 1))
        reasons = ("it is left as it is", f"{directory}/format ")
        return done.returncode == 1 and any(reason in done.stderr for reason in reasons)

    def run(
        self,
        words: list[Any],
        text: str = "",
        environment: Mapping[str, str] | None = None,
        preexec: Any = None,
        allowed: tuple[int, ...] = (0,),
    ) -> subprocess.CompletedProcess[str]:
        """One worker to its end."""
        done = subprocess.run(
            [self.program, *words],
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env={**os.environ, **(environment or {})},
            preexec_fn=preexec,
        )
        if done.returncode not in allowed:
            raise Broken(f"worker {words[0]} ended with {done.returncode}: {done.stdout[-500:]} {done.stderr[-1000:]}")
        return done

    @staticmethod
    @contextlib.contextmanager
    def kept_on_failure(directory: pathlib.Path, what: str) -> Iterator[None]:
        """Adds to a failure what was going on, and where the directory is."""
        try:
            yield
        except (Broken, subprocess.TimeoutExpired) as error:
            kept = directory.with_name(directory.name + "-failed")
            if directory.exists():
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(directory, kept, symlinks=True)
            raise Broken(f"{what}: {error}\nthe directory as it was left: {kept}") from error


def last_line(text: str) -> str:
    """For reports: the last thing that was said."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


if sys.platform != "linux":
    raise SystemExit("torture: Linux only")
