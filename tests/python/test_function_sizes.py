"""Graphs with autograd Functions serve all sizes, as far as what a Function returns has sizes of what it is given."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import python_process
import rekindle
import torch
from module_support import Twins
from rekindle.functions.result_sizes import Observed, rules
from seeded import seeded
from torch import nn


class Product(torch.autograd.Function):
    """Two results of other ranks than the inputs."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x, weight)
        return (x @ weight).tanh(), x.sum(-1)

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        first = first * (1 - (x @ weight).tanh().square())
        return first @ weight.T + second[..., None], torch.einsum("bti,bto->io", x, first)


class Half(torch.autograd.Function):
    """A result whose size is no size of the input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.size = x.shape[1]
        return x[:, : x.shape[1] // 2] * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(gradient * 2, (0, 0, 0, ctx.size - ctx.size // 2))


class Positive(torch.autograd.Function):
    """As many results as there are positive numbers."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x[x > 0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return torch.zeros_like(x).masked_scatter(x > 0, gradient)


class Calls(nn.Module):
    def __init__(self, forward: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.weight = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 6) * 0.3)
        self.run = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(self, self.linear(x))


def products(self: Any, x: torch.Tensor) -> torch.Tensor:
    y, z = Product.apply(x, self.weight)
    return y.mean(1) + z.mean(1, keepdim=True) * (y.shape[1] > 1)


def halves(self: Any, x: torch.Tensor) -> torch.Tensor:
    return Half.apply(x).sum(1)


def positives(self: Any, x: torch.Tensor) -> torch.Tensor:
    return Positive.apply(x).sum() + x.sum(-1)


def _x(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=seeded(sum(sizes)))


def test_results_follow_the_sizes_of_inputs() -> None:
    for exports in (1, 0):
        torch.manual_seed(0)
        twins = Twins(Calls(products), fallback="error")
        for sizes in ((2, 10, 8), (3, 7, 8), (6, 6, 8), (8, 2, 8)):
            twins.call(_x(*sizes))
        assert twins.status.exports == exports
        rekindle.cache.stats()  # waits until everything is stored


def test_equal_sizes_at_the_export_are_told_apart() -> None:
    torch.manual_seed(0)
    twins = Twins(Calls(products), fallback="error")
    for sizes in ((6, 8, 8), (8, 6, 8), (3, 5, 8)):
        twins.call(_x(*sizes))
    exports = twins.status.exports
    for sizes in ((4, 9, 8), (9, 4, 8)):
        twins.call(_x(*sizes))
    assert twins.status.exports == exports <= 3


def test_sizes_that_do_not_follow_are_fixed() -> None:
    torch.manual_seed(0)
    twins = Twins(Calls(halves), fallback="error")
    for length in (10, 7, 10):
        twins.call(_x(2, length, 8))
    assert twins.status.exports == 2


def test_infer_shape_says_what_no_rule_does() -> None:
    def half(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape[0], x.shape[1] // 2, x.shape[2])

    torch.manual_seed(0)
    model = Calls(halves)
    rekindle.register_python_op(Half, infer_shape=half)
    try:
        for exports in (1, 0):
            twins = Twins(copy.deepcopy(model), fallback="error")
            for sizes in ((2, 10, 8), (3, 7, 8), (5, 12, 8)):
                twins.call(_x(*sizes))
            assert twins.status.exports == exports
            rekindle.lookup.store.flush()
        rekindle.register_python_op(Half, infer_shape=torch.empty_like)  # which is not so
        twins = Twins(copy.deepcopy(model), fallback="error")
        for sizes in ((2, 10, 8), (3, 7, 8)):
            twins.call(_x(*sizes))
        assert twins.status.exports == 2
    finally:
        rekindle.register_python_op(Half)


def test_sizes_that_data_decide_are_eagers() -> None:
    torch.manual_seed(0)
    twins = Twins(copy.deepcopy(Calls(positives)))
    for sizes in ((2, 10, 8), (3, 7, 8), (2, 10, 8)):
        twins.call(_x(*sizes) + sizes[0])


def _observed(given: list[tuple[int, ...]], *results: tuple[int, ...]) -> Observed:
    return Observed(Product, given, list(results), ["float32"] * len(results))


RULES: dict[str, tuple[list[Observed], Any]] = {
    "one call": ([_observed([(2, 8)], (2, 6))], [["float32", [[0, 0], 6]]]),
    "two sizes": ([_observed([(2, 8)], (2, 6)), _observed([(3, 9)], (3, 6))], [["float32", [[0, 0], 6]]]),
    "a constant that was a size": ([_observed([(2, 6)], (6,)), _observed([(2, 9)], (6,))], [["float32", [6]]]),
    "the other input": ([_observed([(2,), (2,)], (2,)), _observed([(2,), (5,)], (5,))], [["float32", [[1, 0]]]]),
    "no size of an input": ([_observed([(10,)], (5,)), _observed([(8,)], (4,))], None),
    "another rank": ([_observed([(10,)], (5,)), _observed([(8,)], (4, 1))], None),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    (first, *others), expected = RULES[name]
    found = rules([first], [[one] for one in others])
    assert found == [expected]


_FIRST = """
import sys
import torch, rekindle
from torch import nn
from torch.utils.checkpoint import checkpoint

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        return Doubled.apply(self.linear(x))

class Checkpointed(Net):
    def forward(self, x):
        return checkpoint(self.linear, x, use_reentrant=False)

before = "torch._dynamo" in sys.modules
model = rekindle.Module(globals()[sys.argv[1]]())
for size in (5, 9):
    model(torch.ones(size, 4)).sum().backward()
print(rekindle.status(model).exports, before or "torch._dynamo" not in sys.modules)
"""


@pytest.mark.parametrize(("name", "loads"), [("Net", False), ("Checkpointed", True)])
def test_the_first_export_of_a_process_leaves_sizes_open_whatever_torch_imports_meanwhile(name: str, loads: bool) -> None:
    done = python_process.run("-c", _FIRST, name)
    assert done.stdout.split() == ["1", str(not loads)], done.stdout + done.stderr
