"""A module whose forward reads from outside of it: what the tests of changes change."""

from __future__ import annotations

import os
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

SCALE = 2.0
TABLE = {"shift": 1.0}
OFFSETS = torch.arange(4.0)


def helper(x: torch.Tensor) -> torch.Tensor:
    return x + 1


class Settings:
    POWER = 2


class Reader(nn.Module):
    GAIN = 1.5
    LIMITS: ClassVar[dict[str, float]] = {"min": -9.0, "max": 9.0}

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.mask = torch.ones(4)  # neither a parameter nor a buffer: a constant of the graph
        self.settings = {"rate": 1.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(helper(self.linear(x))) * SCALE + TABLE["shift"]
        y = y * self.mask * self.GAIN + OFFSETS + self.settings["rate"]
        if os.environ.get("CHANGING_MODEL") == "on":
            y = y * 3
        return y.clamp(**self.LIMITS) * Settings.POWER + torch.full((4,), 0.5)
