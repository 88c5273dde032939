"""Custom autograd Functions run inside the graph as in eager: results, gradients, calls; cold, warm and over several steps."""

from __future__ import annotations

import copy
import logging
import pathlib
import subprocess
import sys
from typing import Any

import function_cases
import pytest
import rekindle
import torch
from function_cases import FUNCTIONS
from module_support import assert_same
from semantics_support import made_of, rows
from torch import nn


class _Calls(logging.Handler):
    """What the Functions log."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _steps(model: nn.Module, module: nn.Module) -> Any:
    """Three steps, the second of another batch size; then one without gradients."""
    torch.manual_seed(3)
    calls = _Calls()
    function_cases.LOG.setLevel(logging.INFO)
    function_cases.LOG.addHandler(calls)
    found = []
    for size in (5, 3, 5):
        x = rows(size, size, 4).requires_grad_()
        result = model(x)
        result.float().square().sum().backward()
        found.append([result.detach(), x.grad, *(parameter.grad for parameter in module.parameters())])
        module.zero_grad()
    with torch.no_grad():
        found.append(model(rows()))
    function_cases.LOG.removeHandler(calls)
    return [found, calls.messages, torch.get_rng_state()]


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"Holds"}))
def test_a_function_runs_inside_the_graph(name: str) -> None:
    torch.manual_seed(0)
    module = FUNCTIONS[name]()
    theirs = _steps(module, module)
    for source in ("export", "local"):
        own = copy.deepcopy(module)
        model = rekindle.Module(own, rekindle.Options(fallback="error"))
        ours = _steps(model, own)
        assert_same(ours[0], theirs[0])
        assert torch.equal(ours[2], theirs[2])
        status = rekindle.status(model)
        assert (status.source, status.eager_calls) == (source, 0)
        rekindle.store.flush()
    assert ours[1] == theirs[1], "a warm process calls each Function as often as eager"


@pytest.mark.parametrize("name", ["NO_GRADIENT", "UNUSED", "NESTED"])
def test_what_a_graph_would_not_run_as_eager_does_runs_in_eager(name: str) -> None:
    module = getattr(function_cases, name)()
    own = copy.deepcopy(module)
    theirs, ours = _steps(module, module), _steps(rekindle.Module(own), own)
    assert_same(ours[0], theirs[0])


_CONTEXTS = """
import gc, logging, weakref
import function_cases, rekindle
from semantics_support import rows

class Tokens(logging.Handler):
    alive = []
    def emit(self, record):
        self.alive.append(weakref.ref(record.args[0]))
    def count(self):
        gc.collect()
        return sum(token() is not None for token in self.alive)

model = rekindle.Module(function_cases.FUNCTIONS["Holds"](), rekindle.Options(fallback="error"))
model(rows()).sum().backward()
tokens = Tokens()
function_cases.LOG.setLevel(logging.INFO)
function_cases.LOG.addHandler(tokens)
first, second = model(rows()), model(rows(1))
counts = [tokens.count()]
first.sum().backward(retain_graph=True)
counts.append(tokens.count())
first.sum().backward()
counts.append(tokens.count())
del second
counts.append(tokens.count())
assert counts == [2, 2, 1, 0], counts
"""


def test_contexts_live_until_their_backward_or_the_end_of_their_result() -> None:
    # In a process of its own: pytest keeps what is logged.
    directory = pathlib.Path(__file__).parent
    subprocess.run([sys.executable, "-c", _CONTEXTS], cwd=directory, check=True, timeout=120)


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, when: Any) -> torch.Tensor:
        if when.forward:
            raise KeyError("in forward")
        ctx.when = when
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if ctx.when.backward:
            raise ZeroDivisionError("in backward")
        return gradient, None


class When:
    forward = False
    backward = False


class RaisingModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.when = When

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Raises.apply(self.linear(x), When)


def test_exceptions_keep_their_type_and_message(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rekindle.Module(RaisingModule(), rekindle.Options(fallback="error"))
    model(rows()).sum().backward()
    result = model(rows())
    handle = When.__dict__["backward"]
    assert handle is False
    with pytest.raises(ZeroDivisionError, match="in backward"):
        type.__setattr__(When, "backward", True)
        try:
            result.sum().backward()
        finally:
            type.__setattr__(When, "backward", False)
    model(rows()).sum().backward()
    assert rekindle.status(model).eager_calls == 0


class TakesAnything(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, thing: Any) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2, None


def test_an_object_that_nothing_leads_to_is_a_bypass_that_names_it() -> None:
    module = made_of(lambda self, x: TakesAnything.apply(self.a(x), object()))()
    model = rekindle.Module(module)
    torch.testing.assert_close(model(rows()), module(rows()))
    ((reason, message),) = rekindle.status(model).bypass
    assert reason == "python_op"
    assert "argument 1 of the autograd Function TakesAnything is a builtins.object" in message


def test_an_entry_can_name_autograd_functions_only() -> None:
    from rekindle.python_ops import bind
    from rekindle.reasons import Bypass

    call = {"function": [["module", "os"], ["attribute", "system"]], "arguments": [], "results": [0], "others": [], "layouts": [], "dirty": []}
    with pytest.raises(Bypass, match=r"os\.system of the cached graph is no autograd Function"):
        bind(call, nn.Identity())


def test_results_whose_sizes_depend_on_data_run_in_eager_from_then_on() -> None:
    module = function_cases.POSITIVE()
    model = rekindle.Module(module)
    torch.manual_seed(1)
    for step in range(4):
        torch.testing.assert_close(model(rows(step)), module(rows(step)))
    assert set(code for code, _ in rekindle.status(model).bypass) <= {"python_op", "unsupported_op"}


def test_what_a_function_reads_and_its_backward_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    module = FUNCTIONS["ReadsGlobal"]()

    def gradient_of(model: nn.Module) -> torch.Tensor:
        module.zero_grad()
        model(rows()).sum().backward()
        return module.a.weight.grad.clone()

    for change in (
        lambda: None,
        lambda: monkeypatch.setattr(function_cases, "SCALE", 7.0),
        lambda: monkeypatch.setattr(function_cases, "_scaled", lambda gradient: gradient * 11),
        lambda: monkeypatch.setattr(function_cases.ReadsGlobal, "backward", staticmethod(lambda ctx, gradient: gradient * 13)),
    ):
        change()
        model = rekindle.Module(module)
        torch.testing.assert_close(gradient_of(model), gradient_of(module))
        assert rekindle.status(model).source == "export"
        rekindle.store.flush()
        again = rekindle.Module(module)
        torch.testing.assert_close(gradient_of(again), gradient_of(module))
        assert rekindle.status(again).source == "local"
