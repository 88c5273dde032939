"""Backwards through some results of forwards whose sizes depend on data: plans of other parts hold values elsewhere."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence

import pytest
import rekindle
import torch
from torch import nn

WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "in place": lambda h: h.tanh(),
    "of a reshaped view": lambda h: h.view(8, 6).sigmoid().view(6, 8),
    "of a transposed view": lambda h: h.t().tanh().t(),
    "square and transposed": lambda h: h[:, :6].t().contiguous().t().sigmoid(),
    "several": lambda h: (h.tanh() * 2).sigmoid().relu(),
    "read twice": lambda h: h.tanh() + h.sigmoid(),
}


class Labelled(nn.Module):
    """Returns a loss of the rows that have a label, and all rows, as classifiers do that are given labels."""

    def __init__(self, way: Callable[[torch.Tensor], torch.Tensor], p: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way, self.drop = way, nn.Dropout(p)
        self.body, self.head = nn.Linear(8, 8), nn.LazyLinear(4)
        self.head(self.way(self.body(torch.zeros(6, 8))))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.way(self.body(x))
        scores = self.head(self.drop(hidden))
        kept = (labels >= 0).nonzero()[:, 0]
        return scores[kept].square().mean(), scores, hidden


def loss_of(results: Sequence[torch.Tensor], parts: Sequence[int]) -> torch.Tensor:
    return sum(results[part].square().sum() for part in parts)


PARTS = [parts for count in (1, 2, 3) for parts in itertools.combinations(range(3), count)]


@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("way", WAYS)
def test_parts_in_any_order(way: str, first: tuple[int, ...]) -> None:
    eager = Labelled(WAYS[way], 0.0 if "transposed" in way else 0.25)  # its mask would be drawn in another order
    module = copy.deepcopy(eager)
    wrapped = rekindle.Module(module, rekindle.Options(start="wait", fallback="error"))
    x, labels = torch.randn(6, 8), torch.tensor([0, 1, -100, 2, -100, 3])
    for step, parts in enumerate([first, *PARTS, first]):
        found = []
        for called, own in ((eager, eager), (wrapped, module)):
            torch.manual_seed(step)
            loss = loss_of(called(x, labels), parts)
            loss.backward(retain_graph=step % 3 == 0)
            if step % 3 == 0:
                loss.backward()
            found.append([None if one.grad is None else one.grad.clone() for one in own.parameters()])
            own.zero_grad()
        torch.testing.assert_close(found[1], found[0], msg=lambda text, parts=parts: f"{parts}: {text}")
