"""A backward with create_graph=True repeats the forward: hooks run, gradients arrive and buffers are written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import Smooth, Twins, assert_same, rows
from torch import nn


def _hooked_parameter(model: Any, x: torch.Tensor) -> torch.Tensor:
    rekindle.unwrap(model).first.weight.register_hook(lambda gradient: gradient * 1.5)
    return x


def _hooked_leaf(model: Any, x: torch.Tensor) -> torch.Tensor:
    x.register_hook(lambda gradient: gradient * 1.5)
    return x


def _hooked_result(model: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 1.5)
    return y


def _of_a_parameter(model: Any, x: torch.Tensor) -> torch.Tensor:
    """Its gradient goes to a parameter of the module, which has one of its own."""
    return rekindle.unwrap(model).first.weight[:5] * x


def _of_another(model: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 2


def _kept(model: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.retain_grad()
    return y


@pytest.mark.parametrize("prepare", [_hooked_parameter, _hooked_leaf, _hooked_result, _kept, _of_a_parameter, _of_another])
def test_hooks_of_what_a_module_is_given_run_once(prepare: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    twins = Twins(Smooth(), fallback="error")

    def second(model: Any) -> list[Any]:
        torch.manual_seed(0)
        x = rows().requires_grad_()
        given = prepare(model, x)
        score = model(given).square().sum()
        first = torch.autograd.grad(score, [*model.parameters(), given], create_graph=True)
        kept = given.grad if given.retains_grad else None
        sum(gradient.square().sum() for gradient in first).backward()
        return [*first, kept, x.grad, given.grad if given.retains_grad else None]

    for _ in range(2):
        theirs, ours = twins.both(second)
        assert_same(ours, theirs)
        twins.compare()


def test_a_gradient_goes_to_each_argument_once_where_one_is_computed_from_another() -> None:
    class Both(Smooth):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * super().forward(y)

    twins = Twins(Both(), fallback="error")

    def second(model: Any) -> list[torch.Tensor | None]:
        x = rows().requires_grad_()
        score = model(x, torch.tanh(x)).square().sum()
        first = torch.autograd.grad(score, [*model.parameters(), x], create_graph=True)
        sum(gradient.square().sum() for gradient in first).backward()
        return [*first, x.grad]

    for _ in range(2):
        theirs, ours = twins.both(second)
        assert_same(ours, theirs)
        twins.compare()


def test_buffers_that_a_kernel_rounds_otherwise_may_be_saved() -> None:
    class Normalized(Smooth):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(self.first.in_features)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(self.norm(x))

    twins = Twins(Normalized(), fallback="error")

    def second(model: Any, step: int) -> list[torch.Tensor]:
        first = torch.autograd.grad(model(rows(step)).square().sum(), list(model.parameters()), create_graph=True)
        sum(gradient.square().sum() for gradient in first).backward()
        return list(first)

    for step in range(6):
        theirs, ours = twins.both(lambda model: second(model, step))  # noqa: B023
        assert_same(ours, theirs)
        twins.compare()


def test_a_counter_that_the_backward_reads_is_not_written_by_the_repeated_forward() -> None:
    class Counted(Smooth):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().forward(x) * self.calls

    twins = Twins(Counted(), fallback="error")

    def second(model: Any) -> list[torch.Tensor]:
        result = model(rows())
        first = torch.autograd.grad(result.square().sum(), list(model.parameters()), create_graph=True)
        sum(gradient.square().sum() for gradient in first).backward()
        return list(first)

    for _ in range(3):
        theirs, ours = twins.both(second)
        assert_same(ours, theirs)
        twins.compare()
