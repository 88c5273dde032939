"""Random programs whose results are differentiated one after the other, in any order, do what eager does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from module_support import Twins, assert_same, rows
from torch import nn


class Saves(torch.autograd.Function):
    """Twice the square; what it saves is freed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return 2 * x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 4 * x * gradient


class SavesNothing(torch.autograd.Function):
    """Three times its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 3 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 3 * gradient


OPERATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "weight": lambda x, y, w: x * w,
    "matrix": lambda x, y, w: x @ torch.outer(w, w),
    "add": lambda x, y, w: x + y,
    "bias": lambda x, y, w: x + w,
    "product": lambda x, y, w: x * y,
    "tanh": lambda x, y, w: torch.tanh(x),
    "relu": lambda x, y, w: torch.relu(x) + y,
    "turned": lambda x, y, w: x.flip(0),
    "view": lambda x, y, w: x.t().reshape(4, 4).t(),
    "detached": lambda x, y, w: x.detach() * w,
    "cat": lambda x, y, w: torch.cat([x[:2], y[2:]]),
    "index": lambda x, y, w: x[torch.tensor([3, 1, 0, 2])],
    "norm": lambda x, y, w: nn.functional.layer_norm(x, (4,), w),
    "softmax": lambda x, y, w: torch.softmax(x, -1),
    "Function": lambda x, y, w: Saves.apply(x),
    "Function that saves nothing": lambda x, y, w: SavesNothing.apply(x),
}


class Program(nn.Module):
    """Straight-line code over its inputs: [operation, two earlier values, a weight] each; returns some of the values."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        dice = random.Random(seed)
        torch.manual_seed(seed)
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(4)])
        self.lines = []
        for value in range(2, dice.randint(5, 12)):
            name = dice.choice(list(OPERATIONS))
            self.lines.append((name, dice.randrange(value), dice.randrange(value), dice.randrange(4)))
        self.results = dice.sample(range(2, 2 + len(self.lines)), dice.randint(2, min(4, len(self.lines))))
        self.reduced = [dice.random() < 0.5 for _ in self.results]

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        values = [x, y]
        for name, first, second, weight in self.lines:
            values.append(OPERATIONS[name](values[first], values[second], self.weights[weight]))
        return [values[i].sum() if reduced else values[i] * 1.0 for i, reduced in zip(self.results, self.reduced, strict=True)]


Step = tuple[list[int], list[int] | None, bool]  # results, inputs to differentiate by or None for a backward, retain_graph


def steps(dice: random.Random, results: int, inputs: int) -> list[Step]:
    return [
        (
            sorted(dice.sample(range(results), dice.choice([1, 1, 1, results]))),
            sorted(dice.sample(range(inputs), dice.randint(1, inputs))) if dice.random() < 0.4 else None,
            dice.random() < 0.3,
        )
        for _ in range(dice.randint(2, 5))
    ]


def outcomes(model: Any, plan: list[Step]) -> list[Any]:
    """What each step gave, up to the first that raised."""
    inputs = [rows(i, 4).requires_grad_(i == 0) for i in range(2)]
    wanted = [inputs[0], *model.parameters()]
    found = model(*inputs)
    seen: list[Any] = []
    for chosen, by, retain in plan:
        ends = [found[i].square().sum() if i % 2 else found[i].sum() for i in chosen if found[i].requires_grad]
        if not ends:
            continue
        for tensor in wanted:
            tensor.grad = None
        try:
            if by is None:
                torch.autograd.backward(ends, retain_graph=retain)
                seen.append([None if tensor.grad is None else tensor.grad.clone() for tensor in wanted])
            else:
                leaves = [wanted[i] for i in by]
                seen.append(list(torch.autograd.grad(ends, leaves, retain_graph=retain, allow_unused=True)))
        except RuntimeError as error:
            seen.append(str(error)[:60])
            break
    return seen


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_in_any_order(seed: int) -> None:
    twins = Twins(Program(seed))
    dice = random.Random(seed)
    for _ in range(8):
        plan = steps(dice, len(twins.eager.results), 5)
        theirs, ours = twins.both(lambda model: outcomes(model, plan))  # noqa: B023
        assert len(ours) == len(theirs), f"{plan}: {ours} instead of {theirs}"
        for mine, other in zip(ours, theirs, strict=True):
            if isinstance(other, str):
                assert mine == other, plan
                continue
            assert not isinstance(mine, str), f"{plan}: {mine}"
            for a, b in zip(mine, other, strict=True):
                assert (a is None) == (b is None), plan
                if a is not None:
                    assert_same(a, b)
    assert twins.status.source == "export" and twins.status.bypass == [], twins.status
