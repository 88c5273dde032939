"""Hooks that write to tensors in the middle of a backward: what eager has read by then may change, and nothing else may."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import rekindle
import torch
from module_support import Twins
from torch import nn

WIDTH, ROWS = 256, 1024  # one activation has a MiB, which the plan rather computes again than keeps


def chain(width: int = WIDTH) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(width, width), nn.Tanh())))


class Tied(nn.Module):
    """Has one table for its embedding, whose gradient reads no table, and for its head, whose does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.body = nn.Embedding(64, WIDTH), chain()
        self.head = nn.Linear(WIDTH, 64, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.table(tokens)))


class DataTwice(nn.Module):
    """Normalizes data, which no gradient reads for that, and multiplies by them later, which does."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last = chain(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(nn.functional.layer_norm(x, (WIDTH,))) * x)


class OfARow(nn.Module):
    """Has an operator of PyTorch's that keeps a row of a parameter for its own backward."""

    OPERATORS: ClassVar[dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
        "rms_norm": lambda x, table: nn.functional.rms_norm(x, (8,), table[0]),
        "batch_norm": lambda x, table: nn.functional.batch_norm(x, None, None, table[0], table[1], training=True),
        "group_norm": lambda x, table: nn.functional.group_norm(x, 2, table[0], table[1]),
        "prelu": lambda x, table: nn.functional.prelu(x, table.flatten()[8:16]),
    }

    def __init__(self, operator: str, trains: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.operator, self.first, self.last = self.OPERATORS[operator], nn.Linear(8, 8), nn.Linear(8, 8)
        self.table = nn.Parameter(torch.randn(2, 8), requires_grad=trains)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.operator(self.first(x), self.table)))


def write_when(parameter: nn.Parameter, written: torch.Tensor) -> None:
    """Lets a write follow when the gradient of a parameter is there."""

    def hook(_: torch.Tensor) -> None:
        with torch.no_grad():
            written.copy_(written.flip(0))

    parameter.register_post_accumulate_grad_hook(hook)


def gradients(model: Any, module: nn.Module, *args: torch.Tensor) -> dict[str, torch.Tensor | None] | str:
    """Returns gradients by name, or the error that a backward raises."""
    try:
        model(*args).square().sum().backward()
    except RuntimeError as error:
        return str(error)
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def both(module: nn.Module, hooked: Callable[[Any, torch.Tensor], None], x: torch.Tensor, **options: Any) -> tuple[Any, Any]:
    """(eager's, ours): what `gradients` returns with the hooks that `hooked` registers on a module called with x."""
    found = []
    for wrap in (lambda own: own, lambda own: rekindle.Module(own, rekindle.Options(fallback="error", **options))):
        own, data = copy.deepcopy(module), x.clone()
        hooked(own, data)
        found.append(gradients(wrap(own), own, data))
    return found[0], found[1]


def assert_near(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max()), msg=name)


def test_a_table_that_eager_reads_no_more() -> None:
    hooked = lambda module, _: write_when(module.body[4].weight, module.table.weight)  # noqa: E731
    theirs, ours = both(Tied(), hooked, torch.randint(64, (8, 128), generator=torch.Generator().manual_seed(0)))
    assert_near(ours, theirs)


def test_data_that_eager_reads_no_more() -> None:
    hooked = lambda module, data: write_when(module.body[4].weight, data)  # noqa: E731
    theirs, ours = both(DataTwice(), hooked, torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0)))
    assert_near(ours, theirs)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("written", ["0.weight", "2.weight"])
def test_what_an_earlier_layer_has_saved_raises(level: int, written: str) -> None:
    hooked = lambda module, _: write_when(module[4].weight, module.get_parameter(written))  # noqa: E731
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    theirs, ours = both(chain(8), hooked, x, memory_level=level)
    assert isinstance(theirs, str) and "modified by an inplace operation" in theirs
    assert isinstance(ours, str) and "modified by an inplace operation" in ours


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("operator", OfARow.OPERATORS)
def test_a_row_that_an_operator_keeps_raises(operator: str, trains: bool) -> None:
    hooked = lambda module, _: write_when(module.last.weight, module.table)  # noqa: E731
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    theirs, ours = both(OfARow(operator, trains), hooked, x)
    assert isinstance(theirs, str) and "modified by an inplace operation" in theirs
    assert isinstance(ours, str) and "modified by an inplace operation" in ours


def test_a_bias_that_a_level_reads_again_raises() -> None:
    hooked = lambda module, _: write_when(module[4].weight, module[0].bias)  # noqa: E731
    theirs, ours = both(chain(), hooked, torch.randn(ROWS, WIDTH), memory_level=2)
    assert isinstance(theirs, dict)
    assert isinstance(ours, str) and "'0.bias'" in ours and "modified by an inplace operation" in ours


@pytest.mark.parametrize("level", [0, 1, 2])
def test_each_parameter_may_step_at_once(level: int) -> None:
    def hooked(module: nn.Module, _: torch.Tensor) -> None:
        for parameter in module.parameters():
            write_when(parameter, parameter)

    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0), requires_grad=True)
    theirs, ours = both(chain(), hooked, x, memory_level=level)
    assert_near(ours, theirs)


def test_a_write_to_what_no_wanted_gradient_needs() -> None:
    twins = Twins(chain(8))

    def last_gradient(model: nn.Module) -> torch.Tensor:
        result = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)))
        with torch.no_grad():
            model.get_parameter("2.weight").mul_(2)
        return torch.autograd.grad(result.sum(), model.get_parameter("4.weight"))[0]

    for _ in range(2):
        theirs, ours = twins.both(last_gradient)
        torch.testing.assert_close(ours, theirs)
