"""Eager's gradients are compared with ours as they come, and none of them is kept that is not in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from rekindle.compare.gradients import Arriving
from rekindle.compare.verification import Expected, compare_session
from rekindle.process.random_states import random_states
from rekindle.reasons import Bypass
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

_NAMES = ["first", "last", "unused"]


def _inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(8, 8, generator=generator).requires_grad_() for _ in _NAMES]


def _loss(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    return F.linear(F.linear(torch.ones(3, 8), inputs[0]), inputs[1]).square().sum()


def _gradients(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    return list(torch.autograd.grad(_loss(inputs), list(inputs), allow_unused=True))


def _compared(ours: list[torch.Tensor | None]) -> tuple[list[torch.Tensor | None], list[torch.Tensor | None], list[str]]:
    """Returns what eager's backward returned, how its gradients lie, and which of ours are in doubt."""
    inputs = _inputs()
    arriving = Arriving(ours, _NAMES, 1)
    with arriving.watched(inputs):
        values = _gradients(inputs)
    lying, doubts = arriving.finish(values, 0.0)
    return values, lying, [doubt.what for doubt in doubts]


def test_those_that_came_take_no_memory() -> None:
    ours, right = _gradients(_inputs()), _gradients(_inputs())
    values, lying, doubts = _compared(ours)
    assert [value is None or value.untyped_storage().nbytes() == 4 for value in values] == [True] * 3
    assert [None if x is None else (x.device.type, x.stride()) for x in lying] == [
        None if x is None else ("meta", x.stride()) for x in right
    ]
    assert doubts == [] and ours == [None] * 3


def test_no_handle_is_counted_and_no_hook_is_left() -> None:
    inputs, before = _inputs(), RemovableHandle.next_id
    arriving = Arriving(_gradients(inputs), _NAMES, 1)
    with arriving.watched(inputs):
        arriving.finish(_gradients(inputs), 0.0)
    assert RemovableHandle.next_id == before  # which the key of a module that holds a handle tells
    assert [tensor._backward_hooks for tensor in inputs] == [None] * 3


def test_doubts_are_told_in_the_order_of_the_inputs() -> None:
    wrong = [None if x is None else x * 1.001 for x in _gradients(_inputs())]  # eager's backward comes to the last one first
    assert _compared(wrong)[2] == ["the gradient of first", "the gradient of last"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: [x[0][:1], x[1][:1], None], "first is torch.float32"),
        (lambda x: [x[0], None, None], "last is None, in eager there"),
        (lambda x: [x[0], x[1] * torch.inf, torch.zeros(8, 8)], "last is finite elsewhere"),
        (lambda x: [x[0], x[1], torch.zeros(8, 8)], "unused is there, in eager None"),
    ],
)
def test_the_first_that_cannot_be_eagers_is_named(change: Any, message: str) -> None:
    with pytest.raises(Bypass, match=message):
        _compared(change(_gradients(_inputs())))


class _Eager:
    """A session that computes as eager does."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def forward(self, inputs: list[torch.Tensor], grad: bool) -> list[torch.Tensor]:
        return [self._function(inputs[0])]


class _Inner(torch.autograd.Function):
    """Runs a backward in its own, which sends something else to the same leaf."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
        ctx.leaf = leaf
        return x * 3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        with torch.enable_grad():
            (ctx.leaf * 2).sum().backward()
        return gradient * 3, None


def test_a_backward_within_a_backward_is_not_taken_for_the_gradient() -> None:
    leaf = torch.ones(4, requires_grad=True)
    states = (random_states(), random_states())
    found = compare_session(
        _Eager(lambda x: x * 3), Expected([leaf], [_Inner.apply(leaf, leaf.detach().requires_grad_())], states), ["leaf"], True
    )
    assert found.order == [0]
    inner = _Inner.apply(leaf * 1, leaf)
    assert compare_session(_Eager(lambda x: x * 3), Expected([leaf], [inner], states), ["leaf"], True).order == [0]
