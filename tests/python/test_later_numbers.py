"""Numbers that come after the first call, at which a graph was compared: they are treated as eager treats them.

Found by programs whose later data was chosen at the edges of a dtype: a graph that is only nearly right is so until then.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
import torch.nn.functional as F
from torch import nn

Forward = Callable[..., Any]
Calls = list[tuple[torch.Tensor, ...]]


class Scaled(nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.compute = forward

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> Any:
        return self.compute(x * self.scale, *others)


def results(module: nn.Module, arguments: tuple[torch.Tensor, ...], cotangent: float) -> list[torch.Tensor | None]:
    module.zero_grad()
    leaves = [one.clone().requires_grad_() if one.is_floating_point() else one for one in arguments]
    outputs = module(*leaves)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    torch.autograd.backward(outputs, [torch.full_like(output, cotangent) for output in outputs])
    return [*outputs, *(parameter.grad for parameter in module.parameters()), *(leaf.grad for leaf in leaves)]


def check(cache_dir: Any, forward: Forward, calls: Calls, dtype: torch.dtype, cotangent: float = 1.0) -> None:
    eager = Scaled(forward).to(dtype)
    wrapped = rekindle.Module(copy.deepcopy(eager), options=rekindle.Options(start="wait", cache_dir=cache_dir))
    for arguments in calls:
        expected, actual = (results(module, arguments, cotangent) for module in (eager, wrapped))
        torch.testing.assert_close(actual, expected, equal_nan=True)
    assert rekindle.status(wrapped).eager_calls == 0


def values(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).to(dtype)


COMPARISONS = {
    "greater": lambda x: x.masked_fill(x > 0.1, 0.0),
    "equal": lambda x: x * (x == 0.1),
    "at_least": lambda x: torch.where(x >= 0.7, x, -x),
    "scalar_tensor": lambda x: x * (x != torch.tensor(0.1)),
}


@pytest.mark.parametrize("name", sorted(COMPARISONS))
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float32])
def test_a_number_is_compared_in_the_tensors_dtype(tmp_path: Any, name: str, dtype: torch.dtype) -> None:
    edges = torch.tensor([[0.1, 0.7, 0.5], [0.0, -0.1, 1.0]]).to(dtype)
    check(tmp_path, COMPARISONS[name], [(values(dtype),), (edges,)], dtype)


@pytest.mark.parametrize(
    ("dtype", "number", "later"),
    [(torch.uint8, -1, 255), (torch.uint8, 256, 0), (torch.int8, 200, -56), (torch.int32, 2**31 + 5, -(2**31) + 5)],
)
def test_a_number_outside_of_an_integer_dtype_is_wrapped(tmp_path: Any, dtype: torch.dtype, number: int, later: int) -> None:
    calls = [
        (torch.randn(3), torch.tensor([1, 2, 3], dtype=dtype)),
        (torch.ones(3), torch.tensor([later, 1, later], dtype=dtype)),
    ]
    check(tmp_path, lambda x, codes: x * (codes == number), calls, torch.float32)


def test_a_product_in_half_meets_alpha_before_it_is_rounded(tmp_path: Any) -> None:
    calls = [
        (torch.randn(1, 2, 3).half(), torch.randn(1, 3, 2).half(), torch.randn(1, 2, 2).half()),
        (torch.full((1, 2, 3), 200.0).half(), torch.full((1, 3, 2), 200.0).half(), torch.zeros(1, 2, 2).half()),
    ]
    check(tmp_path, lambda q, k, c: torch.baddbmm(c, q, k, alpha=0.125), calls, torch.half)


def test_addcmul_multiplies_by_its_number_first(tmp_path: Any) -> None:
    large = torch.full((4, 3), 1e25)
    calls = [(values(torch.float32),) * 3, (torch.ones(4, 3), large, large)]
    check(tmp_path, lambda x, a, b: torch.addcmul(x, a, b, value=1e-20), calls, torch.float32)


def test_what_beta_leaves_out_is_not_read(tmp_path: Any) -> None:
    q, k, nan = torch.randn(1, 2, 3), torch.randn(1, 3, 2), torch.full((1, 2, 2), math.nan)
    check(tmp_path, lambda q, k, c: torch.baddbmm(c, q, k, beta=0.0), [(q, k, torch.randn(1, 2, 2)), (q, k, nan)], torch.float32)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float32, torch.float64])
def test_gradients_of_silu_do_not_overflow(tmp_path: Any, dtype: torch.dtype) -> None:
    later = torch.tensor([[-70.0, -70.0], [1.0, torch.finfo(dtype).min]]).to(dtype)
    check(tmp_path, F.silu, [(values(dtype),), (later,)], dtype, cotangent=1024.0)


def test_gradients_of_several_casts_are_added_in_the_dtype_of_what_is_cast(tmp_path: Any) -> None:
    calls = [(torch.randn(2, 2),), (torch.ones(2, 2),)]
    check(tmp_path, lambda x: [x.half() * i for i in range(1, 4)], calls, torch.float32, cotangent=2e4)


def test_gradients_of_many_heads_under_autocast_are_as_near_as_eagers(tmp_path: Any) -> None:
    torch.manual_seed(0)
    heads, eager = 32, nn.Linear(16, 32 * 16)
    wrapped = rekindle.Module(Heads(eager, heads), options=rekindle.Options(start="wait", cache_dir=tmp_path))
    x, cotangents = torch.randn(64, 16), 1 + 0.1 * torch.randn(heads, 64, 16)
    grads = []
    for module, dtype in ((Heads(eager, heads).double(), torch.float64), (Heads(eager, heads), None), (wrapped, None)):
        leaf = x.to(dtype or torch.float32).clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is None):
            outputs = module(leaf)
        torch.autograd.backward(outputs, [one.to(output.dtype) for one, output in zip(cotangents, outputs, strict=True)])
        grads.append(leaf.grad.double())
    exact, of_eager, ours = grads
    assert (ours - exact).norm() <= 2 * (of_eager - exact).norm()
    assert rekindle.status(wrapped).eager_calls == 0


class Heads(nn.Module):
    def __init__(self, of: nn.Linear, count: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.weights = nn.ParameterList(weight.detach().clone() for weight in of.weight[:16].repeat(count, 1, 1))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.norm(x)
        return [F.linear(x, weight) for weight in self.weights]


@pytest.mark.parametrize("first", [2, 0])
def test_an_empty_batch_is_flattened(tmp_path: Any, first: int) -> None:
    calls = [(torch.randn(first, 3, 4, 4),), (torch.randn(2 - first, 3, 4, 4),), (torch.randn(3, 3, 4, 4),)]
    check(tmp_path, lambda x: x.flatten(2).transpose(1, 2), calls, torch.float32)


NEUTRAL: dict[str, Forward] = {
    "sum": lambda x: torch.atan2(sum([x]), torch.full_like(x, -1.0)),
    "zero first": lambda x: 1 / (0 + x),
    "zero last": lambda x: 1 / (x + 0),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_adding_nothing_makes_zero_positive(tmp_path: Any, name: str) -> None:
    check(tmp_path, NEUTRAL[name], [(torch.ones(3),), (torch.tensor([-0.0, 0.0, 2.0]),)], torch.float32)


@pytest.mark.parametrize("copied", [lambda y: sum([y]), lambda y: y + 0, lambda y: y / 1], ids=["sum", "add", "div"])
def test_a_result_that_nothing_was_added_to_is_no_tensor_of_the_backward(tmp_path: Any, copied: Forward) -> None:
    class Saving(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x.exp()
            return copied(y), y * 1

    wrapped = rekindle.Module(Saving(), options=rekindle.Options(start="wait", cache_dir=tmp_path))
    for write in (lambda a: a.mul_(3), lambda a: a.detach().mul_(3), lambda a: a.data.mul_(3)):
        gradients = []
        for module in (Saving(), wrapped):
            x = torch.arange(3.0).requires_grad_()
            first, second = module(x)
            write(first)
            (first.sum() + second.sum()).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)
    assert rekindle.status(wrapped).source == "export"
