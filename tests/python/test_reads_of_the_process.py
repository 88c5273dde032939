"""What a forward asks of the process and of files: the answer of each call is its own, as in eager."""

from __future__ import annotations

import decimal
import gc
import importlib.resources
import io
import linecache
import locale
import logging
import mmap
import os
import pathlib
import pkgutil
import resource
import signal
import socket
import sqlite3
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import python_process
import rekindle
import torch
from module_support import rows
from reader_support import compare_reads

DATA, TEXT = pathlib.Path("data.bin"), pathlib.Path("text.txt")
KEPT: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A directory with a file, and what the cases change as it was."""
    monkeypatch.chdir(tmp_path)
    DATA.write_bytes(b"\1" * 8)
    limit, state, mask = sys.getrecursionlimit(), gc.isenabled(), os.umask(0o22)
    errors, handler = np.geterr(), signal.getsignal(signal.SIGUSR1)
    with warnings.catch_warnings(), decimal.localcontext():
        yield
    sys.setrecursionlimit(limit), os.umask(mask), np.seterr(**errors), signal.signal(signal.SIGUSR1, handler)
    gc.enable() if state else gc.disable()


def _set_file(byte: int) -> Callable[[], Any]:
    return lambda: DATA.write_bytes(bytes([byte]) * 8)


def _of_database() -> int:
    with sqlite3.connect("data.db") as connection:
        return int(connection.execute("select value from numbers").fetchone()[0])


def _set_database(value: int) -> None:
    with sqlite3.connect("data.db") as connection:
        connection.execute("create table if not exists numbers (value)")
        connection.execute("delete from numbers")
        connection.execute("insert into numbers values (?)", (value,))


def _mapped() -> int:
    with open(os.open(DATA, os.O_RDONLY), "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        return memory[0]


def _depth() -> int:
    return sum(1 for _ in traceback.walk_stack(None))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _package(byte: int) -> Callable[[], Any]:
    def write() -> None:
        folder = pathlib.Path("datapackage")
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
        (folder / "data.txt").write_bytes(bytes([byte]))
        sys.path.insert(0, "") if "" not in sys.path else None

    return write


def _geterr_inside() -> int:
    with np.errstate(divide="raise"):
        return len(np.geterr()["over"])


def _divided() -> float:
    try:
        return float((np.ones(1) / np.zeros(1) > 1).sum())
    except FloatingPointError:
        return 3.0


class WithLength:
    def __len__(self) -> int:
        return _umask()


_FILE = [_set_file(1), _set_file(2)]
# name: (read, the states of the world before its calls)
OF_THE_PROCESS: dict[str, tuple[Callable[[], Any], list[Callable[[], Any]]]] = {
    "FileIO": (lambda: io.FileIO(DATA).read(1)[0], _FILE),
    "open": (lambda: open(DATA, "rb").read(1)[0], _FILE),  # noqa: SIM115
    "os.open": (lambda: os.read(os.open(DATA, os.O_RDONLY), 1)[0], _FILE),
    "fromfile": (lambda: np.fromfile(DATA, dtype=np.uint8)[0], _FILE),
    "memmap": (lambda: np.memmap(DATA, dtype=np.uint8, mode="r")[0], _FILE),
    "torch.from_file": (lambda: torch.from_file(str(DATA), size=8, dtype=torch.uint8).numpy()[0], _FILE),
    "torch.from_file, a tensor": (lambda: bool(KEPT.update(t=torch.from_file(str(DATA)))), _FILE),
    "mmap": (_mapped, _FILE),
    "linecache": (
        lambda: len(linecache.getline("text.txt", 1)),
        [lambda: TEXT.write_text("a"), lambda: (TEXT.write_text("abc"), linecache.clearcache())],
    ),
    "sqlite": (_of_database, [lambda: _set_database(1), lambda: _set_database(2)]),
    "get_data": (lambda: pkgutil.get_data("datapackage", "data.txt")[0], [_package(1), _package(2)]),  # type: ignore[index]
    "resources": (lambda: importlib.resources.read_binary("datapackage", "data.txt")[0], [_package(1), _package(2)]),
    "stat": (lambda: os.path.getsize(DATA), [_set_file(1), lambda: DATA.write_bytes(b"1")]),
    "umask": (_umask, [lambda: os.umask(0o22), lambda: os.umask(0o77)]),
    "recursion limit": (
        lambda: sys.getrecursionlimit(),
        [lambda: sys.setrecursionlimit(2000), lambda: sys.setrecursionlimit(2100)],
    ),
    "switch interval": (
        lambda: sys.getswitchinterval(),
        [lambda: sys.setswitchinterval(0.004), lambda: sys.setswitchinterval(0.005)],
    ),
    "the number of variables": (
        lambda: len(os.environ),
        [lambda: None, lambda: os.environ.update(REKINDLE_TESTS_VARIABLE="1"), lambda: os.environ.pop("REKINDLE_TESTS_VARIABLE")],
    ),
    "through a length": (lambda: len(WithLength()), [lambda: os.umask(0o22), lambda: os.umask(0o77)]),
    "gc.isenabled": (lambda: gc.isenabled(), [gc.disable, gc.enable]),
    "gc.get_threshold": (lambda: gc.get_threshold()[0], [lambda: gc.set_threshold(600), lambda: gc.set_threshold(700)]),
    "gc.get_count": (lambda: gc.get_count()[0] * 0, [lambda: None]),
    "geterr": (lambda: len(np.geterr()["over"]), [lambda: np.seterr(over="warn"), lambda: np.seterr(over="ignore")]),
    "getbufsize": (lambda: np.getbufsize() / 1e4, [lambda: np.setbufsize(16384), lambda: np.setbufsize(8192)]),
    "errstate": (_geterr_inside, [lambda: np.seterr(over="warn"), lambda: np.seterr(over="ignore")]),
    "division of arrays": (_divided, [lambda: np.seterr(divide="ignore"), lambda: np.seterr(divide="raise")]),
    "printoptions": (
        lambda: np.get_printoptions()["precision"],
        [lambda: np.set_printoptions(precision=8), lambda: np.set_printoptions(precision=4),
         lambda: np.set_printoptions(precision=8)],
    ),
    "walk_stack": (lambda: _depth() * 0, [lambda: None]),
    "signal": (
        lambda: signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN,
        [lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL), lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN)],
    ),
    "locale": (lambda: len(locale.setlocale(locale.LC_CTYPE)) * 0, [lambda: None]),
    "rlimit": (
        lambda: resource.getrlimit(resource.RLIMIT_CORE)[0],
        [lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, resource.getrlimit(resource.RLIMIT_CORE)[1])),
         lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))],
    ),
    "decimal context": (
        lambda: decimal.getcontext().prec,
        [lambda: setattr(decimal.getcontext(), "prec", 20), lambda: setattr(decimal.getcontext(), "prec", 28)],
    ),
    "computed in the decimal context": (
        lambda: decimal.Decimal(1) / decimal.Decimal(3) * 10**6,
        [lambda: setattr(decimal.getcontext(), "prec", 3), lambda: setattr(decimal.getcontext(), "prec", 28)],
    ),
    "warnings.filters": (lambda: len(warnings.filters), [lambda: None, lambda: warnings.simplefilter("ignore", BytesWarning)]),
    "active_count": (lambda: threading.active_count(), [lambda: None]),
    "strftime": (lambda: len(time.strftime("%Z")), [lambda: None]),
    "intern": (lambda: len(sys.intern("abc")), [lambda: None]),
    "print options of torch": (
        lambda: torch._tensor_str.PRINT_OPTS.precision,
        [lambda: torch.set_printoptions(precision=4), lambda: torch.set_printoptions(precision=5),
         lambda: torch.set_printoptions()],
    ),
    "threads of torch": (lambda: torch.get_num_threads(), [lambda: None]),
    "seed of torch": (lambda: torch.initial_seed() % 10, [lambda: torch.manual_seed(1), lambda: torch.manual_seed(2)]),
    "timeout of sockets": (
        lambda: socket.getdefaulttimeout() or 0,
        [lambda: socket.setdefaulttimeout(3), lambda: socket.setdefaulttimeout(None)],
    ),
    "is_initialized": (lambda: torch.distributed.is_initialized(), [lambda: None]),
    "WORLD": (lambda: torch.distributed.group.WORLD is not None, [lambda: None]),
    "cwd": (lambda: len(pathlib.Path.cwd().parts), [lambda: os.chdir("/"), lambda: os.chdir("/tmp")]),
    "by map": (lambda: next(map(os.path.getsize, [DATA])), [_set_file(1), lambda: DATA.write_bytes(b"1")]),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_THE_PROCESS)
def test_a_question_about_the_process_is_asked_at_each_call(name: str) -> None:
    read, states = OF_THE_PROCESS[name]
    compare_reads(lambda m, x: read(), states, [rows])


_CHECKPOINTED = """
import rekindle, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return checkpoint(self.linear, x, use_reentrant=False)

model = rekindle.Module(Net())
model(torch.ones(2, 3))
print(rekindle.status(model).source, rekindle.status(model).bypass)
"""


def test_what_torch_asks_its_drivers_for_an_answer_of_its_own_is_no_question_of_the_forwards(tmp_path: pathlib.Path) -> None:
    # The first checkpoint of a process asks whether there is an accelerator, which opens a driver's library.
    (tmp_path / "program.py").write_text(_CHECKPOINTED)
    done = python_process.run("program.py", cwd=tmp_path, check=True)
    assert done.stdout == "export []\n"


class _Logs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logging.getLogger(f"{__name__}.never.asked.for").debug("ran")
        return x * 2


def test_a_logger_that_the_forward_makes_is_no_change() -> None:
    model = rekindle.Module(_Logs(), rekindle.Options(log="error", cache="off"))
    model(torch.ones(2, 3))
    assert rekindle.status(model).source == "export", rekindle.status(model).bypass
