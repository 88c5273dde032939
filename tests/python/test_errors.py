"""Errors at run time keep eager's type and say where: the node, its operator, the line of the forward, the inputs."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable

import pytest
import rekindle
import torch
import torch.nn.functional as F
from module_support import rows
from torch import nn


class TooLarge(KeyError):
    """An error of the user's own."""


def _check(x: torch.Tensor) -> None:
    if float(x.detach().abs().max()) > 100:
        raise TooLarge("too large")


class Checked(torch.autograd.Function):
    """Twice its input; fails in the forward for large inputs."""

    @staticmethod
    def forward(ctx, x):
        _check(x)
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class CheckedLater(Checked):
    """The same; fails in the backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        _check(*ctx.saved_tensors)
        return 2 * gradient


def _doubled(x: torch.Tensor) -> torch.Tensor:
    _check(x)
    return 2 * x


def _doubled_unchecked(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _checked_gradient(ctx, gradient):
    _check(*ctx.saved_tensors)
    return 2 * gradient


checked = torch.library.custom_op("rekindle_errors::checked", _doubled, mutates_args=())
checked.register_fake(lambda x: torch.empty_like(x))
checked.register_autograd(lambda ctx, gradient: 2 * gradient)
checked_later = torch.library.custom_op("rekindle_errors::checked_later", _doubled_unchecked, mutates_args=())
checked_later.register_fake(lambda x: torch.empty_like(x))
checked_later.register_autograd(_checked_gradient, setup_context=_keep)


class Layer(nn.Module):
    """A linear layer, and a function of its result and the inputs."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.function(self.linear, *given)


def _raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


INDICES = torch.tensor([1, 2])
BEYOND = torch.tensor([1, 9])
CASES = {
    "kernel of the session": (lambda linear, i: F.embedding(i, linear.weight), INDICES, BEYOND, "Embedding"),
    "own kernel": (lambda linear, i: F.cross_entropy(linear.weight[:2], i), INDICES, BEYOND, "CrossEntropyLoss"),
    "operator of torch": (lambda linear, i: linear.weight[i] * 2, INDICES, BEYOND, "aten.index.Tensor"),
    "linear algebra": (
        lambda linear, x: torch.linalg.cholesky(x) + linear.weight, torch.eye(4), -torch.eye(4), "aten.linalg_cholesky.default",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_errors_of_torch_keep_their_type_and_name_the_line(name: str) -> None:
    function, good, bad, operator = CASES[name]
    eager = Layer(function)
    model = rekindle.Module(eager, rekindle.Options(fallback="error"))
    model(good)
    theirs, ours = _raised(lambda: eager(bad)), _raised(lambda: model(bad))
    assert type(ours) is type(theirs)
    assert str(ours) == str(theirs)
    assert "<lambda>" in [frame.name for frame in traceback.extract_tb(ours.__traceback__)], "the line of the forward"
    [note] = ours.__notes__
    place = rf"while running node '[^']+' \({operator}\) from test_errors\.py:\d+ in <lambda> with inputs \S+\[\d"
    assert re.search(place, note), note


@pytest.mark.parametrize(
    ("function", "later", "operator"),
    [
        (lambda linear, x: Checked.apply(linear(x)), False, "rekindle.call_host.default"),
        (lambda linear, x: CheckedLater.apply(linear(x)), True, "TorchGradient"),
        (lambda linear, x: checked(linear(x)), False, "rekindle_errors.checked.default"),
        (lambda linear, x: checked_later(linear(x)), True, "TorchGradient"),
    ],
    ids=["Function", "Function, backward", "operator", "operator, backward"],
)
def test_errors_of_python_are_raised_as_they_are_with_a_note(
    function: Callable[..., torch.Tensor], later: bool, operator: str
) -> None:
    model = rekindle.Module(Layer(function), rekindle.Options(fallback="error"))
    model(rows())
    if later:
        result = model(1e6 * rows())
        error = _raised(lambda: result.sum().backward())
    else:
        error = _raised(lambda: model(1e6 * rows()))
    assert type(error) is TooLarge
    assert error.args == ("too large",)
    if hasattr(error, "add_note"):
        [note] = error.__notes__
        assert re.search(
            rf"while running node '[^']+' \({operator}\) from test_errors\.py:\d+ in <lambda> with inputs",
            note,
        ), note
