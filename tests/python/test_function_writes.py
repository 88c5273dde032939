"""autograd Functions that write in place, also where that changes no number at the export: as in eager, in a graph or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from seeded import seeded
from torch import nn
from torch.autograd import Function


class Clamp(Function):
    """Writes what it is given; says so."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.clamp_(max=10.0)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Undeclared(Clamp):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clamp_(max=10.0) * 2


class OfData(Clamp):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.data.clamp_(max=10.0)
        return x * 2


class OfAView(Clamp):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x[..., :2].clamp_(max=10.0)
        return x * 2


class InAList(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
        others[0].clamp_(max=10.0)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2, None


class OfAModule(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, module: Any) -> torch.Tensor:
        module.mean.clamp_(max=x.detach().mean() + 10.0)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2, None


class AddsToABuffer(Clamp):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, model: Any) -> torch.Tensor:
        if x.max() > 10.0:
            model.flat.add_(x.max())
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


class Model(nn.Module):
    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.full((4,), 3.0))
        self.register_buffer("flat", torch.ones(8))
        self.does = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.does(self, x)


def read_again(function: Any) -> Callable[..., Any]:
    def forward(self: Model, x: torch.Tensor) -> Any:
        y = self.linear(x)
        return function.apply(y) + y

    return forward


def read_before_and_after(self: Model, x: torch.Tensor) -> Any:
    y = self.linear(x) * 1
    view = y[1:]
    z = Clamp.apply(y)
    return z.sum() + view.square().sum()


def through_a_view(self: Model, x: torch.Tensor) -> Any:
    y = self.linear(x) * 1
    z = Clamp.apply(y.view(-1))
    return z.sum() + y.square().sum()


def of_a_detached(function: Any) -> Callable[..., Any]:
    def forward(self: Model, x: torch.Tensor) -> Any:
        y = self.linear(x) * 1
        return function.apply(y.detach()) + y

    return forward


def of_the_input(function: Any) -> Callable[..., Any]:
    def forward(self: Model, x: torch.Tensor) -> Any:
        return self.linear(x) + function.apply(x) * 2 + x

    return forward


def of_a_buffer(function: Any) -> Callable[..., Any]:
    def forward(self: Model, x: torch.Tensor) -> Any:
        self.mean.add_(x.detach().mean(0).abs())
        z = function.apply(self.mean)
        return self.linear(x) * z + self.mean

    return forward


def of_a_buffer_that_the_forward_writes(self: Model, x: torch.Tensor) -> Any:
    self.flat.add_(1.0)
    return AddsToABuffer.apply(self.linear(x), self)


def of_a_buffer_before_it_is_read(self: Model, x: torch.Tensor) -> Any:
    y = OfAModule.apply(self.linear(x), self)
    return y * self.mean


def in_a_list(self: Model, x: torch.Tensor) -> Any:
    y = self.linear(x)
    other = y.detach() * 2
    return InAList.apply(y, [other]) + other


def in_a_list_itself(self: Model, x: torch.Tensor) -> Any:
    y = self.linear(x) * 1
    return InAList.apply(y, [y.detach()]) + y


def the_first_of_two(self: Model, x: torch.Tensor) -> Any:
    y = self.linear(x).detach()
    return self.linear(x) * Undeclared.apply(y)


FORWARDS: dict[str, Callable[..., Any]] = {
    **{f"read again, {one.__name__}": read_again(one) for one in (Clamp, Undeclared, OfData, OfAView)},
    **{f"input, {one.__name__}": of_the_input(one) for one in (Clamp, Undeclared, OfData, OfAView)},
    **{f"buffer, {one.__name__}": of_a_buffer(one) for one in (Clamp, Undeclared, OfData, OfAView)},
    **{f"detached, {one.__name__}": of_a_detached(one) for one in (Clamp, Undeclared, OfData)},
    **{
        one.__name__: one
        for one in (read_before_and_after, through_a_view, of_a_buffer_before_it_is_read, of_a_buffer_that_the_forward_writes)
    },
    **{one.__name__: one for one in (in_a_list, in_a_list_itself, the_first_of_two)},
}


@pytest.mark.parametrize("inline", [False, True], ids=["called", "inlined"])
@pytest.mark.parametrize("name", FORWARDS)
def test_a_write_that_changed_nothing_at_the_export_is_eagers_later(name: str, inline: bool) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Model(FORWARDS[name]))
    eager, wrapped = models[0], rekindle.Module(models[1], rekindle.Options(inline_functions=inline))
    for step, scale in enumerate((1.0, 1.0, 100.0, 1.0, 100.0)):
        found = []
        for model in (eager, wrapped):
            x = torch.randn(3, 4, generator=seeded(step)) * scale
            try:
                result = model(x)
                model.zero_grad()
                result.sum().backward()
            except RuntimeError as error:
                found.append([torch.tensor([ord(letter) for letter in str(error)[:40]])])
                continue
            # An inlined Function is differentiated by its operations, as its user asks for.
            gradients = [] if inline else [parameter.grad for parameter in model.parameters()]
            found.append([result, x, *gradients, *model.buffers()])
        torch.testing.assert_close(found[1], found[0], msg=lambda text, step=step: f"step {step}: {text}")


def test_a_write_that_nothing_reads_stays_in_a_graph() -> None:
    model = rekindle.Module(Model(the_first_of_two))
    model(torch.ones(3, 4))
    assert rekindle.status(model).source == "export"


class Scales(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        weight.data.mul_(0.5)
        return x * weight[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


def test_a_function_that_writes_a_parameter_writes_it_once_a_call() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Model(lambda self, x: Scales.apply(self.linear(x), self.linear.weight)))
    eager, wrapped = models[0], rekindle.Module(models[1])
    for step in range(3):
        x = torch.randn(3, 4, generator=seeded(step))
        torch.testing.assert_close(wrapped(x), eager(x))
        torch.testing.assert_close(dict(wrapped.state_dict()), dict(eager.state_dict()))
    assert rekindle.status(wrapped).bypass[0][0] == "state_mutated"
