"""Writes in place to views: what eager refuses is refused with eager's error, and what it allows runs from a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import rows
from torch import nn

Forward = Callable[[Any, torch.Tensor], torch.Tensor]


class Model(nn.Module):
    """Has a weight, which is all that a forward of these needs."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(1, 2, 4))
        self._forward = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._forward(self, x)


def view_without_grad(self: Model, x: torch.Tensor) -> torch.Tensor:
    product = x * self.weight
    with torch.no_grad():
        view = product.view(-1, 2)
    view.sub_(1)
    return product


def detached_view(self: Model, x: torch.Tensor) -> torch.Tensor:
    product = x * self.weight
    product.view(-1, 2).detach_()
    return product


def differentiable_value_into_a_view_without_grad(self: Model, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        view = (x * self.weight).view(-1, 2)
    return view.add_(self.weight[:2])


def parts(split: Callable[[torch.Tensor], Any], grad: bool = True) -> Forward:
    def forward(self: Model, x: torch.Tensor) -> torch.Tensor:
        product = x * self.weight
        with torch.set_grad_enabled(grad):
            first = split(product)[0]
        first.add_(1)
        return product

    return forward


SPLITS: dict[str, Callable[[torch.Tensor], Any]] = {
    "chunk": lambda p: p.chunk(2),
    "chunk of columns": lambda p: p.chunk(3, 1),
    "split": lambda p: p.split(2),
    "split of columns": lambda p: p.split([1, 3], 1),
    "unbind": lambda p: p.unbind(1),
    "iteration": list,
}
REFUSED = {
    "a view made in a no_grad region": view_without_grad,
    "a view detached in place": detached_view,
    "a gradient into a view made in a no_grad region": differentiable_value_into_a_view_without_grad,
    **{name: parts(split) for name, split in SPLITS.items()},
    **{f"{name} in a no_grad region": parts(split, grad=False) for name, split in SPLITS.items()},
}


def whole_without_grad(self: Model, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        product = x * self.weight
    return product.add_(self.weight)


def written_within_the_region(self: Model, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        view = (x * self.weight).view(-1, 2)
        view.add_(1)
    return view * self.weight[:2]


def number_into_a_view_of_no_gradient(self: Model, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        view = (x * 2).view(-1, 2)
    view.add_(1)
    return view * self.weight[:2]


def part_of_no_gradient(self: Model, x: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    doubled.chunk(2)[0].add_(1)
    return doubled * self.weight


ALLOWED = {
    "no view": whole_without_grad,
    "within the region": written_within_the_region,
    "a number": number_into_a_view_of_no_gradient,
    "a part that has no gradient": part_of_no_gradient,
    "one row": parts(lambda p: [p[0]]),
    "tensor_split": parts(lambda p: p.tensor_split(2)),
}


def outcome(model: nn.Module, count: int) -> Any:
    model.zero_grad()
    try:
        model(rows(count=count)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return model.weight.grad.tolist()


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_its_error(name: str) -> None:
    model = rekindle.Module(Model(REFUSED[name]), rekindle.Options(log="error"))
    for count in (5, 3):
        expected = outcome(Model(REFUSED[name]), count)
        assert isinstance(expected, str)
        assert outcome(model, count) == expected


@pytest.mark.parametrize("name", ALLOWED)
def test_what_eager_allows_has_a_graph(name: str) -> None:
    model = rekindle.Module(Model(ALLOWED[name]), rekindle.Options(fallback="error"))
    for count in (5, 3):
        assert outcome(model, count) == pytest.approx(outcome(Model(ALLOWED[name]), count))
