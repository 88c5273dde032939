"""Graphs that helpers make while calls run in eager: the switch, what may keep from it, and that nothing else changes."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import python_process
import rekindle
import torch
from module_support import Twins, mlp, rows, tiny_gpt, tokens, train
from rekindle import _native
from rekindle.calls.subject import Subject
from rekindle.errors import PythonOpError
from rekindle.functions import registry
from rekindle.lookup import store
from rekindle.lookup.background import Background, Offer
from rekindle.lookup.source import GraphSource
from rekindle.lookup.wanted import Wanted
from rekindle.modules.status import Status
from rekindle.process.random_states import random_states, random_states_equal
from torch import nn

_DEADLINE = 60.0  # seconds; a helper has the lowest priority

MakeBeside = Callable[[GraphSource, Wanted, Offer], Status]


def wrap(module: nn.Module, **options: Any) -> rekindle.Module:
    return rekindle.Module(module, rekindle.Options(start="background", **{"log": "off", **options}))


def until_ended() -> None:
    """Waits until no helper is at work."""
    start = time.monotonic()
    while (working := Background._at_work) is not None and working.check():
        assert time.monotonic() - start < _DEADLINE
        time.sleep(0.01)


def reasons(model: Any) -> list[str]:
    return [code for code, _ in rekindle.status(model).bypass]


@pytest.fixture(autouse=True)
def no_helper_is_left() -> Iterator[None]:
    yield
    if (working := Background._at_work) is not None and working.check():
        os.kill(working.number, signal.SIGKILL)
        until_ended()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    """Helpers wait until a file is there."""
    go_on, make = tmp_path / "go on", GraphSource._make_beside

    def wait(source: GraphSource, wanted: Wanted, offer: Offer) -> Status:
        while not go_on.exists():
            time.sleep(0.01)
        return make(source, wanted, offer)

    monkeypatch.setattr(GraphSource, "_make_beside", wait)
    return go_on


def test_training_is_eagers_bit_for_bit_until_the_switch(slow: pathlib.Path) -> None:
    eager, model = tiny_gpt(dropout=0.1), wrap(tiny_gpt(dropout=0.1))
    states: dict[Any, list[Any]] = {eager: [], model: []}
    sources: list[str] = []

    def loss(one: Any, step: int) -> torch.Tensor:
        if one is model and step == 6:
            slow.touch()
            until_ended()
        value = torch.nn.functional.cross_entropy(one(tokens(step)).flatten(0, 1), tokens(step + 1).flatten())
        states[one].append(random_states())
        if one is model:
            sources.append(rekindle.status(model).source)
        return value

    theirs, ours = (train(one, 12, lambda p: torch.optim.Adam(p, 1e-2), loss) for one in (eager, model))
    assert sources == ["eager"] * 6 + ["background"] * 6
    assert ours[:7] == theirs[:7]  # the forward of the switch is from the same parameters
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert all(random_states_equal(*both) for both in zip(states[eager], states[model], strict=True))
    status = rekindle.status(model)
    assert (status.exports, status.hits, status.eager_calls, reasons(model)) == (1, 0, 6, ["background"])


class Normalized(nn.Module):
    """Has buffers that a forward writes, and code that a hook runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_state_and_gradients_are_eagers_before_and_after() -> None:
    twins = Twins(Normalized(), start="background", log="off")
    twins.call(rows())
    until_ended()
    for step in range(3):
        twins.call(rows(step))
    assert (twins.status.source, twins.status.eager_calls) == ("background", 1)


def test_hooks_fire_once_a_call(slow: pathlib.Path) -> None:
    module, seen = Normalized(), []
    model = wrap(module)
    module.register_full_backward_hook(lambda *_: seen.append("backward"))
    model.register_forward_hook(lambda *_: seen.append("forward"))
    for step in range(4):
        if step == 2:
            slow.touch()
            until_ended()
        model(rows(step)).sum().backward()
    assert seen == ["forward", "backward"] * 4


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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGALRM])
def test_a_helper_that_is_killed_costs_the_graph_only(slow: pathlib.Path, number: signal.Signals) -> None:
    eager, model = mlp(), wrap(mlp())
    torch.testing.assert_close(model(rows()), eager(rows()), rtol=0, atol=0)
    assert Background._at_work is not None
    os.kill(Background._at_work.number, number)
    until_ended()
    torch.testing.assert_close(model(rows()), eager(rows()), rtol=0, atol=0)
    assert reasons(model) == ["background", "export_failed"]
    assert "was it killed?" in rekindle.status(model).bypass[1][1]
    slow.touch()
    model(rows())  # which has another made
    until_ended()
    model(rows())
    assert rekindle.status(model).source == "background"


class Printing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Normalized(), Normalized()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(x)
        print(f"mean {hidden.mean().item():.3f}")
        return self.decoder(torch.nn.functional.pad(hidden, (0, 1)))


def test_a_refusal_is_handed_over_and_parts_follow_in_the_background(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(3)
    model, calls = wrap(Printing()), 0
    start = time.monotonic()
    while [part.source for part in rekindle.status(model).parts] != ["eager", "background", "background"]:
        assert time.monotonic() - start < _DEADLINE, rekindle.status(model)
        model(rows(calls))
        calls += 1
        until_ended()
    assert reasons(model)[:1] == ["background"]
    assert "value_specialized" in reasons(model)
    assert capfd.readouterr().out.count("mean") == calls


class Declared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class Calling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Declared.apply(x)


def test_an_error_of_the_user_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("_declared", "_key"):  # so that other tests' keys know nothing of it
        monkeypatch.setattr(registry, table, {})
    rekindle.register_python_op(Declared, inplace_map={0: 0})
    model = wrap(Calling())
    model(rows().requires_grad_())
    until_ended()
    with pytest.raises(PythonOpError, match="is declared for the autograd Function Declared"):
        model(rows().requires_grad_())


def test_one_helper_is_at_work_at_a_time(slow: pathlib.Path) -> None:
    first, second = wrap(mlp()), wrap(Normalized())
    first(rows())
    helper = Background._at_work
    second(rows())
    assert Background._at_work is helper
    slow.touch()
    for model in (first, second):
        until_ended()
        model(rows())
        until_ended()
        model(rows())
        assert rekindle.status(model).source == "background"


def test_calls_of_other_sizes_wait_without_a_look(slow: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, looks = wrap(mlp()), []
    describe = Subject.fingerprint
    monkeypatch.setattr(Subject, "fingerprint", lambda *given: looks.append(1) or describe(*given))
    for count in range(2, 10):
        model(rows(count=count))
    assert len(looks) == 1
    slow.touch()
    until_ended()
    for count in range(2, 10):
        model(rows(count=count))
    assert (rekindle.status(model).exports, rekindle.status(model).eager_calls) == (1, 8)


def test_a_module_that_was_changed_meanwhile_gets_a_graph_of_its_own(slow: pathlib.Path) -> None:
    eager, model = mlp(), wrap(mlp())
    model(rows())
    for one in (eager, model):
        one.second = nn.Linear(8, 2)
        nn.init.ones_(one.second.weight)
        nn.init.ones_(one.second.bias)
    slow.touch()
    for _ in range(3):
        until_ended()
        torch.testing.assert_close(model(rows()), eager(rows()))
    assert (rekindle.status(model).source, model(rows()).shape) == ("background", (5, 2))


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
        assert time.monotonic() - start < _DEADLINE
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
