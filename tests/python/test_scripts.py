"""The commands of scripts/ that run Python say what is missing."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

_SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


@pytest.mark.parametrize("name", ["bench", "conformance", "gpu-check", "leaks", "mutants", "soundness", "torture"])
def test_without_an_environment_a_command_names_the_one_that_makes_it(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHON", raising=False)
    shutil.copytree(_SCRIPTS, tmp_path / "scripts")
    done = subprocess.run([tmp_path / "scripts" / name], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"{name}: {tmp_path}/.venv/bin/python does not exist: run ./scripts/setup first\n"
