"""Graphs that helpers make while calls run in eager: the switch, what may keep from it, and that nothing else changes."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from background_support import DEADLINE, no_helper_is_left, until_ended, wrap  # noqa: F401  (a fixture for each test)
from module_support import Twins, mlp, rows, tiny_gpt, tokens, train
from rekindle.calls.subject import Subject
from rekindle.errors import PythonOpError
from rekindle.functions import registry
from rekindle.lookup.background import Background, Offer
from rekindle.lookup.source import GraphSource
from rekindle.lookup.wanted import Wanted
from rekindle.modules.status import Status
from rekindle.process.random_states import random_states, random_states_equal
from torch import nn

MakeBeside = Callable[[GraphSource, Wanted, Offer], Status]


def reasons(model: Any) -> list[str]:
    return [code for code, _ in rekindle.status(model).bypass]


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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGALRM])
def test_a_helper_that_is_killed_costs_the_graph_only(slow: pathlib.Path, number: signal.Signals) -> None:
    eager, model = mlp(), wrap(mlp())
    torch.testing.assert_close(model(rows()), eager(rows()), rtol=0, atol=0)
    assert Background._at_work is not None
    os.kill(Background._at_work.number, number)
    until_ended()
    torch.testing.assert_close(model(rows()), eager(rows()), rtol=0, atol=0)
    assert reasons(model) == ["background", "export_failed"]
    assert "ended without one: " in rekindle.status(model).bypass[1][1]  # SIGALRM may be its own, before it has begun
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
        assert time.monotonic() - start < DEADLINE, rekindle.status(model)
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
