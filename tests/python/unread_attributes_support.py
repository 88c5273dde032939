"""A module with attributes of which its forward reads what it is told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Read = Callable[[Any], float]


class Keeper(nn.Module):
    """Keeps `scale`, which `read` gets at, and `saved`, which has no digest and which nothing reads."""

    def __init__(self, read: Read) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.read = nn.Linear(4, 4), read
        self.scale: Any = [1.0]
        self.saved: list[torch.Tensor] = []
        self.count = 0

    @property
    def doubled(self) -> float:
        return 2 * self.scale[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.read(self)


def rows(step: int) -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(step))


def assert_as_eager(module: nn.Module, wrapped: nn.Module, x: torch.Tensor) -> torch.Tensor:
    expected = module.forward(x)
    result = wrapped(x)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
    return result
