"""One change that tests have to notice, and how it is tried; mutants.py has the list."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from dataclasses import dataclass

_ROOT = pathlib.Path(__file__).parents[2]
_TESTS = _ROOT / "build" / "tests"


@dataclass(frozen=True)
class Mutant:
    """A change of one file, and a text that a failing test prints for it.

    tests: what pytest is given; empty: the tests are those of `program`, which is built anew
    """

    name: str
    file: str
    old: str
    new: str
    says: str
    tests: tuple[str, ...] = ()
    program: str = "device_test"


def build(program: str) -> str:
    """Returns what the compiler says where it fails."""
    command = ["cmake", "--build", str(_ROOT / "build"), "--target", program]
    command[0] = str(_ROOT / ".venv" / "bin" / "cmake")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout[-2000:]


def outcome(mutant: Mutant) -> str:
    """Returns "caught", or why it was not; leaves the file as it was."""
    path = _ROOT / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return f"is out of date: {mutant.file} has its place {text.count(mutant.old)} times"
    try:
        path.write_text(text.replace(mutant.old, mutant.new))
        if not mutant.tests and (failure := build(mutant.program)):
            return f"does not compile:\n{failure}"
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *mutant.tests]
        run = subprocess.run(
            pytest if mutant.tests else [_TESTS / mutant.program, "~[host]"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.write_text(text)
    if run.returncode == 0:
        return "survives"
    return "caught" if mutant.says in run.stdout + run.stderr else "is caught, but no test names the cause"
