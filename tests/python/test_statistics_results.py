"""A subscription leaves results what they were of each other: the user may ask for the gradient of one by another."""

from __future__ import annotations

import copy
import pathlib
from typing import Any

import pytest
import rekindle
import torch
from rekindle.statistics import StatisticsSubscriber, subscribe
from rekindle.statistics.ancestors import ancestors
from statistics_support import made, records
from torch import nn


class Scoring(nn.Module):
    """Returns a loss, the scores that it is of, and what these are of; the scores twice."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.body(x).tanh()
        scores = self.head(hidden)
        return scores.square().mean(), {"scores": scores, "all": (hidden, scores)}


class Outer(nn.Module):
    """Hands on what a submodule returns."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Scoring()

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)


class Twice(nn.Module):
    """Returns a tensor twice, that no other is of."""

    def __init__(self) -> None:
        super().__init__()
        self.split = Doubling()

    def forward(self, x: torch.Tensor) -> Any:
        first, second = self.split(x)
        return first.sum(), {"scores": second, "all": (first, second)}


class Doubling(nn.Module):
    """Returns what its layer returns twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.layer(x).tanh()
        return y, y


def gradients(model: nn.Module) -> list[torch.Tensor]:
    """Returns the gradients of one result with respect to others, then what `retain_grad` keeps, then those of parameters."""
    torch.manual_seed(5)
    x = torch.randn(6, 4)
    loss, others = model(x)
    asked = [*torch.autograd.grad(loss, [others["scores"], others["all"][0]])]
    loss, others = model(x)
    kept = [others["scores"], others["all"][0]]
    for tensor in kept:
        tensor.retain_grad()
    model.zero_grad()
    (loss + others["scores"].mean() + others["all"][1].exp().sum()).backward()
    return [loss.detach(), *asked, *(one.grad for one in kept), *(one.grad for one in model.parameters())]


@pytest.mark.parametrize("wrap", (False, True))
@pytest.mark.parametrize("kind", (Scoring, Outer, Twice))
def test_gradients_of_results_are_those_without_a_subscription(kind: type[nn.Module], wrap: bool, tmp_path: pathlib.Path) -> None:
    net = made(kind)
    expected = gradients(copy.deepcopy(net))
    model = rekindle.Module(net) if wrap else net
    with subscribe(model, StatisticsSubscriber(tmp_path)):
        found = gradients(model)
    torch.testing.assert_close(found, expected)
    if wrap:
        assert (rekindle.status(model).eager_calls, rekindle.status(model).bypass) == (0, [])


@pytest.mark.parametrize("kind", (Scoring, Outer, Twice))
def test_a_graph_and_eager_show_the_same_tensors(kind: type[nn.Module], tmp_path: pathlib.Path) -> None:
    shown = []
    for name in ("eager", "graph"):
        net = made(kind)
        model = rekindle.Module(net) if name == "graph" else net
        with subscribe(model, StatisticsSubscriber(tmp_path / name)):
            model(torch.ones(6, 4))[0].backward()
        shown.append([(r["phase"], r["name"], r["output"], r["call"], r["shape"]) for r in records(tmp_path / name)])
    assert sorted(map(str, shown[1])) == sorted(map(str, shown[0]))
    outputs = {output for phase, name, output, *_ in shown[0] if (phase, name) == ("forward", "")}
    assert outputs == set(range(4))


def test_ancestors_are_what_others_were_computed_from() -> None:
    x = torch.randn(3, requires_grad=True)
    first = x.exp()
    second, other = first.sin().cos(), x.sin()
    left, right = (x * 2).split([1, 2])
    assert ancestors([second, first, other, x, torch.ones(3)]) == {id(first)}
    assert ancestors([left, right]) == set()
    assert ancestors([left.exp(), left, right]) == {id(left)}
    assert ancestors([first.detach(), first]) == set()
