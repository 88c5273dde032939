"""A module whose layers set attributes in their forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Set = Callable[[Any, torch.Tensor, torch.Tensor], Any]


class Layer(nn.Module):
    """Sets what `keep` does with itself, its input and what it computes."""

    def __init__(self, keep: Set) -> None:
        super().__init__()
        self.linear, self.keep = nn.Linear(4, 4), keep
        self.kept: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.linear(x))
        self.keep(self, x, y)
        return y


class Net(nn.Module):
    """Has two layers that set something."""

    def __init__(self, keep: Set) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = Layer(keep), Layer(keep)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def attributes(net: nn.Module) -> list[dict[str, Any]]:
    names = ("kept", "seen", "zeta", "alpha", "size")
    return [{name: vars(one)[name] for name in names if name in vars(one)} for one in (net.first, net.second)]
