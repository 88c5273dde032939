"""Plans that run Python while they are made: nothing is locked meanwhile, for no thread and no child of a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins, assert_same, rows
from thread_support import child_of, in_thread
from torch import nn


class Doubled(torch.autograd.Function):
    """A Function whose results' sizes are known without running it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class InTwo(nn.Module):
    """Two results, of which a backward may be given either."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return Doubled.apply(self.linear(x)), Doubled.apply(self.linear(x).tanh())


class Asked:
    """What runs whenever a plan asks for the sizes of Doubled's results; no result depends on it."""

    def __init__(self) -> None:
        self.call: Callable[[], None] = lambda: None


rekindle.register_digest(Asked, lambda asked: "asked")


@pytest.fixture
def planned() -> Iterator[Asked]:
    asked = Asked()

    def infer(x: torch.Tensor) -> torch.Tensor:
        asked.call()
        return torch.empty_like(x)

    rekindle.register_python_op(Doubled, infer_shape=infer)
    yield asked
    rekindle.register_python_op(Doubled)


def gradient(model: Any, result: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(result.sum(), model.linear.weight, retain_graph=True)[0]


def forward(twins: Twins) -> tuple[Any, Any, list[torch.Tensor]]:
    """A forward of both, whose parts no plan is there for yet; eager's gradients of each of its results."""
    twins.call(rows())
    theirs, ours = twins.both(lambda model: model(rows(1, 9)))
    return theirs, ours, [gradient(twins.eager, result) for result in theirs]


def test_status_and_a_plan_that_runs_python_do_not_wait_for_each_other(planned: Asked) -> None:
    twins = Twins(InTwo())
    twins.call(rows())
    answers = []

    def ask() -> None:
        answers.append(in_thread(lambda: rekindle.status(twins.wrapped))())

    planned.call = ask
    twins.call(rows(1, 9))
    twins.wrapped(rows(2, 9))[0].sum().backward()
    assert len(answers) > 0 and twins.status.bypass == []


def test_a_plan_for_other_cotangents_finds_the_functions(planned: Asked) -> None:
    twins = Twins(InTwo())
    twins.call(rows())
    asked = []
    planned.call = lambda: asked.append(torch.is_grad_enabled())
    for step, result in ((1, 0), (2, 1), (3, 0)):
        theirs, ours = twins.both(lambda model, step=step: model(rows(step, 6 + step)))
        for each in (theirs, ours):
            each[result].sum().backward()
        twins.compare()
    assert asked and twins.status.bypass == [] and twins.status.eager_calls == 0


def test_a_plan_for_a_backward_does_not_lock_what_its_forward_left(planned: Asked) -> None:
    twins = Twins(InTwo())
    _, ours, expected = forward(twins)
    found = []

    def differentiate() -> None:
        planned.call = lambda: None
        found.append(in_thread(lambda: gradient(twins.wrapped, ours[1]))())

    planned.call = differentiate
    assert_same(gradient(twins.wrapped, ours[0]), expected[0])
    assert len(found) == 1
    assert_same(found[0], expected[1])


def test_a_child_forked_while_a_backward_is_planned_differentiates_the_same_results(planned: Asked) -> None:
    twins = Twins(InTwo())
    _, ours, expected = forward(twins)
    began, go = threading.Event(), threading.Event()

    def wait() -> None:
        planned.call = lambda: None
        began.set()
        go.wait(60)

    planned.call = wait
    result = in_thread(lambda: gradient(twins.wrapped, ours[0]))
    assert began.wait(30)
    try:
        assert child_of(lambda: assert_same(gradient(twins.wrapped, ours[1]), expected[1])) == 0
    finally:
        go.set()
    assert_same(result(), expected[0])


def test_backwards_of_one_forward_that_are_planned_at_once_exclude_each_other(planned: Asked) -> None:
    twins = Twins(InTwo())
    twins.call(rows())
    total = twins.wrapped(rows(1, 9))[0].sum()

    def differentiate() -> None:
        planned.call = lambda: None
        torch.autograd.grad(total, twins.wrapped.linear.weight)

    planned.call = differentiate  # the other backward comes first, and frees what the two share
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(total, twins.wrapped.linear.weight)
