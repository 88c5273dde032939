"""Gradients reach parameters in the order in which eager hands them over: hooks, and what frees or reduces them, see it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rekindle
import torch
from torch import nn
from torch.utils._pytree import tree_leaves


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.middle, self.out = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 11)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.middle(self.embedding(tokens)).tanh())


class Branches(nn.Module):
    """Parameters that are used several times, and a branch that is computed first and used last."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
        self.early, self.late = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        aside = self.early(x)
        y = self.late(x * self.scale + self.shift)
        return y * self.scale + nn.functional.linear(x, self.late.weight) + aside


class Penalized(nn.Module):
    """Sets a scalar that leads to one of its layers only, as a penalty does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)
        self.penalty: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        self.penalty = hidden.square().mean()
        return self.last(self.norm(hidden).tanh()) + hidden


class PenaltyOfAWeight(nn.Module):
    """Returns a loss and a penalty: more results lead to a weight than to the bias of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        penalties = self.head.weight.square().sum(), self.body.weight.abs().sum()
        return self.head(self.body(x).tanh()).mean(), *penalties


def layer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3))


def normalized() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 4, bias=False), nn.Linear(4, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "linear": (lambda: nn.Linear(4, 3), lambda: torch.randn(5, 4)),
    "linear of three dimensions": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), lambda: torch.randn(2, 5, 4)),
    "convolutions": (convolutions, lambda: torch.randn(2, 3, 8, 8)),
    "layer norm": (normalized, lambda: torch.randn(5, 4)),
    "tied": (Tied, lambda: torch.randint(0, 11, (2, 5))),
    "branches": (Branches, lambda: torch.randn(5, 4)),
    "penalty": (Penalized, lambda: torch.randn(5, 4)),
    "penalty of a weight": (PenaltyOfAWeight, lambda: torch.randn(2, 5, 4)),
    "transformer": (lambda: nn.Sequential(layer(), layer(norm_first=True)), lambda: torch.randn(2, 5, 8)),
    "more completions than nodes": (lambda: nn.Sequential(*[nn.Linear(2, 2) for _ in range(150)]), lambda: torch.randn(3, 2)),
    "lstm": (lambda: nn.LSTM(4, 6, 2), lambda: torch.randn(3, 2, 4)),
}


def order_of_hooks(called: nn.Module, module: nn.Module, x: torch.Tensor, autocast: bool) -> list[str]:
    """The names of parameters as their post-accumulate-grad hooks run in a backward."""
    order: list[str] = []
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        result = called(x)
    sum(each.square().sum() for each in tree_leaves(result)).backward()
    return order


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_hooks_run_in_the_order_of_eager(tmp_path: Path, name: str, autocast: bool) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), inputs()
    expected = order_of_hooks(twin := copy.deepcopy(model), twin, x, autocast)
    assert sorted(expected) == sorted(name for name, _ in model.named_parameters())
    for source in ("export", "local"):
        module = copy.deepcopy(model)
        wrapped = rekindle.Module(module, rekindle.Options(cache_dir=tmp_path, fallback="error", log="off"))
        assert order_of_hooks(wrapped, module, x, autocast) == expected
        assert rekindle.status(wrapped).source == source
