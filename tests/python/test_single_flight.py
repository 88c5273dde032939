"""Processes of one machine that need the same export at the same time."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time
from typing import Any

import pytest
import python_process
import rekindle

# Waits for the file argv[1] so that all begin at once; with a second argument, the forward never ends.
_START = """
import json, pathlib, sys, time
import module_support
import torch, rekindle
from module_support import Mlp, mlp, rows

module = mlp()
wrapped = rekindle.Module(module, rekindle.Options(fallback="error"))
print("ready", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
if len(sys.argv) > 2:
    import rekindle.export.torchscript.adapter as adapter
    def hang(*args):
        print("exporting", flush=True)
        time.sleep(600)
    adapter.load_exporter = hang
wrapped(rows()).sum().backward()
status = rekindle.status(wrapped)
print(json.dumps({"source": status.source, "exports": status.exports}))
"""


class Process:
    def __init__(self, go: pathlib.Path, *arguments: str) -> None:
        self.process = python_process.Process("-c", _START, str(go), *arguments, cwd=pathlib.Path(__file__).parent)

    def expect(self, line: str) -> None:
        assert self.process.stdout.readline().strip() == line

    def result(self) -> dict[str, Any]:
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, err
        return json.loads(out.splitlines()[-1])


def test_processes_that_start_at_once_export_once(tmp_path: pathlib.Path) -> None:
    go = tmp_path / "go"
    processes = [Process(go) for _ in range(4)]
    for process in processes:
        process.expect("ready")
    go.touch()
    results = [process.result() for process in processes]
    assert sorted(result["source"] for result in results) == ["export", "local", "local", "local"]
    assert rekindle.cache.stats()["entries"] == 1


def test_the_export_of_a_killed_process_is_taken_over(tmp_path: pathlib.Path) -> None:
    go = tmp_path / "go"
    first, second = Process(go, "hang"), Process(go)
    second.expect("ready")
    first.expect("ready")
    os.kill(second.process.pid, signal.SIGSTOP)
    go.touch()
    first.expect("exporting")
    os.kill(second.process.pid, signal.SIGCONT)
    time.sleep(1.0)
    assert second.process.poll() is None
    first.process.kill()
    killed = time.monotonic()
    assert second.result()["source"] == "export"
    assert time.monotonic() - killed < 30
    first.process.communicate()


def test_the_wait_is_bounded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.touch()
    first = Process(go, "hang")
    first.expect("ready")
    first.expect("exporting")
    monkeypatch.setenv("REKINDLE_WAIT_SECONDS", "1")
    assert Process(go).result()["source"] == "export"
    first.process.kill()
    first.process.communicate()


@pytest.mark.parametrize("value", ["soon", "-1", "inf", "nan"])
def test_a_wait_that_is_no_number_of_seconds_is_refused(value: str) -> None:
    with pytest.raises(rekindle.errors.OptionError, match=r"wait_seconds.*0 or more"):
        rekindle.Options(wait_seconds=value)
