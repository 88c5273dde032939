"""What a call is given beside the content of its tensors: types of keys, and what was set on a tensor. Digest functions that
raise. What an export keeps alive."""

from __future__ import annotations

import contextvars
import gc
import pathlib
import weakref
from typing import Any

import pytest
import rekindle
import torch
from module_support import assert_same, rows
from rekindle.lookup.store import flush
from torch import nn


def _options(path: pathlib.Path) -> rekindle.Options:
    return rekindle.Options(cache_dir=str(path))


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * getattr(x, "pad", 1.0)


@pytest.mark.parametrize("values", [(2.0, 3.0), (0.0, -0.0), (torch.ones(()), None)])
def test_an_attribute_of_an_argument_is_followed(values: tuple[Any, Any], tmp_path: pathlib.Path) -> None:
    module = Padded()
    for wrapped in (rekindle.Module(module, _options(tmp_path)), rekindle.Module(module, _options(tmp_path))):
        assert_same(wrapped(rows()), module(rows()))
        assert rekindle.status(wrapped).source in ("export", "local")
        for value in values:
            x = rows()
            x.pad = value if value is not None else 5.0  # type: ignore[attr-defined]
            ours, theirs = wrapped(x), module(x)
            assert_same(ours, theirs)
            assert torch.equal(torch.signbit(ours), torch.signbit(theirs))
        assert rekindle.status(wrapped).bypass[0][0] == "unsupported_input"
        assert_same(wrapped(rows()), module(rows()))
        assert rekindle.status(wrapped).eager_calls == 2


class Keyed(nn.Module):
    def forward(self, held: dict[Any, torch.Tensor]) -> torch.Tensor:
        return held[1] * {int: 1.0, float: 2.0, bool: 3.0}[type(next(iter(held)))]


def test_keys_that_are_equal_are_told_apart_by_their_type(tmp_path: pathlib.Path) -> None:
    module = Keyed()
    wrapped = rekindle.Module(module, _options(tmp_path))
    for key in (1, 1.0, True, 1):
        assert_same(wrapped({key: rows()}), module({key: rows()}))


class Handle:
    k = 1.0
    raises = False


class OfHandle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.handle = Handle()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.handle.k


def _digest_of_handle(handle: Handle) -> float:
    if handle.raises:
        raise ValueError("not now")
    return handle.k


def test_a_digest_function_that_raises_later_leads_to_eager_with_a_reason(tmp_path: pathlib.Path) -> None:
    rekindle.register_digest(Handle, _digest_of_handle)
    try:
        module = OfHandle()
        wrapped = rekindle.Module(module, _options(tmp_path))
        assert_same(wrapped(rows()), module(rows()))
        assert rekindle.status(wrapped).source == "export"
        module.handle.raises = True
        module.handle.k = 3.0
        for _ in range(3):
            assert_same(wrapped(rows()), module(rows()))
        assert rekindle.status(wrapped).source == "eager"
        assert rekindle.status(wrapped).bypass[0][0] == "opaque_value"
        assert "raised ValueError: not now" in rekindle.status(wrapped).bypass[0][1]
    finally:
        rekindle.register_digest(Handle, None)


UNSET: contextvars.ContextVar[float] = contextvars.ContextVar("UNSET")


class Sets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.variable = UNSET
        self.met: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.variable.get(1.0)
        self.variable.set(before + 1.0)
        return self.linear(x) * before


def test_a_context_variable_that_was_unset_is_unset_when_the_call_runs(tmp_path: pathlib.Path) -> None:
    module = Sets()
    theirs = [contextvars.Context().run(module, rows())]
    wrapped = rekindle.Module(module, _options(tmp_path))

    def twice(call: Any) -> list[torch.Tensor]:
        return [call(rows()), call(rows())]

    theirs = contextvars.Context().run(twice, module)
    assert_same(contextvars.Context().run(twice, wrapped), theirs)


class Trainer:
    model: Any = None


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return 2 * g * ctx.saved_tensors[0]


class OfFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Squared.apply(self.linear(x))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("how", ["trainer", "weak", "list", "bound method", "result"])
@pytest.mark.parametrize("kind", [Padded, OfFunction])
def test_a_path_from_the_module_to_its_wrapper_keeps_neither_alive(kind: Any, how: str, tmp_path: pathlib.Path) -> None:
    net = kind()
    wrapped = rekindle.Module(net, _options(tmp_path))
    if how == "trainer":
        net.trainer = Trainer()
        net.trainer.model = wrapped
    elif how == "weak":
        net.wrapper = weakref.ref(wrapped)
    elif how == "list":
        net.held = [wrapped]
    elif how == "bound method":
        net.call = wrapped.forward
    for step in range(3):
        loss = wrapped(rows(step)).sum()
        loss.backward()
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass
    if how == "result":
        (gradient,) = torch.autograd.grad(wrapped(rows()).sum(), [net.linear.weight], create_graph=True)
        del gradient
    dead = [weakref.ref(one) for one in (net, wrapped, net.linear, *net.parameters())]
    del net, wrapped, loss
    flush()
    gc.collect()
    gc.collect()
    assert [one() for one in dead] == [None] * len(dead)


def test_a_backward_that_is_differentiated_again_needs_no_other_path_to_the_module(tmp_path: pathlib.Path) -> None:
    def differentiated(wrap: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net: Any = OfFunction()
        x = rows().requires_grad_()
        loss = (rekindle.Module(net, _options(tmp_path)) if wrap else net)(x).sum()
        del net
        gc.collect()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        return [first, *torch.autograd.grad(first.sum(), x)]

    assert_same(differentiated(True), differentiated(False))
