#!/usr/bin/env python3
"""Checks that a wheel stands on its own: installs it into a scratch environment, then imports and runs it.

Usage: tests/wheel/check.py WHEEL, with an interpreter that has torch. torch is lent to the scratch
environment; every other shared library that the extension or the command loads must come from the wheel or be
a system runtime.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv

# What every Linux system has, and what the torch package brings.
SYSTEM = re.compile(r"(linux-vdso|ld-linux\S*|lib(c|m|dl|rt|pthread|util|stdc\+\+|gcc_s))\.so[.\d]*$")
TORCH = re.compile(r"/site-packages/(torch|nvidia)/")


def run(command: list[str | pathlib.Path]) -> str:
    """The output of a command that must succeed, in an environment without search paths of ours."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    result = subprocess.run(command, env=kept, capture_output=True, text=True, check=False, cwd="/")
    if result.returncode != 0:
        sys.exit(f"wheel: {' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def foreign_libraries(binary: pathlib.Path, inside: pathlib.Path) -> list[str]:
    """The shared libraries that `binary` would load from outside the wheel, torch and the system."""
    foreign = []
    for line in run(["ldd", binary]).splitlines():
        name, _, where = line.strip().partition(" => ")
        path = os.path.normpath(where.split(" (")[0])
        if SYSTEM.match(pathlib.Path(name.split(" (")[0]).name) or TORCH.search(path):
            continue
        if not path.startswith(str(inside)):
            foreign.append(line.strip())
    return foreign


def main() -> int:
    """Installs and checks the wheel named on the command line."""
    wheel = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="rekindle-wheel-") as directory:
        scratch = pathlib.Path(directory).resolve()
        venv.create(scratch, with_pip=False)
        python = scratch / "bin" / "python"
        run([sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel])
        site = next(scratch.glob("lib/python3.*/site-packages"))
        # Links, not a search path: the wheel finds torch beside itself, as it would on the user's machine.
        lender = pathlib.Path(sysconfig.get_paths()["purelib"])
        for entry in lender.iterdir():
            if not (site / entry.name).exists() and entry.suffix != ".pth":
                (site / entry.name).symlink_to(entry)

        binaries = [*(site / "rekindle").glob("_native*.so"), scratch / "bin" / "rekindle"]
        foreign = [line for binary in binaries for line in foreign_libraries(binary, site / "rekindle")]
        if foreign:
            print("wheel: these libraries are not in the wheel:", *foreign, sep="\n  ")
            return 1
        bundled = sorted(file.name for file in (site / "rekindle" / "lib").iterdir())
        print(f"wheel: {wheel.name} brings {' '.join(bundled)}")
        origin = run([python, "-c", "import rekindle; print(rekindle.__file__)"]).strip()
        if not origin.startswith(str(site)):
            print(f"wheel: the scratch environment imports {origin}, not the wheel")
            return 1
        print("wheel:", run([scratch / "bin" / "rekindle", "--version"]).strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
