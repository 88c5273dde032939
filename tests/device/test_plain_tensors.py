"""Plain tensors that a module holds on an accelerator are inputs of its graph: what is done to them between calls shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from device_twins import Made, Twins
from torch import nn

ELSEWHERE = torch.arange(4.0, device="test:0")


def _scaled(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.a(x) * self.scale


def _replace(net: Any) -> None:
    net.scale = torch.full_like(net.scale, 3.0)


def _share(net: Any) -> None:
    net.scale = net.a.bias.data


def _resize(net: Any) -> None:
    net.scale = torch.ones(3, 4, device=net.scale.device)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda net: None,
    "a write": lambda net: net.scale.add_(1),
    "a write through data": lambda net: net.scale.data.mul_(2),
    "another tensor": _replace,
    "a parameter's memory": _share,
    "another size": _resize,
    "another device": lambda net: setattr(net, "scale", net.scale.to("test:1")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_calls_is_followed(change: str) -> None:
    twins = Twins(Made(_scaled))
    twins.call(torch.randn(3, 4, device="test:0"))
    exports = twins.status.exports
    for net in (twins.eager, twins.module):
        CHANGES[change](net)
    if change == "another device":
        for model in (twins.eager, twins.wrapped):
            with pytest.raises(RuntimeError, match="device"):
                model(torch.randn(3, 4, device="test:0"))
        return
    for rows in (3, 5):
        twins.call(torch.randn(rows, 4, device="test:0") if change != "another size" else torch.randn(3, 4, device="test:0"))
    assert twins.status.eager_calls == 0, twins.status.bypass
    again = change in ("a parameter's memory", "another size")
    assert twins.status.exports == exports + again


def test_a_write_before_the_backward_is_eagers_error() -> None:
    twins = Twins(Made(_scaled))
    x = torch.randn(3, 4, device="test:0")
    twins.call(x)
    for model, net in ((twins.eager, twins.eager), (twins.wrapped, twins.module)):
        y = model(x)
        net.scale.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_gradients_of_gradients_read_the_same_tensor() -> None:
    twins = Twins(Made(lambda self, x: (self.a(x) * self.scale).tanh()))
    x = torch.randn(3, 4, device="test:0")
    twins.call(x)
    found = []
    for model, net in ((twins.eager, twins.eager), (twins.wrapped, twins.module)):
        weight = net.a.weight
        (gradient,) = torch.autograd.grad(model(x).sum(), weight, create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), weight)[0])
    torch.testing.assert_close(found[1], found[0])


def test_a_question_about_its_numbers_is_asked_again() -> None:
    twins = Twins(Made(lambda self, x: self.a(x) * (2.0 if self.scale.sum().item() > 5 else 3.0)))
    twins.call(torch.randn(3, 4, device="test:0"))
    for net in (twins.eager, twins.module):
        net.scale.zero_()
    twins.call(torch.randn(3, 4, device="test:0"))


def test_a_name_like_that_of_a_buffer_is_another() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.full((4,), 2.0))

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Inner()
            self.to("test:0")
            self.scale = torch.full((4,), 5.0, device="test:0")  # "model.scale" in the key, as the buffer in named_buffers()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.model.scale + self.scale

    net = Outer()
    wrapped = rekindle.Module(net, rekindle.Options(log="error"))
    x = torch.randn(4, device="test:0")
    for _ in range(2):
        torch.testing.assert_close(wrapped(x), net(x))
    assert rekindle.status(wrapped).eager_calls == 0


def test_one_that_only_the_code_names_is_refused() -> None:
    twins = Twins(Made(lambda self, x: self.a(x) * ELSEWHERE))
    twins.call(torch.randn(3, 4, device="test:0"))
    assert twins.reasons() == ["opaque_value"]


class _Table(dict):  # type: ignore[type-arg]
    """A dict with an attribute whose items have the paths of its own."""


def test_two_of_one_path_run_in_eager() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) * self.table[(1, 2)] + self.table.content[(3, 4)]

    twins = Twins(Made(forward))
    for net in (twins.eager, twins.module):
        net.table = _Table({(1, 2): torch.full((4,), 2.0, device="test:0")})
        net.table.content = {(3, 4): torch.full((4,), 3.0, device="test:0")}
    twins.call(torch.randn(3, 4, device="test:0"))
    assert twins.reasons() == ["opaque_value"]
