"""Plain tensors that a forward reads: a write before the backward is the error that it is in eager, and no other is."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import types
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn

GLOBAL = torch.tensor([1.0, 2.0, 3.0])


class Net(nn.Module):
    table = torch.tensor([2.0, 2.0, 2.0])

    def __init__(self, read: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.read = read
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        self.register_buffer("seen", torch.ones(6))
        self.plain = torch.tensor([0.5, 1.5, 2.5])
        self.parts = [torch.zeros(3), {"scale": torch.full((3,), 3.0)}]
        self.config = types.SimpleNamespace(scale=torch.full((3,), 4.0))
        self.view = self.seen[:3]

    def forward(self, x: torch.Tensor) -> Any:
        constant = self.read(self)
        return x * self.w * constant, x * self.w + constant


@dataclasses.dataclass
class _Settings:
    scale: torch.Tensor


def _closure() -> Callable[[Any], torch.Tensor]:
    held = torch.full((3,), 5.0)
    return lambda net: held


def _default() -> Callable[[Any], torch.Tensor]:
    def read(net: Any, scale: torch.Tensor = torch.full((3,), 6.0)) -> torch.Tensor:  # noqa: B008
        return scale

    return read


def _read(net: Any, scale: torch.Tensor) -> torch.Tensor:
    return scale


def _method(net: Any, settings: _Settings) -> torch.Tensor:
    return settings.scale


HOMES: dict[str, Callable[[], Callable[[Any], torch.Tensor]]] = {
    "an attribute": lambda: lambda net: net.plain,
    "a view of a buffer": lambda: lambda net: net.view,
    "a view of an attribute": lambda: lambda net: net.plain.view(3),
    "what lies in a list": lambda: lambda net: net.parts[1]["scale"],
    "a plain object's": lambda: lambda net: net.config.scale,
    "a class's": lambda: lambda net: type(net).table,
    "a global": lambda: lambda net: GLOBAL,
    "a closure's": _closure,
    "a default": _default,
    "a partial's": lambda: functools.partial(_read, scale=torch.full((3,), 7.0)),
    "a dataclass's": lambda: functools.partial(_method, settings=_Settings(torch.full((3,), 8.0))),
}


def _history(home: str, result: int, wrap: Callable[[nn.Module], Any]) -> list[Any]:
    net = Net(HOMES[home]())
    model, constant = wrap(net), net.read(net)
    before, found = constant.clone(), []
    try:
        for writes in (None, constant.add_, None, net.seen.add_):
            y = model(torch.ones(3, requires_grad=True))[result]
            if writes is not None:
                writes(1)
            try:
                y.sum().backward()
                found.append(net.w.grad.tolist())
            except RuntimeError as error:
                found.append(str(error)[:90])
    finally:
        constant.copy_(before)
    return found


@pytest.mark.parametrize("result", [0, 1])
@pytest.mark.parametrize("home", HOMES)
def test_a_write_before_the_backward_is_what_it_is_in_eager(home: str, result: int, tmp_path: pathlib.Path) -> None:
    expected = _history(home, result, lambda module: module)
    assert any(type(one) is str for one in expected) == (result == 0)
    for again in (False, True):  # the second time with a store that is filled
        wrapped: list[Any] = []

        def wrap(module: nn.Module, wrapped: list[Any] = wrapped) -> Any:
            wrapped.append(rekindle.Module(module, rekindle.Options(log="error", cache_dir=str(tmp_path))))
            return wrapped[0]

        assert _history(home, result, wrap) == expected
        status = rekindle.status(wrapped[0])
        assert status.eager_calls == 0, status.bypass
        assert not again or status.exports == 0


def test_a_constant_that_is_replaced_is_not_kept_alive() -> None:
    import weakref

    net = Net(lambda net: net.plain)
    model = rekindle.Module(net, rekindle.Options(log="error", cache="off"))
    model(torch.ones(3))[0].sum().backward()
    gone = weakref.ref(net.plain)
    net.plain = torch.ones(3)
    model(torch.ones(3))[0].sum().backward()
    assert gone() is None


def test_two_plain_tensors_of_one_name_run_in_eager() -> None:
    first, second = torch.full((3,), 2.0), torch.full((3,), 3.0)
    net = Net(lambda net: sorted(net.both, key=lambda one: float(one[0]))[0])
    net.both = {first, second}
    model = rekindle.Module(net, rekindle.Options(log="error", cache="off"))
    y = model(torch.ones(3))[0]
    first.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
