"""The module of which tests write to a buffer between its forward and its backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Writing(nn.Module):
    """Runs a function as its forward, which may read and write its buffers."""

    def __init__(self, forward: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.norm, self.do = nn.Linear(3, 3), nn.BatchNorm1d(3), forward
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.do(self, x)
