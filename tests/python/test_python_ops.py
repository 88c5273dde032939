"""Custom autograd Functions run inside the graph as in eager: results, gradients, calls; cold, warm and over several steps."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import function_cases
import function_cases_calls  # noqa: F401
import function_cases_kinds  # noqa: F401
import function_cases_memory  # noqa: F401
import function_cases_results  # noqa: F401
import pytest
import python_process
import rekindle
import torch
from function_cases import FUNCTIONS
from semantics_support import made_of, rows
from torch import nn

_DIRECTORY = pathlib.Path(__file__).parent
_PARTS = 3  # of the cases, each in processes of its own


@pytest.mark.parametrize("part", range(_PARTS))
def test_functions_run_inside_the_graph(part: int, tmp_path: pathlib.Path) -> None:
    """All in a process that exports, then in one that finds everything in the cache and runs no forward."""
    names = sorted(FUNCTIONS)[part::_PARTS]
    environment = {**os.environ, "REKINDLE_CACHE_DIR": str(tmp_path)}
    for kind in ("cold", "warm"):
        done = python_process.run("function_process.py", kind, *names, cwd=_DIRECTORY, env=environment, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]
        assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys(names, ""), kind


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
    done = python_process.run("-c", _CONTEXTS, cwd=directory)
    assert done.returncode == 0, done.stderr[-4000:]


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
    from rekindle.functions.binding import bind
    from rekindle.functions.calls import Call
    from rekindle.reasons import Bypass

    call = Call(function=[["module", "os"], ["attribute", "system"]], arguments=[], tensors=[], results=[0])
    with pytest.raises(Bypass, match=r"os\.system of the cached graph is no autograd Function"):
        bind(call, nn.Identity())


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
        rekindle.lookup.store.flush()
        again = rekindle.Module(module)
        torch.testing.assert_close(gradient_of(again), gradient_of(module))
        assert rekindle.status(again).source == "local"
