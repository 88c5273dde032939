"""A graph raises for the same data as eager, also where it computes what the forward drops."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
import torch.nn.functional as F
from torch import nn

GOOD, BAD = torch.tensor([1, 2]), torch.tensor([1, 9])


class Dropping(nn.Module):
    """Computes something of classes, drops it, and returns a product."""

    def __init__(self, computed: Callable[[Any, torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.sin(torch.arange(12.0)).view(4, 3))
        self.table = nn.Embedding(4, 3)
        self.computed = computed

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        self.computed(self, x, classes)
        return F.dropout(x @ self.weight, 0.5)


class Within(nn.Module):
    """Drops the result of a lookup in a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Dropping(lambda self, x, classes: self.table(classes))

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return self.inner(x, classes) * 2


def _in_no_grad(self: Dropping, x: torch.Tensor, classes: torch.Tensor) -> None:
    with torch.no_grad():
        self.weight[classes].mul_(2)


def _written(self: Dropping, x: torch.Tensor, classes: torch.Tensor) -> None:
    self.weight.detach().clone()[classes] = 1.0


DROPPED: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], Any]] = {
    "a loss": lambda self, x, classes: F.cross_entropy(x @ self.weight, classes),
    "a loss of probabilities": lambda self, x, classes: F.binary_cross_entropy(
        classes.clamp(max=2) / 2 + classes // 9, x.sigmoid()[0, :2]
    ),
    "a lookup": lambda self, x, classes: self.table(classes).sum().detach(),
    "a shape": lambda self, x, classes: self.table(classes).shape[0],
    "an index": lambda self, x, classes: self.weight[classes],
    "in no_grad": _in_no_grad,
    "a write": _written,
    "gather": lambda self, x, classes: x.gather(1, classes[:, None]),
    "one hot": lambda self, x, classes: F.one_hot(classes, 4),
    "scatter": lambda self, x, classes: x.scatter(1, classes[:, None], 1.0),
    "a factorization": lambda self, x, classes: torch.linalg.cholesky(torch.eye(2) * (4 - classes.max())),
    "what another one reads": lambda self, x, classes: self.weight[self.table(classes).argmax(-1)],
}


def outcome(module: nn.Module, classes: torch.Tensor) -> tuple[Any, ...]:
    torch.manual_seed(0)
    module.zero_grad()
    try:
        y = module(torch.ones(2, 4), classes)
        y.sum().backward()
    except (RuntimeError, IndexError) as error:
        return type(error), str(error)
    return y.tolist(), [p.grad is not None and p.grad.tolist() for p in module.parameters()], torch.get_rng_state().tolist()


def assert_same(module: nn.Module, cache_dir: pathlib.Path) -> None:
    eager, wrapped = copy.deepcopy(module), rekindle.Module(module, rekindle.Options(cache_dir=cache_dir, log="off"))
    for classes in (GOOD, GOOD.flip(0), BAD, GOOD):
        assert outcome(wrapped, classes) == outcome(eager, classes)
    assert isinstance(outcome(wrapped, BAD)[0], type)
    assert rekindle.status(wrapped).source == "export"


@pytest.mark.parametrize("name", sorted(DROPPED))
def test_data_that_eager_refuses_is_refused(name: str, tmp_path: pathlib.Path) -> None:
    assert_same(Dropping(DROPPED[name]), tmp_path)


def test_it_is_refused_within_a_submodule(tmp_path: pathlib.Path) -> None:
    assert_same(Within(), tmp_path)


def test_what_cannot_raise_is_left_out(tmp_path: pathlib.Path) -> None:
    models: list[bytes] = []
    module = Dropping(lambda self, x, classes: torch.tanh(x @ self.weight))
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=tmp_path, log="off"))
    wrapped._runtime.on_graph = lambda mode, model: models.append(model)
    wrapped(torch.ones(2, 4), GOOD)
    assert len(models) == 1 and b"Tanh" not in models[0]
