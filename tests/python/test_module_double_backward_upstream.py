"""A backward with create_graph=True runs nothing upstream of a module, though the module's parameters are used there, too."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins, assert_same, rows
from torch import nn


class Cell(nn.Module):
    """Takes its own results; the batch norm writes buffers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.norm(x)))


class OneMore(torch.autograd.Function):
    """Adds one to the gradient, also to one of zeros."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient + 1


def _of_itself(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(x)


def _of_a_tied_layer(model: Any, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, rekindle.unwrap(model).layer.weight)


def _of_the_other_argument(model: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)


UPSTREAM = [_of_itself, _of_a_tied_layer, _of_the_other_argument]


def _squares(gradients: Any) -> torch.Tensor:
    return sum(gradient.square().sum() for gradient in gradients)


@pytest.mark.parametrize("upstream", UPSTREAM)
def test_hooks_and_functions_upstream_run_as_often_as_in_eager(upstream: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    twins = Twins(Cell().double(), fallback="error")

    def run(model: Any) -> list[Any]:
        x = rows().double().requires_grad_()
        seen: list[torch.Tensor] = []
        hidden = OneMore.apply(upstream(model, x))
        hidden.register_hook(lambda gradient: seen.append(gradient.detach()))
        first = torch.autograd.grad(model(hidden).square().sum(), [*model.parameters(), x], create_graph=True)
        seen_first = list(seen)
        _squares(first).backward()
        return [*first, *seen_first, x.grad]

    for _ in range(2):
        theirs, ours = twins.both(run)
        assert_same(ours, theirs)
        twins.compare()


def test_what_is_upstream_may_be_freed() -> None:
    twins = Twins(Cell(), fallback="error")

    def run(model: Any) -> torch.Tensor:
        hidden = model(rows())
        hidden.sum().backward()
        (gradient,) = torch.autograd.grad(model(hidden).square().sum(), hidden, create_graph=True)
        return gradient.detach()

    assert_same(*reversed(twins.both(run)))


def test_later_backwards_go_upstream() -> None:
    twins = Twins(Cell().double(), fallback="error")

    def run(model: Any) -> list[torch.Tensor]:
        x = rows().double().requires_grad_()
        hidden = x
        for _ in range(3):
            hidden = model(hidden)
        first = torch.autograd.grad(hidden, [*model.parameters(), x], hidden * 2, create_graph=True)
        second = torch.autograd.grad(_squares(first), [*model.parameters(), x], create_graph=True)
        third = torch.autograd.grad(_squares(second) + _squares(first), [*model.parameters(), x], create_graph=True)
        (_squares(second) + _squares(third)).backward()
        return [*first, *second, *third, x.grad]

    theirs, ours = twins.both(run)
    for mine, other in zip(ours, theirs, strict=True):  # the values grow with each order
        torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-7 * other.abs().max().item())


def test_a_graph_is_freed_by_the_backward_that_does_not_retain_it() -> None:
    model = rekindle.Module(Cell(), rekindle.Options(fallback="error"))
    hidden = model(rows())
    first = torch.autograd.grad(model(hidden).square().sum(), list(model.parameters()), create_graph=True)
    loss = _squares(first)
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        _squares(first).backward()
    left = weakref.ref(hidden)
    del hidden, first, loss
    gc.collect()
    assert left() is None


def test_a_backward_may_be_mapped_over_cotangents() -> None:
    twins = Twins(Cell().double(), fallback="error")

    def run(model: Any) -> list[torch.Tensor]:
        hidden = model(rows().double())
        cotangents = torch.eye(20, dtype=torch.float64).view(20, 5, 4)
        result = model(hidden)
        first = torch.autograd.grad(result, list(model.parameters()), cotangents, is_grads_batched=True, create_graph=True)
        _squares(first).backward()
        return list(first)

    assert_same(*reversed(twins.both(run)))
    twins.compare()


def test_a_batch_norm_may_be_differentiated_for_several_calls_before_a_backward() -> None:
    twins = Twins(Cell(), fallback="error")

    def run(model: Any) -> list[torch.Tensor]:
        inputs = [rows(step).requires_grad_() for step in range(3)]
        firsts = [torch.autograd.grad(model(x).square().sum(), x, create_graph=True)[0] for x in inputs]
        _squares(firsts).backward()
        return [*firsts, *(x.grad for x in inputs)]

    for _ in range(2):
        theirs, ours = twins.both(run)
        assert_same(ours, theirs)
        twins.compare()
