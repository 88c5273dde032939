"""Assignments to parts of tensors, `x[index] = value`: each way to say which parts runs from a graph, at all sizes."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import rekindle
import torch
from seeded import seeded
from torch import nn

_FULL = slice(None)
_VECTOR, _OTHER = torch.tensor([2, 0, 1]), torch.tensor([1, 1, 0])
_GRID, _COLUMN = torch.tensor([[0, 1, 2], [2, 1, 0]]), torch.tensor([[1], [0]])

# Indices of what has the sizes [n, 4, 5], n at least 3; "mask" and "masks" stand for masks of the first, and of two, dimensions.
_INDICES: dict[str, tuple[Any, ...]] = {
    "two vectors": (_VECTOR, _OTHER),
    "two vectors and all": (_VECTOR, _OTHER, _FULL),
    "two vectors and a part": (_VECTOR, _OTHER, slice(1, 3)),
    "a grid and all": (_COLUMN, _GRID, _FULL),
    "a grid and a part": (_COLUMN, _GRID, slice(1, None, 2)),
    "a grid and a number": (_COLUMN, _GRID, 2),
    "a grid around all": (_COLUMN, _FULL, _GRID),
    "a grid after all": (_FULL, _GRID),
    "a grid after the rest": (..., _GRID),
    "a vector, a number and a part": (_VECTOR, 1, slice(3)),
    "a vector and a new dimension": (_VECTOR, None, _OTHER),
    "a vector of negative numbers": (_VECTOR - 3, _OTHER, slice(-2, None)),
    "a mask": ("mask",),
    "a mask and a part": ("mask", slice(1, 3)),
    "a mask, all and a part": ("mask", _FULL, slice(None, None, 2)),
    "a mask and a number": ("mask", 1),
    "a mask, a part and a number": ("mask", slice(2), 1),
    "masks and a part": ("masks", slice(2)),
    "masks and a number": ("masks", -1),
    "masks and the rest": ("masks", ...),
    "a mask after a part": (slice(1, 3), torch.tensor([True, False, True, False]), slice(1, 4)),
}
_VALUES = {"number": 2.5, "scalar": "scalar", "row": "row"}


class Writing(nn.Module):
    """Writes to a part of what it computes."""

    def __init__(self, index: tuple[Any, ...], value: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)
        self.index, self.value = index, value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        masks = {"mask": x[:, 0, 0] > 0, "masks": x[..., 0] > 0}
        index = tuple(masks[place] if isinstance(place, str) else place for place in self.index)
        value = self.value if isinstance(self.value, float) else self._row(y[index].shape[-1])
        y[index] = value
        return y * 1

    def _row(self, width: int) -> torch.Tensor:
        row = self.linear.bias.sin()
        return row[0] if self.value == "scalar" or width > 5 else row[:width]


def _step(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    x = x.clone().requires_grad_()
    result = model(x)
    result.square().sum().backward()
    return [result.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]  # type: ignore[list-item]


@pytest.mark.parametrize(("index", "value"), itertools.product(_INDICES, ("number", "scalar")))
def test_what_is_written_is_eagers(index: str, value: str) -> None:
    model = Writing(_INDICES[index], _VALUES[value])
    wrapped = rekindle.Module(copy.deepcopy(model), rekindle.Options(fallback="error"))
    for count in (3, 5, 4):
        x = torch.randn(count, 4, 5, generator=seeded(count))
        for ours, theirs in zip(_step(wrapped, x), _step(model, x), strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("index", ["two vectors and all", "a grid and all", "a mask, all and a part", "a mask after a part"])
def test_rows_are_written_to_each_place(index: str) -> None:
    model = Writing(_INDICES[index], "row")
    wrapped = rekindle.Module(copy.deepcopy(model), rekindle.Options(fallback="error"))
    for count in (3, 4):
        x = torch.randn(count, 4, 5, generator=seeded(count))
        for ours, theirs in zip(_step(wrapped, x), _step(model, x), strict=True):
            torch.testing.assert_close(ours, theirs)
