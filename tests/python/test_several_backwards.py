"""Results of one call may be differentiated one after the other where eager's may, and only there."""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
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


class Two(nn.Module):
    """Two networks that share nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.second = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.first(x).mean(), self.second(x).square().mean()


def train_in_turns(model: Any, order: tuple[int, int]) -> None:
    parts = [[*model.first.parameters()], [*model.second.parameters()]]
    optimizers = [torch.optim.SGD(part, lr=0.1) for part in parts]
    for step in range(4):
        losses = model(rows(step))
        for i in order:
            optimizers[i].zero_grad()
            losses[i].backward()
            optimizers[i].step()  # changes what only the other loss does not need


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_networks_are_trained_in_turns(order: tuple[int, int]) -> None:
    twins = Twins(Two(), fallback="error")
    twins.both(lambda model: train_in_turns(model, order))
    twins.compare()
    session = next(iter(twins.wrapped._runtime._kinds)).graphs[0].session
    assert session.stats()["plans_made"] <= 3, "no plan is made again at each step"


class Heads(nn.Module):
    """Two heads over a trunk."""

    def __init__(self, trunk: nn.Module) -> None:
        super().__init__()
        self.trunk, self.left, self.right = trunk, nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.trunk(x)
        return self.left(x).sum(), self.right(x).sum()


class Plus(nn.Module):
    """Saves nothing for its backward."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.shift).flip(0)


@pytest.mark.parametrize(("trunk", "raises"), [(Plus(), False), (nn.Linear(4, 4), True)])
def test_heads_exclude_each_other_if_the_trunk_has_saved_something(trunk: nn.Module, raises: bool) -> None:
    twins = Twins(Heads(trunk), fallback="error")

    def run(model: Any) -> bool:
        left, right = model(rows())
        left.backward()
        try:
            right.backward()
        except RuntimeError as error:
            assert "a second time" in str(error)
            return True
        return False

    for _ in range(2):
        assert twins.both(run) == (raises, raises)
    if not raises:
        twins.compare()


def test_a_result_that_saved_nothing_is_differentiated_again_and_again() -> None:
    twins = Twins(Plus(), fallback="error")

    def run(model: Any) -> None:
        result = model(rows())
        for _ in range(3):
            result.sum().backward()

    twins.both(run)
    twins.compare()


class Mark:
    """Lives as long as what a call of Marked left for its backward."""


def marks() -> int:
    gc.collect()
    return sum(type(found) is Mark for found in gc.get_objects())


class Marked(torch.autograd.Function):
    """The exponential."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark = Mark()
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0]


def test_what_no_backward_needs_any_more_is_freed() -> None:
    class Exponentials(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return Marked.apply(x * self.first), Marked.apply(x * self.second)

    model = rekindle.Module(Exponentials(), rekindle.Options(fallback="error"))
    model(rows())
    rekindle.lookup.store.flush()
    before = marks()
    for _ in range(2):
        first, second = model(rows())
        assert marks() == before + 2
        first.sum().backward()
        assert marks() == before + 1
        second.sum().backward()
        assert marks() == before
    stats = next(iter(model._runtime._kinds)).graphs[0].session.stats()
    assert stats["frames"] == 1


def test_an_edit_in_place_counts_for_the_backward_that_needs_it_only() -> None:
    class Sigmoids(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.sigmoid(x * self.weight), torch.tanh(x + self.weight)

    twins = Twins(Sigmoids(), fallback="error")

    def run(model: Any, edited: int, then: int) -> str | None:
        results = model(rows())
        with torch.no_grad():
            results[edited].mul_(2)
        try:
            results[then].sum().backward()
        except RuntimeError as error:
            return str(error)[:40]
        return None

    for _ in range(2):
        for edited in range(2):
            for then in range(2):
                theirs, ours = twins.both(lambda model: run(model, edited, then))  # noqa: B023
                assert ours == theirs, (edited, then)
    twins.compare()


def test_a_copy_of_a_program_in_another_process_knows_the_same() -> None:
    program = Heads(Plus())
    Twins(copy.deepcopy(program), fallback="error").call(rows())
    rekindle.lookup.store.flush()
    twins = Twins(program, fallback="error")

    def run(model: Any) -> None:
        left, right = model(rows())
        right.backward()
        left.backward()

    twins.both(run)
    twins.compare()
    assert twins.status.source == "local"
