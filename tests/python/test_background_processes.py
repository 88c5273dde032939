"""Graphs of helpers between processes: what goes into the cache, where calls wait for none, and what a process leaves behind."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import time
from typing import Any

import pytest
import python_process
import rekindle
import torch
from background_support import DEADLINE, no_helper_is_left, until_ended, wrap  # noqa: F401  (a fixture for each test)
from module_support import mlp, rows
from rekindle import _native
from rekindle.lookup import store
from rekindle.lookup.background import Background
from rekindle.lookup.source import GraphSource
from torch import nn


def test_the_entry_serves_other_processes() -> None:
    model = wrap(mlp())
    model(rows())
    until_ended()
    other = rekindle.Module(mlp(), rekindle.Options(log="off"))
    other(rows())
    assert rekindle.status(other).source == "local"
    model(rows())
    assert rekindle.status(model).source == "background"
    assert len(rekindle.cache.ls()) == 1


@pytest.mark.parametrize(("mode", "entries"), [("off", 0), ("readonly", 0), ("refresh", 1)])
def test_a_graph_is_handed_over_whatever_the_cache_allows(mode: str, entries: int) -> None:
    rekindle.Module(nn.Linear(4, 3), rekindle.Options(log="off"))(rows())
    store.flush()
    model = wrap(mlp(), cache=mode)
    model(rows())
    until_ended()
    torch.testing.assert_close(model(rows()), mlp()(rows()))
    assert (rekindle.status(model).source, len(rekindle.cache.ls())) == ("background", 1 + entries)


def test_the_process_publishes_what_its_helper_may_not_write() -> None:
    rekindle.Module(nn.Linear(4, 3), rekindle.Options(log="off"))(rows())
    store.flush()  # so this process has written to the database, which a forked child cannot
    model = wrap(mlp())
    model(rows())
    until_ended()
    model(rows())
    store.flush()
    assert rekindle.status(model).source == "background"
    other = rekindle.Module(mlp(), rekindle.Options(log="off"))
    other(rows())
    assert rekindle.status(other).source == "local"


def test_where_eager_is_forbidden_calls_wait() -> None:
    model = wrap(mlp(), fallback="error")
    model(rows())
    assert rekindle.status(model).source == "export"


def test_the_only_rank_of_a_job_decides_alone() -> None:
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        model = wrap(mlp())
        for source in ("eager", "background"):
            model(rows())
            assert rekindle.status(model).source == source
            until_ended()
    finally:
        torch.distributed.destroy_process_group()


def test_without_another_process_calls_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(_native, "fork_helper", refuse)
    model = wrap(mlp())
    model(rows())
    assert rekindle.status(model).source == "export"


def test_a_cached_graph_serves_the_first_call() -> None:
    rekindle.Module(mlp(), rekindle.Options(log="off"))(rows())
    store.flush()
    model = wrap(mlp())
    model(rows())
    assert (rekindle.status(model).source, rekindle.status(model).hits) == ("local", 1)


_SCRIPT = """
import signal, sys, time
import module_support, rekindle
from rekindle.lookup.background import Background
from rekindle.lookup.source import GraphSource

start, seconds = sys.argv[1], float(sys.argv[2])
make = GraphSource._make_beside
GraphSource._make_beside = lambda *given: time.sleep(seconds) or make(*given)
signal.signal(signal.SIGTERM, lambda *_: print("the handler of the user"))
model = rekindle.Module(module_support.mlp(), rekindle.Options(start=start, log="off"))
model(module_support.rows())
print(rekindle.status(model).source, Background._at_work.number if Background._at_work else 0)
"""


def run(start: str, seconds: float = 0.0) -> tuple[str, int]:
    """Runs a script whose helper waits so many seconds; returns where its graph came from and the number of the helper."""
    arguments = "-c", _SCRIPT, start, str(seconds)
    done = python_process.run(*arguments, cwd=pathlib.Path(__file__).parent, timeout=60, check=True)
    source, number = done.stdout.split()
    return source, int(number)


def until_gone(number: int) -> None:
    start = time.monotonic()
    while is_running(number):
        assert time.monotonic() - start < DEADLINE
        time.sleep(0.01)


def is_running(number: int) -> bool:
    try:
        return "Z" not in pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_nobody_waits_for_a_helper_to_let_go_of_a_pipe() -> None:
    source, number = run("background", 600)
    assert source == "eager"
    assert is_running(number)
    os.kill(number, signal.SIGTERM)  # for which it has no handler of the user's
    until_gone(number)


def test_what_a_short_run_began_serves_the_next() -> None:
    source, number = run("background", 0.5)
    assert source == "eager"
    until_gone(number)
    assert run("wait") == ("local", 0)


def test_a_forked_child_takes_the_helper_of_its_parent_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphSource, "_make_beside", lambda *_: time.sleep(600))
    model = wrap(mlp())
    model(rows())
    helper = Background._at_work
    child = os.fork()
    if child == 0:
        status = 1
        try:
            model(rows())
            own = Background._at_work
            is_right = [code for code, _ in rekindle.status(model).bypass] == ["background"] and own is not helper
            os.kill(own.number, signal.SIGKILL)
            status = 0 if is_right else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert helper.check()
