"""Threads, exports that wait in their middle, and forked children, for tests that run several at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from module_support import rows
from torch import nn


def in_thread(body: Callable[[], Any]) -> Callable[[], Any]:
    """Starts; what is returned waits for the end and gives the result."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((body(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(60)
        assert found, "the thread hangs"
        value, error = found[0]
        if error is not None:
            raise error
        return value

    return result


class Held:
    """The export of a thread that waits in its middle: `began` is set there, and it goes on when `go` is."""

    def __init__(self, export: Callable[..., Any]) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self._export = export
        self._waits = threading.local()

    def start(self, module: nn.Module) -> Callable[[], Any]:
        """Export `module` in a thread, up to the middle; what is returned waits for its first result."""

        def run() -> Any:
            self._waits.now = True
            return module(rows())

        result = in_thread(run)
        assert self.began.wait(30)
        return result

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """As torch.onnx.export."""
        if getattr(self._waits, "now", False):
            self._waits.now = False
            self.began.set()
            self.go.wait(40)
        return self._export(*args, **kwargs)


def child_of(body: Callable[[], None], seconds: float = 60) -> int:
    """Exit status of a forked child that runs a function; killed if it hangs."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the child hangs")
