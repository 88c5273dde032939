"""scripts/gpu-check on the test device: its sections find nothing wrong here, and find what is."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

_CHECK = pathlib.Path(__file__).parents[1] / "gpu" / "gpu_check.py"


@pytest.mark.parametrize("section", ["environment", "calls", "replays", "streams", "steps"])
def test_a_section_finds_nothing_wrong(section: str) -> None:
    command = [sys.executable, str(_CHECK), section, "--device", "test"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| {section} |" in done.stdout and "| 0 | 0 |" in done.stdout
