"""Backwards that bring an undefined gradient to a result, or a sparse one, leave what they leave in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, scale = ctx.saved_tensors
        return gradient * scale, (gradient * x).sum(0)


class Bare(Scale):
    """Is called with None where no gradient comes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return Scale.forward(ctx, x, scale)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        return (None, None) if gradient is None else Scale.backward(ctx, gradient)


class Ending(torch.autograd.Function):
    """Passes all on, and gradients of the last tensor only."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(tensor * 1.0 for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return (*[None] * (len(gradients) - 1), gradients[-1])


class Branches(nn.Module):
    """Returns a branch with a Function, one with operators of PyTorch's only, and one with both of what is shared and its own."""

    def __init__(self, function: type[torch.autograd.Function], shared: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.shared = function, shared
        self.scale, self.shared_scale = nn.Parameter(torch.rand(4)), nn.Parameter(torch.rand(4))
        self.before, self.plain, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.function.apply(x, self.shared_scale) if self.shared else x
        return self.function.apply(self.before(hidden), self.scale), self.plain(hidden), self.last(hidden)


def by_hook(results: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return results[-1].square().sum()


def by_function(results: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return sum(each.square().sum() for each in Ending.apply(*results))


def by_nothing(results: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return sum(each.square().sum() for each in Ending.apply(*results[:2]))


def all_used(results: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return sum(each.square().sum() for each in results)


def trained(called: nn.Module, module: nn.Module, loss: Callable[..., torch.Tensor], hooked: bool) -> Any:
    """Trains for three steps; returns the gradients of each, and the parameters after the last."""
    if hooked:
        called.register_full_backward_hook(lambda *_: None)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.5)
    found = []
    for seed in range(3):
        optimizer.zero_grad()
        x = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed), requires_grad=True)
        loss(called(x)).backward()
        found.append([None if one.grad is None else one.grad.clone() for one in (x, *module.parameters())])
        optimizer.step()
    return found, [one.detach() for one in module.parameters()]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("function", [Scale, Bare])
@pytest.mark.parametrize(("loss", "hooked"), [(by_hook, True), (by_function, False), (by_nothing, False), (all_used, True)])
def test_functions_get_what_eager_gives_them(
    loss: Callable[..., torch.Tensor], hooked: bool, function: type[torch.autograd.Function], shared: bool
) -> None:
    eager = Branches(function, shared)
    module = copy.deepcopy(eager)
    wrapped = rekindle.Module(module, rekindle.Options(start="wait", fallback="error"))
    theirs, ours = trained(eager, eager, loss, hooked), trained(wrapped, module, loss, hooked)
    torch.testing.assert_close(ours, theirs)
    if loss is by_hook and function is Scale:
        assert theirs[0][0][1] is not None and not theirs[0][0][1].any()  # zeros, and not None


def test_a_single_result_that_gets_nothing() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.linear = nn.Parameter(torch.ones(4)), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(Scale.apply(x, self.scale))

    eager = Scaled()
    module = copy.deepcopy(eager)
    wrapped = rekindle.Module(module, rekindle.Options(start="wait", fallback="error"))
    for called in (eager, wrapped):
        other = torch.ones(2, 4, requires_grad=True)
        sum(each.sum() for each in Ending.apply(called(torch.ones(2, 4)), other)).backward()
    theirs, ours = ([one.grad for one in each.parameters()] for each in (eager, module))
    torch.testing.assert_close(ours, theirs)
    assert theirs[0] is not None and theirs[1] is None


def test_a_sparse_gradient_stays_sparse() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(3, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.a + self.b

    eager = Table()
    module = copy.deepcopy(eager)
    wrapped = rekindle.Module(module, rekindle.Options(start="wait", fallback="error"))
    for called in (eager, wrapped):
        table = called(torch.ones(3, 4))
        nn.functional.embedding(torch.tensor([0, 1, 1]), table, sparse=True).sum().backward()
    for theirs, ours in zip(eager.parameters(), module.parameters(), strict=True):
        assert theirs.grad is not None and ours.grad is not None
        assert ours.grad.layout == theirs.grad.layout == torch.sparse_coo
        torch.testing.assert_close(ours.grad.to_dense(), theirs.grad.to_dense())
