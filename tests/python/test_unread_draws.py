"""Random numbers that nobody reads, or that are written over, are drawn all the same, and all in eager's order."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
import torch
from module_support import Twins
from torch import nn
from torch.nn import functional as F


def _dropped_dropout(x: torch.Tensor) -> torch.Tensor:
    F.dropout(x, 0.5)
    return F.dropout(x, 0.5)


def _dropped_numbers(x: torch.Tensor) -> torch.Tensor:
    torch.rand(3)
    noise = torch.randn_like(x)
    return x * 2 + torch.rand(x.shape[-1]) + 0 * noise.shape[0]


def _overwritten(x: torch.Tensor) -> torch.Tensor:
    noise = torch.empty(4).normal_()
    noise.fill_(2.0)
    return F.dropout(x * noise, 0.1)


def _overwritten_in_part(x: torch.Tensor) -> torch.Tensor:
    y = torch.rand_like(x)
    y[:] = x
    return y + torch.bernoulli(torch.full_like(x, 0.5))


def _at_the_end(x: torch.Tensor) -> torch.Tensor:
    y = x * torch.rand_like(x)
    torch.randperm(5)
    return y


def _one_of_two(x: torch.Tensor) -> torch.Tensor:
    noise = F.dropout(x.t(), 0.3)
    F.dropout(noise * 2, 0.3)
    return noise


def _through_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    F.dropout(y[1:], 0.5, inplace=True)
    y.zero_()
    return F.dropout(x + y, 0.5)


def _drawn_in_place_and_written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    F.dropout(y, 0.3, inplace=True)
    noise = torch.randn_like(x)
    return y.index_fill_(1, torch.tensor([0]), 2.0) + noise


def _noise_that_lies_otherwise(x: torch.Tensor) -> torch.Tensor:
    y = x.t()  # not contiguous, for which normal numbers are drawn otherwise
    alike = torch.randn_like(y) + torch.rand_like(y)
    return y + alike + torch.randn_like(y, memory_format=torch.contiguous_format)


CASES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    _dropped_dropout, _dropped_numbers, _overwritten, _overwritten_in_part, _at_the_end, _one_of_two, _through_a_view,
    _drawn_in_place_and_written, _noise_that_lies_otherwise,
]  # fmt: skip


class Layer(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.linear(x))


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__.strip("_"))
def test_a_draw_that_nobody_reads_moves_the_generator(
    function: Callable[[torch.Tensor], torch.Tensor], tmp_path: pathlib.Path
) -> None:
    for exports in (1, 0):  # with an empty cache, and with what that left
        torch.manual_seed(2)
        twins = Twins(Layer(function), cache_dir=str(tmp_path), fallback="error", log="off")
        for rows in (4, 4, 6):
            twins.call(torch.randn(rows, 4))
        assert twins.status.exports == exports
