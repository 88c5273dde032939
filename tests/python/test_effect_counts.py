"""User code does what it does as often as in eager, at each call that returns to the user, those that export included."""

from __future__ import annotations

import io
import logging
import os
import pathlib
import random
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rekindle
import torch
from effect_cases import C_LIBRARY, EFFECTS, LOG, PIPE, SEEN, SENT, STREAM, Counts, appended_once, logged_once
from effect_users import USERS, Doer
from module_support import assert_same, rows
from torch import nn


@pytest.fixture(autouse=True)
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A directory, a pipe, a pair of sockets, a logger and a signal that are this test's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EFFECT", "")
    log, handler = logging.getLogger("effects"), Counts()
    log.addHandler(handler)
    log.propagate = False
    stream, lines = logging.getLogger("effects.stream"), logging.StreamHandler(STREAM)
    stream.addHandler(lines)
    stream.propagate = False
    before, limit, mask = signal.signal(signal.SIGUSR1, lambda *_: LOG.append("signal")), sys.getrecursionlimit(), os.umask(0o22)
    yield
    log.removeHandler(handler), stream.removeHandler(lines), np.seterr(over="warn")
    signal.signal(signal.SIGUSR1, before), sys.setrecursionlimit(limit), os.umask(mask)


def _fresh(directory: pathlib.Path) -> None:
    directory.mkdir()
    os.chdir(directory)
    for descriptor in (SEEN.pop("read", None), SEEN.pop("write", None)):
        if descriptor is not None:
            os.close(descriptor)
    SEEN["read"], SEEN["write"] = os.pipe()
    os.set_blocking(SEEN["read"], False)
    for one in SENT:
        one.close()
    SENT[:] = socket.socketpair()
    SENT[1].setblocking(False)
    LOG.clear(), PIPE.clear(), logged_once.cache_clear(), appended_once.cache_clear(), random.seed(1), np.random.seed(1)
    STREAM.seek(0), STREAM.truncate(), np.seterr(over="warn")
    os.environ["EFFECT"] = ""
    C_LIBRARY.unsetenv(b"EFFECT_C")
    sys.setrecursionlimit(3000)
    os.umask(0o22)


def _history(make: Callable[[], Any], count: Callable[[], Any] | None, capfd: Any, filters: str) -> list[Any]:
    """Result, what was counted, printed and warned, after each of three calls, the last two with a backward."""
    torch.manual_seed(1)
    found = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.resetwarnings()
        warnings.simplefilter(filters)  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.onceregistry.clear()  # type: ignore[attr-defined]
        capfd.readouterr()
        model = make()
        for step in range(3):
            y = model(rows(step))
            if step:
                y.sum().backward()
            counted = count() if count else None
            found.append((y.detach(), counted, len(LOG), capfd.readouterr(), [str(one.message) for one in warned]))
    return found


def _compare(make: Callable[[], nn.Module], count: Any, capfd: Any, directory: pathlib.Path, filters: str = "default") -> Any:
    _fresh(directory / "eager")
    expected = _history(make, count, capfd, filters)
    _fresh(directory / "ours")
    options = rekindle.Options(log="error", cache_dir=str(directory / "cache"))
    wrapped: list[Any] = []
    ours = _history(lambda: wrapped.append(rekindle.Module(make(), options)) or wrapped[0], count, capfd, filters)
    for one, other in zip(ours, expected, strict=True):
        assert_same(one[0], other[0])
        assert one[1:] == other[1:]
    return wrapped[0]


@pytest.mark.parametrize("name", EFFECTS)
def test_a_forward_does_it_as_often_as_in_eager(name: str, capfd: Any, tmp_path: pathlib.Path) -> None:
    do, count = EFFECTS[name]
    _compare(lambda: Doer(do), count, capfd, tmp_path)


@pytest.mark.parametrize("name", ["warning", "warning of torch", "ignored warning"])
@pytest.mark.parametrize("filters", ["always", "once", "ignore", "module"])
def test_warnings_are_shown_as_often_as_in_eager(name: str, filters: str, capfd: Any, tmp_path: pathlib.Path) -> None:
    _compare(lambda: Doer(EFFECTS[name][0]), None, capfd, tmp_path, filters)


@pytest.mark.parametrize("name", ["logger that is off", "logged once", "ignored warning of torch", "StringIO in memory"])
def test_what_is_not_seen_leaves_a_graph(name: str, capfd: Any, tmp_path: pathlib.Path) -> None:
    do = {"ignored warning of torch": EFFECTS["warning of torch"][0], "StringIO in memory": lambda: io.StringIO().write("x")}.get(
        name
    )
    do = do or EFFECTS[name][0]
    wrapped = _compare(lambda: Doer(do), None, capfd, tmp_path, "ignore")
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass


class Doubled(torch.autograd.Function):
    do: Callable[[str], Any] = staticmethod(lambda where: None)

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        Doubled.do("forward")
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Doubled.do("backward")
        return gradient * 2


class Applies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(self.linear(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize(
    "name",
    (
        "append, print, os.write, file, logger, log to a stream, appended once, end of an object, warning, random, os.system, "
        "descriptor"
    ).split(", "),
)
def test_an_autograd_function_does_it_as_often_as_in_eager(
    where: str, name: str, capfd: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do, count = EFFECTS[name]
    monkeypatch.setattr(Doubled, "do", staticmethod(lambda here: do() if here == where else None))
    _compare(Applies, count, capfd, tmp_path)


@pytest.mark.parametrize("name", USERS)
def test_what_the_module_holds_runs_as_often_as_in_eager(name: str, capfd: Any, tmp_path: pathlib.Path) -> None:
    _compare(USERS[name], None, capfd, tmp_path)


class Saved(torch.autograd.Function):
    """Code of a Function beside its forward and backward."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        LOG.append("forward")
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        LOG.append("setup_context")
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        LOG.append("backward")
        return gradient * 2 + 0 * ctx.saved_tensors[0]


class AppliesSaved(Applies):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Saved.apply(self.linear(x))  # type: ignore[no-any-return]


def _kept() -> list[str]:
    return [str(entry) for entry in LOG]


def test_a_function_with_a_setup_runs_as_often_as_in_eager(capfd: Any, tmp_path: pathlib.Path) -> None:
    _compare(AppliesSaved, _kept, capfd, tmp_path)
