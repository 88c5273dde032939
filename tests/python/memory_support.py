"""A small module whose memory tests count, and how they wrap one."""

from __future__ import annotations

import rekindle
import torch
from torch import nn

ROWS = (512, 32)
"""The shape of what `Net` reads."""


class Net(nn.Module):
    """Two layers and a loss; `twice` runs the first one again."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Linear(32, width)
        self.second = nn.Linear(width, 32)
        self.register_buffer("scale", torch.ones(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.sigmoid(self.first(x * self.scale))
        return self.second(hidden).square().mean()


def wrapped(module: nn.Module, **options: object) -> rekindle.Module:
    return rekindle.Module(module, rekindle.Options(log="error", **options))
