"""Results of one call may be differentiated one after the other where eager's may, and only there."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins, rows
from torch import nn


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
