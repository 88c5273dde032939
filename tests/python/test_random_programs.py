"""Random programs, and programs that write to shared memory, give from a graph what they give in eager."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import programs
import pytest
import rekindle
import torch
from module_support import Twins
from torch import nn
from torch.nn import functional as F

# Seeds of programs that were once wrong, or ran in eager where they need not.
KEPT = [
    3, 6, 8, 10, 11, 13, 16, 21, 24, 47, 51, 57, 96, 146, 573, 1198, 1541, 1650, 1951, 2016, 2039, 2129, 2166, 2417, 2478, 2895,
    3117, 3490, 4351, 10004, 10166, 10265, 10400, 10505, 10713, 10810, 10900, 20257, 20326,
    30006, 30018, 30061, 30089, 30093, 30207, 30210, 30241, 30289,
]  # fmt: skip


@pytest.mark.parametrize("seed", [*KEPT, *range(1000, 1024)])
def test_a_random_program_runs_from_a_graph_as_in_eager(seed: int, tmp_path: pathlib.Path) -> None:
    options = rekindle.Options(cache_dir=tmp_path, cache="off", log="off")
    (outcome,) = programs.run(str(seed), 1, options)
    assert outcome.right, outcome.reason
    assert outcome.place in ("onnx", "torch"), outcome.reason


def _write_through_view(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    part = y[1:]
    part.mul_(3)
    return y + 1


def _view_sees_write(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    part = y[:, ::2]
    y += 1
    return part * y[:, :2]


def _two_views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 1.5
    rows, columns = y[0], y.t()[1]
    rows.add_(1.5)
    columns.fill_(2.0)
    return y, rows * 2, columns * 3


def _through_reshape(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    flat = y.view(-1)
    flat[::3] = 0
    y[0].zero_()
    return flat * 2 + y.reshape(-1)


def _diagonal(x: torch.Tensor) -> torch.Tensor:
    y = x @ x.t()
    y.diagonal().add_(1.0)
    return torch.linalg.inv(y)


def _inplace_activation(x: torch.Tensor) -> torch.Tensor:
    y = x - 0.1
    z = y.view(2, -1)
    F.relu(z, inplace=True)
    return y * y


def _chunks(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    first, second = y[:, :2], y[:, 2:]
    first.mul_(3)
    second.copy_(first.detach())
    return y


def _out(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(4, 4)
    torch.add(torch.ones(4, 4), 1, out=y)
    return x * y


def _dropout_of_a_transpose(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.t(), 0.5) + F.dropout(x.t().contiguous(), 0.5)


class _Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(-0.4, 0.6)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _function_after_a_write(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    part = y[:2]
    y.t().add_(-1.5)
    y[0].mul_(0.5)
    return _Clamped.apply(y) * 3 + _Clamped.apply(part).sum()


def _assigned_of_another_dtype(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).bfloat16()
    y[:] = x[0] * 3
    y[1:3] = x[1:3].double()
    return y.float()


def _empty_views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x[:, :0]
    y[torch.tensor([1, 0])] = x[:2, :0]
    y.add_(1)
    return y, x[:0].reshape(0, 0).sum() + x.sum(), x[:0].view(3, 0), x[:0][[]]


def _index_in_a_list(x: torch.Tensor) -> torch.Tensor:
    y = x.sum(-1)
    y[::2] = 0.5
    return y[[0, 1]] + x[torch.tensor([0]), torch.tensor([1])]


WRITES: dict[str, Callable[[torch.Tensor], torch.Tensor | tuple[torch.Tensor, ...]]] = {
    function.__name__.strip("_"): function
    for function in (
        _write_through_view, _view_sees_write, _two_views, _through_reshape, _diagonal, _inplace_activation, _chunks, _out,
        _dropout_of_a_transpose, _function_after_a_write, _assigned_of_another_dtype, _empty_views, _index_in_a_list,
    )
}  # fmt: skip


class Layer(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor | tuple[torch.Tensor, ...]]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return self.function(self.linear(x))


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_shared_memory(name: str, tmp_path: pathlib.Path) -> None:
    torch.manual_seed(2)
    twins = Twins(Layer(WRITES[name]), cache_dir=str(tmp_path), fallback="error")
    for _ in range(3):
        twins.call(torch.randn(4, 4))
    assert twins.status.source == "export"
