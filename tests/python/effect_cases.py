"""What forwards, Functions and hooks do that can be counted: for test_effect_counts.py."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import logging
import os
import pathlib
import pprint
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

LOG: list[Any] = []
SEEN: dict[str, int] = {}
OUT = pathlib.Path("out.txt")
PIPE: list[int] = []
STREAM = io.StringIO()


def _count_file() -> int:
    return OUT.stat().st_size if OUT.exists() else 0


def _append(text: str = "x") -> None:
    with open(OUT, "a") as file:
        file.write(text)


def _start(body: Callable[[], Any]) -> None:
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def _warn(category: type[Warning] = UserWarning) -> None:
    warnings.warn("odd", category, stacklevel=1)


def _read_pipe() -> int:
    with contextlib.suppress(BlockingIOError):
        PIPE.append(len(os.read(SEEN["read"], 1000)))
    return sum(PIPE)


def _set_variable() -> None:
    os.environ["EFFECT"] = os.environ.get("EFFECT", "") + "x"


@functools.lru_cache
def logged_once(text: str) -> None:
    logging.getLogger("effects").warning(text)


@functools.lru_cache
def appended_once(value: int) -> int:
    LOG.append(value)
    return value


def _forget() -> None:
    appended_once.cache_clear()
    appended_once(1)


class Ends:
    def __del__(self) -> None:
        LOG.append("end")


class Counts(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        LOG.append(record.getMessage())


class Descriptor:
    def __get__(self, instance: Any, owner: Any) -> float:
        LOG.append("read")
        return 2.0


class Held:
    value = Descriptor()

    def __len__(self) -> int:
        LOG.append("len")
        return 2

    def __call__(self) -> float:
        LOG.append("call")
        return 2.0


HELD = Held()
CALLED = functools.partial(LOG.append, 1)
C_LIBRARY = ctypes.CDLL(None)

# name: what a forward does, and how often it has been done. LOG, by default, takes down.
EFFECTS: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {
    "append": (lambda: LOG.append(1), None),
    "extend by +=": (lambda: LOG.__iadd__([1]), None),
    "insert": (lambda: list.insert(LOG, 0, 1), None),
    "append by map": (lambda: list(map(LOG.append, [1, 2])), None),
    "append by a partial": (lambda: CALLED(), None),
    "append in a thread": (lambda: _start(lambda: LOG.append(1)), None),
    "timer": (lambda: threading.Timer(0, LOG.append, [1]).run(), None),
    "print": (lambda: print("x"), None),
    "print to a file": (lambda: print("x", file=open(OUT, "a")), _count_file),  # noqa: SIM115
    "print to standard error": (lambda: print("x", file=sys.stderr), None),
    "write to standard output": (lambda: sys.stdout.write("x"), None),
    "write to standard error": (lambda: sys.stderr.write("x"), None),
    "pprint": (lambda: pprint.pprint({"a": 1}), None),
    "print_exc": (lambda: traceback.print_stack(limit=1), None),
    "os.write": (lambda: os.write(SEEN["write"], b"x"), _read_pipe),
    "os.write in a comprehension": (lambda: [os.write(fd, b"x") for fd in [SEEN["write"]]], _read_pipe),
    "os.system": (lambda: os.system("echo x >> out.txt"), _count_file),
    "subprocess": (lambda: subprocess.run("echo x >> out.txt", shell=True, check=True), _count_file),
    "popen": (lambda: os.popen("echo x >> out.txt").read(), _count_file),
    "file": (_append, _count_file),
    "FileIO": (lambda: io.FileIO(OUT, "a").write(b"x"), _count_file),
    "write_text": (lambda: OUT.write_text("x" * (_count_file() + 1)), _count_file),
    "mkdir": (lambda: os.makedirs(f"d{len(os.listdir())}"), lambda: len(os.listdir())),
    "tempfile": (lambda: tempfile.mkstemp(dir="."), lambda: len(os.listdir())),
    "save": (lambda: torch.save(torch.ones(1), f"t{len(os.listdir())}"), lambda: len(os.listdir())),
    "numpy save": (lambda: np.save(f"n{len(os.listdir())}", np.ones(1)), lambda: len(os.listdir())),
    "numpy tofile": (lambda: np.ones(1).tofile(open(OUT, "ab")), _count_file),  # noqa: SIM115
    "environment": (_set_variable, lambda: os.environ.get("EFFECT")),
    "putenv": (lambda: os.putenv("EFFECT_B", "x"), None),
    "logger": (lambda: logging.getLogger("effects").warning("x"), None),
    "logger that is off": (lambda: logging.getLogger("effects").debug("x"), None),
    "log": (lambda: logging.getLogger("effects").log(50, "x"), None),
    "handler": (lambda: logging.getLogger("effects").handlers[0].emit(logging.makeLogRecord({"msg": "x"})), None),
    "warning": (_warn, None),
    "ignored warning": (lambda: _warn(DeprecationWarning), None),
    "warning of torch": (lambda: torch.nn.functional.softmax(torch.ones(2)), None),
    "logged once": (lambda: logged_once("x"), None),
    "appended once": (lambda: appended_once(1), lambda: appended_once.cache_info().currsize),
    "appended once by map": (lambda: [*map(appended_once, (1, 2, 1))], lambda: appended_once.cache_info().currsize),
    "cache_clear": (_forget, lambda: appended_once.cache_info().currsize),
    "end of an object": (lambda: Ends() and None, None),
    "log to a stream": (lambda: logging.getLogger("effects.stream").warning("x"), lambda: len(STREAM.getvalue())),
    "errors of NumPy": (lambda: np.seterr(over="raise"), lambda: np.geterr()["over"]),
    "random": (lambda: random.random(), lambda: hash(random.getstate())),
    "shuffle": (lambda: random.shuffle([1, 2, 3]), lambda: hash(random.getstate())),
    "numpy random": (lambda: np.random.rand(), lambda: np.random.get_state()[2]),
    "descriptor": (lambda: HELD.value, None),
    "__len__": (lambda: len(HELD), None),
    "__call__": (lambda: HELD(), None),
    "sort key": (lambda: sorted([2, 1], key=lambda v: LOG.append(v) or v), None),
    "generator": (lambda: tuple(LOG.append(v) for v in (1, 2)), None),
    "signal": (lambda: signal.raise_signal(signal.SIGUSR1), None),
    "kill": (lambda: os.kill(os.getpid(), signal.SIGUSR1), None),
    "socket": (lambda: SEEN.__setitem__("n", socket.socket().close() or 0), None),
    "send": (lambda: SENT[0].send(b"x"), lambda: _received()),
    "ctypes": (lambda: C_LIBRARY.setenv(b"EFFECT_C", b"x" * (_length_in_c() + 1), 1), lambda: _length_in_c()),
    "umask": (lambda: os.umask(os.umask(0) ^ 1), lambda: [os.umask(mask := os.umask(0)), mask][1]),
    "recursion limit": (lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1), lambda: sys.getrecursionlimit() % 3),
    "time": (lambda: time.sleep(0), None),
    "threads of torch": (lambda: torch.set_num_threads(1), None),
    "filters": (lambda: warnings.simplefilter("ignore", BytesWarning), lambda: len(warnings.filters)),
    "StringIO": (lambda: LOG.append(io.StringIO().write("x")), None),
}  # fmt: skip
SENT: list[socket.socket] = []


def _received() -> int:
    with contextlib.suppress(BlockingIOError):
        PIPE.append(len(SENT[1].recv(1000)))
    return sum(PIPE)


def _length_in_c() -> int:
    C_LIBRARY.getenv.restype = ctypes.c_char_p
    return len(C_LIBRARY.getenv(b"EFFECT_C") or b"")
