"""Operators whose operands have several dtypes compute in the dtype that eager does, at the first numbers and at later ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn

HALF, SINGLE, DOUBLE = torch.float16, torch.float32, torch.float64


class Net(nn.Module):
    def __init__(self, does: Callable[..., Any]) -> None:
        super().__init__()
        self.does = does

    def forward(self, h: torch.Tensor, x: torch.Tensor) -> Any:
        return self.does(h, x)


def written(name: str, **given: Any) -> Callable[..., Any]:
    """Returns what writes to a copy of its first argument."""

    def does(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        h = h * 1
        getattr(h, name)(x, **given)
        return h * 2

    return does


def addcmul(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (h * 1).addcmul_(x, x)


def operator(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    h = h.clone()
    h *= x
    return h


def averaged(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return h.clone().mul_(0.9).add_(x, alpha=0.1)


# How it writes, the target's dtype and numbers, the operand's; numbers of the second call, where rounding first would tell.
WRITES: dict[str, tuple[Callable[..., Any], Any, Any, Any, Any]] = {
    "half by a single number": (written("div_"), (HALF, [1.0, 2.0]), (SINGLE, 2.0), [1.0, 2.0], 131072.0),
    "half by singles": (written("div_"), (HALF, [1.0, 2.0]), (SINGLE, [2.0, 4.0]), [1e-6, 2e-6], [1e-8, 2e-8]),
    "half times a long": (operator, (HALF, [1.0, 2.0]), (torch.int64, 2), [1e-4, 1e-3], 131072),
    "half times singles": (operator, (HALF, [1.0, 2.0]), (SINGLE, [2.0, 4.0]), [1e-4, 1e-3], [1e5, 1e6]),
    "bfloat16": (written("sub_"), (torch.bfloat16, [1.0, 2.0]), (SINGLE, [0.5, 0.25]), [1.0, 2.0], [0.999, 1.9985]),
    "single": (written("__isub__"), (SINGLE, [1.0, 2.0]), (DOUBLE, [0.5, 0.25]), [1.0, 2.0], [1 - 1e-9, 2 - 1e-9]),
    "floor": (
        written("div_", rounding_mode="floor"), (SINGLE, [1.0, 2.0]), (DOUBLE, [0.5, 0.25]), [1.0, 2.0], [1 + 1e-9, 2 + 1e-9],
    ),
    "short": (written("pow_"), (torch.int16, [2, 3]), (torch.int64, [2, 3]), [2, 3], [65537, 65536]),
    "average": (averaged, (torch.bfloat16, [1.0, 2.0]), (DOUBLE, [0.5, 0.25]), [1.0078125, 2.0], [0.5039, 1.9985]),
    "clamp": (lambda h, x: (h * 1).clamp_(min=x), (HALF, [1.0, 2.0]), (SINGLE, [2.0, 4.0]), [1e-4, 1e-3], [1e-5, 1e-3]),
    "fmod": (written("fmod_"), (HALF, [5.0, 2.0]), (SINGLE, [2.0, 4.0]), [7.0, 1e-3], [1e-5, 300.0]),
    "addcmul": (addcmul, (HALF, [1.0, 2.0]), (SINGLE, [2.0, 4.0]), [1e-4, 1e-3], [1e-5, 200.0]),
    "comparison": (written("gt_"), (HALF, [1.0, 2.0]), (HALF, [2.0, 1.0]), [1.0, 2.0], [0.5, 4.0]),
    "boolean": (written("logical_and_"), (SINGLE, [1.0, 0.0]), (SINGLE, [2.0, 1.0]), [1.0, 2.0], [0.5, 0.0]),
}  # fmt: skip

OTHERS: dict[str, tuple[Callable[..., Any], Any, Any, Any, Any]] = {
    "half times one long": (torch.mul, (HALF, [1.0, 2.0]), (torch.int64, [2]), [1e-4, 1e-3], [131072]),
    "doubles without dimensions": (torch.gt, (DOUBLE, 1.0), (DOUBLE, 2.0), 1 + 1e-9, 1.0),
    "a double and a number": (lambda h, x: (h > 0.1, h + x), (DOUBLE, 1.0), (DOUBLE, 2.0), 0.1 + 1e-10, 1.0),
    "a bfloat16 and a number": (lambda h, x: (h == 0.1, h + x), (torch.bfloat16, 1.0), (torch.bfloat16, 2.0), 0.1, 1.0),
    "the largest of bytes": (lambda h, x: (h.max() > 300, h + x), (torch.uint8, [1]), (torch.uint8, [2]), [255], [0]),
    "longs and a double": (torch.eq, (torch.int64, [16777216, 16777217]), (DOUBLE, 3.0), [16777216, 16777217], 16777217.0),
    "where": (lambda h, x: torch.where(h < x, h, x), (DOUBLE, 1.0), (DOUBLE, 2.0), 1.0, 1 + 1e-9),
    "sigmoid of longs": (lambda h, x: h * torch.sigmoid(x), (SINGLE, [1.0, 2.0]), (torch.int64, [2, 3]), [1.0, 2.0], [-1, 0]),
    "exp of booleans": (lambda h, x: h * (h > x).exp(), (SINGLE, [1.0, 2.0]), (SINGLE, [2.0, 3.0]), [1.0, 2.0], [0.0, 3.0]),
}


def told(model: nn.Module, arguments: list[torch.Tensor], gradients: bool = True) -> list[Any]:
    """Returns the results and the gradients of a call, or its error."""
    arguments = [x.clone().requires_grad_(x.is_floating_point() and gradients) for x in arguments]
    try:
        results = model(*arguments)
    except RuntimeError as error:
        return [str(error)[:60]]
    results = results if isinstance(results, tuple) else (results,)
    for result in results:
        if result.requires_grad:
            result.float().sum().backward()
    return [*results, *(x.grad for x in arguments if x.grad is not None)]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    """Asserts that both calls gave the same, or raised with the same text."""
    if isinstance(expected[0], str):
        assert found == expected
    else:
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("name", [*WRITES, *OTHERS])
def test_operands_of_another_dtype_are_not_rounded_first(name: str) -> None:
    does, (dtype, first), (other, operand), *later = (WRITES | OTHERS)[name]
    model = Net(does)
    wrapped = rekindle.Module(model)
    gradients = name not in ("comparison", "boolean")  # those that eager has are refused
    for numbers, others in ([first, operand], later):
        arguments = [torch.tensor(numbers, dtype=dtype), torch.tensor(others, dtype=other)]
        found, expected = (told(each, arguments, gradients) for each in (wrapped, model))
        torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(found, expected, rtol=2**-8, atol=0, equal_nan=True)  # gradients are rounded to halves
    assert rekindle.status(wrapped).source != "eager"


def test_a_fill_that_is_out_of_range_is_eagers_error() -> None:
    model = Net(lambda h, x: h.masked_fill(h > 0, x))
    wrapped = rekindle.Module(model)
    for value in (2.0, 1e6):
        arguments = [torch.tensor([1.0, 2.0], dtype=HALF), torch.tensor(value)]
        found, expected = told(wrapped, arguments), told(model, arguments)
        assert_same(found, expected)
    assert rekindle.status(wrapped).source != "eager"


def test_integers_and_bfloat16_are_broadcast_in_a_graph() -> None:
    def does(h: torch.Tensor, x: torch.Tensor) -> Any:
        index, scores = torch.broadcast_tensors(h.argmax(-1, keepdim=True), x)
        return scores.gather(-1, index[..., :1])

    model = Net(does)
    wrapped = rekindle.Module(model, rekindle.Options(fallback="error"))
    for scale in (1.0, -2.0):
        arguments = [numbers.bfloat16() * scale for numbers in (torch.tensor([[3.0, 1.0], [0.5, 2.0]]), torch.eye(2))]
        assert_same(told(wrapped, arguments), told(model, arguments))


@pytest.mark.parametrize(
    ("does", "why"),
    [
        (lambda h, x: torch.sum(x, 0, out=h.clone()), "out= of torch.float16 is given what is torch.float32"),
        (lambda h, x: torch.mul(x, x, out=h.int()), "out= of torch.int32 is given what is torch.float32"),
        (lambda h, x: ((x > 0) * 0.5).t().as_strided((2,), (1,)), "as_strided is called on a tensor that is not contiguous"),
        (lambda h, x: (x * 1).view(torch.int32), "view(dtype) sees a tensor's memory as another dtype"),
    ],
)
def test_what_depends_on_dtype_or_layout_of_memory_runs_in_eager(does: Callable[..., Any], why: str) -> None:
    model = Net(does)
    wrapped = rekindle.Module(model)
    for scale in (1.0, -70000.0):
        arguments = [torch.zeros(2, dtype=HALF), torch.tensor([[1.0, 2.0], [3.0, -5.0]]) * scale]
        found, expected = told(wrapped, arguments), told(model, arguments)
        assert_same(found, expected)
    ((_, message),) = rekindle.status(wrapped).bypass
    assert why in message
