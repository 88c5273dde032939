"""Signal handlers that run in the middle of a first call: they do what they do in eager, and the call becomes a graph."""

from __future__ import annotations

import contextlib
import io
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import threads as suite
import torch
from module_support import Twins, assert_same, rows
from rekindle.process import process_state, signal_handlers
from torch import nn


class Read(nn.Module):
    """Reads what a handler sets."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.stop, self.seen = nn.Linear(4, 4), 0, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (2 if self.stop < 1000 and len(self.seen) < 1000 else 3)


class Handled:
    """How often the handler began and ended."""

    def __init__(self, body: Callable[[], Any]) -> None:
        self.began = self.ended = 0
        self._body = body

    def __call__(self, *_: object) -> None:
        self.began += 1
        try:
            self._body()
        finally:
            self.ended += 1


@contextlib.contextmanager
def signals(body: Callable[[], Any], pause: float = 0.002) -> Iterator[Handled]:
    """Within it, this thread gets one signal after another, whose handler calls `body`."""
    handled, done = Handled(body), threading.Event()
    before = signal.signal(signal.SIGUSR1, handled)

    def send() -> None:
        while not done.wait(pause):
            count = handled.ended
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            while handled.ended == count and not done.wait(0.001):
                pass

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield handled
    finally:
        done.set()
        thread.join()
        assert signal.signal(signal.SIGUSR1, before) is handled


def _save(model: nn.Module) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    return dict(torch.load(file))


def _step(model: nn.Module) -> None:
    with torch.enable_grad():  # a handler may run in the forward of an autograd Function, where gradients are off
        total = model(rows()).sum()
        torch.autograd.grad(total, [*model.parameters()])


@pytest.mark.parametrize("name", ["attention", "function", "lengths"])
@pytest.mark.parametrize("what", ["saves", "trains", "prints"])
def test_a_handler_in_a_first_call_does_its_work_and_leaves_a_graph(name: str, what: str, capfd: Any) -> None:
    twins = Twins(suite.MODELS[name]())
    other = suite.MODELS[name]()
    expected = _save(twins.eager)
    found: list[Any] = []
    bodies = {
        "saves": lambda: found.append(_save(twins.wrapped)),
        "trains": lambda: found.append(_step(other)),
        "prints": lambda: found.append(print("now", flush=True)),
    }
    with signals(bodies[what]) as handled:
        ours = twins.wrapped(rows())
    assert_same(ours, twins.eager(rows()))
    assert 0 < handled.began == handled.ended == len(found)
    if what == "saves":
        for state in found:
            assert_same(state, expected)
    if what == "prints":
        assert capfd.readouterr().out.count("now") == handled.began
    assert twins.status.source == "export" and twins.status.bypass == []
    twins.call(rows(1))


def test_what_a_handler_notes_is_not_put_back() -> None:
    twins = Twins(Read())

    def note() -> None:
        twins.module.stop += 1
        twins.module.seen.append(1)

    with signals(note, pause=0.02) as handled:
        twins.call(rows())
    assert handled.began > 0
    assert (twins.module.stop, len(twins.module.seen)) == (handled.began, handled.began)
    twins.wrapped(rows())
    assert twins.status.source in ("export", "local", "memory")


def test_a_handler_that_raises_leaves_nothing_behind() -> None:
    suite.alone(["attention"])  # what torch loads when it first exports
    before = suite._namespaces()
    armed = stopped = 0

    def stop() -> None:
        nonlocal armed
        if armed and time.monotonic() > armed:
            armed = 0
            raise KeyboardInterrupt

    for step in range(12):
        twins = Twins(suite.MODELS["attention"](), cache="refresh")
        with signals(stop):
            try:
                armed = time.monotonic() + 0.05 * step
                twins.wrapped(rows())
                armed = 0
            except KeyboardInterrupt:
                stopped += 1
        assert suite._left(before) == [] and not process_state._state.lock.locked()
        twins.call(rows(1))
        assert twins.status.source != "eager" and twins.status.bypass == []
    assert stopped > 0


def test_a_handler_that_the_handler_sets_stays() -> None:
    twins = Twins(suite.MODELS["attention"]())
    later = lambda *_: None  # noqa: E731
    ran = []

    def once(*_: object) -> None:
        ran.append(signal.getsignal(signal.SIGUSR1))
        signal.signal(signal.SIGUSR1, later)

    before = signal.signal(signal.SIGUSR1, once)
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1))
    timer.start()
    twins.wrapped(rows())
    timer.join()
    assert signal.signal(signal.SIGUSR1, before) is later
    assert len(ran) == 1 and (ran[0] is once or isinstance(ran[0], signal_handlers.StandIn))
    assert rekindle.status(twins.wrapped).source == "export"
