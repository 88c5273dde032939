"""Models as people post them, with what they do to sizes: one export where nothing else is needed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from dynamic_models import Call, Model, x
from torch import nn
from torch.nn import functional as F


class GroupedExperts(nn.Module):
    """Each token goes through the expert that scores highest, in one grouped product. x: [tokens, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 8, 32)), nn.Parameter(torch.randn(4, 16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, expert = self.gate(x).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        ends = torch.histc(expert.float(), bins=4, min=0, max=3).cumsum(0).to(torch.int32)
        hidden, gate = F.grouped_mm(x[order], self.up, offs=ends).chunk(2, dim=-1)
        found = F.grouped_mm(hidden * gate.sigmoid(), self.down, offs=ends)
        return torch.zeros_like(x).index_copy(0, order, found) * weight.unsqueeze(-1)


def scaled(self: Model, x: torch.Tensor) -> torch.Tensor:
    """Powers and quotients of sizes with fractions."""
    return self.linear(x) * x.shape[-1] ** -0.5 / (x.shape[-1] / 2.5) * divmod(x.shape[-1], 2.5)[0]


def from_numbers(self: Model, x: torch.Tensor) -> torch.Tensor:
    """The constructor that torch.tensor replaced."""
    return self.linear(x) * torch.Tensor([1e2]).expand(x.shape[0], 1) + torch.Tensor(1, 8).fill_(0.5)


# The model, its calls, how many exports they take.
IDIOMS: dict[str, tuple[Callable[[], nn.Module], list[Call], int]] = {
    **{
        forward.__name__: ((lambda forward=forward: Model(forward)), [x(4, 6), x(7, 6), x(2, 6)], 1)
        for forward in (scaled, from_numbers)
    },
    **({"grouped experts": (GroupedExperts, [x(12, 8), x(5, 8), x(30, 8)], 1)} if hasattr(F, "grouped_mm") else {}),
}
