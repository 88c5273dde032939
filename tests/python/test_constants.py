"""A forward may ask for the value of a tensor that is the same at each call; of any other, its graph would be for one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from module_support import Twins
from torch import nn

Forward = Callable[[Any, torch.Tensor], torch.Tensor]


class Asking(nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.table = torch.tensor([2, 3])  # no buffer: its content is in the key
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))
        self.given = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.given(self, x)


def layers(self: Asking, x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(torch.tensor(16.0).log2())):
        x = self.layer(x)
    return x


def written(self: Asking, x: torch.Tensor) -> torch.Tensor:
    sizes = torch.zeros(3)
    sizes[1:] = 2
    return self.layer(x) * sizes.sum().item()


SETTLED: dict[str, Forward] = {
    "a number": layers,
    "a branch": lambda self, x: self.layer(x) if torch.as_tensor([(2, 3), (4, 5)]).prod(1).sum() == 26 else x,
    "a list": lambda self, x: self.layer(x) * sum(torch.linspace(0, 1, 5).tolist()),
    "a plain tensor": lambda self, x: self.layer(x) * self.table.sum().item(),
    "written by numbers": written,
    "a list of such tensors": lambda self, x: self.layer(x) * torch.tensor([self.table[0], self.table[1]]).sum(),
}


def written_by_data(self: Asking, x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(2)
    total[0] = x.sum()
    return self.layer(x) * total.sum().item()


def written_through_a_view(self: Asking, x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(2)
    total[:1].copy_(x.sum())
    return self.layer(x) * total.sum().item()


def written_without_gradients(self: Asking, x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(3)
    with torch.no_grad():
        total.index_add_(0, torch.tensor([1]), x.sum().reshape(1))
    return self.layer(x) * total.sum().item()


class Adds(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total.add_(x.sum())
        ctx.mark_dirty(total)
        return x * 1, total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def written_by_a_function(self: Asking, x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(2)
    y, _ = Adds.apply(x, total)
    return self.layer(y) * total.sum().item()


OPEN: dict[str, Forward] = {
    "of the input": lambda self, x: self.layer(x) * x.sum().item(),
    "of a buffer": lambda self, x: self.layer(x) * self.scale.sum().item(),
    "a list of inputs": lambda self, x: self.layer(x) * torch.tensor([x[0, 0], x[0, 1]]).sum(),
    "a new list of inputs": lambda self, x: self.layer(x) * x.new_tensor([x[0, 0], x[0, 1]]).sum(),
    "random": lambda self, x: self.layer(x) * torch.rand(1).item(),
    "made random": lambda self, x: self.layer(x) * torch.zeros(3).normal_().sum().item(),
    "dropped out": lambda self, x: self.layer(x) * nn.functional.dropout(torch.ones(4), 0.5, True).sum().item(),
    "written by data": written_by_data,
    "written through a view": written_through_a_view,
    "written without gradients": written_without_gradients,
    "written by a function": written_by_a_function,
}


@pytest.mark.parametrize("name", SETTLED)
def test_a_value_that_stays_is_no_question_of_data(name: str) -> None:
    twins = Twins(Asking(SETTLED[name]), fallback="error")
    for count in (3, 5):
        twins.call(torch.randn(count, 4))
    assert twins.status.exports == 1


@pytest.mark.parametrize("name", OPEN)
def test_a_value_that_may_be_another_one_is_left_to_eager(name: str) -> None:
    twins = Twins(Asking(OPEN[name]), log="error")
    for _ in range(2):
        twins.call(torch.randn(3, 4))
    assert (twins.reasons(), twins.status.exports) == (["value_specialized"], 0)


def test_a_size_that_is_asked_for_so_is_the_graphs() -> None:
    twins = Twins(Asking(lambda self, x: self.layer(x) * torch.ones(x.shape[0]).sum().item()), fallback="error")
    for count in (3, 5, 3):
        twins.call(torch.randn(count, 4))
    assert twins.status.exports == 2


def test_another_content_of_a_plain_tensor_is_another_graph() -> None:
    twins = Twins(Asking(SETTLED["a plain tensor"]), fallback="error")
    for _ in range(3):
        twins.call(torch.randn(3, 4))
        for model in (twins.eager, twins.module):
            model.table[0] += 1
    assert twins.status.exports == 3
