"""A list or dict in a result is the one that it is in eager, or the call runs in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from module_support import Twins, mlp, rows
from torch import nn


class Holds(nn.Module):
    """Has a list and a dict of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = mlp()
        self.names = ["a", "b"]
        self.stats: dict[str, Any] = {"calls": 3, "more": {"deep": 1}}


class ReturnsItsList(Holds):
    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x), self.names


class ReturnsItsDict(Holds):
    def forward(self, x: torch.Tensor) -> Any:
        return {"out": self.layer(x), "stats": self.stats}


class ReturnsADictInItsDict(Holds):
    def forward(self, x: torch.Tensor) -> Any:
        return [self.layer(x), self.stats["more"]]


class ReturnsACopy(Holds):
    def forward(self, x: torch.Tensor) -> Any:
        return {"out": self.layer(x), "stats": dict(self.stats, more=None), "names": list(self.names)}


def held(result: Any) -> Any:
    return result["stats"] if isinstance(result, dict) else result[1]


@pytest.mark.parametrize("kind", [ReturnsItsList, ReturnsItsDict, ReturnsADictInItsDict])
def test_what_the_module_holds_is_returned_itself(kind: type[Holds]) -> None:
    twins = Twins(kind())
    for step in range(2):
        mine = held(twins.call(rows(step)))
        assert any(mine is one for one in (twins.module.names, twins.module.stats, twins.module.stats["more"]))
    assert twins.reasons() == ["unsupported_output"]


def test_copies_are_new_at_each_call() -> None:
    twins = Twins(ReturnsACopy(), fallback="error")
    first, second = twins.call(rows()), twins.call(rows(1))
    assert first is not second and first["stats"] is not second["stats"] and first["names"] is not second["names"]
    assert first["stats"] is not twins.module.stats


class Passes(nn.Module):
    """Returns containers that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = mlp()

    def forward(self, batch: dict[str, Any], more: list[Any]) -> Any:
        return self.layer(batch["x"]), batch, more[0]


def test_what_was_given_is_returned_itself() -> None:
    twins = Twins(Passes())
    for step in range(2):
        batch, more = {"x": rows(step)}, [[rows()]]
        result = twins.wrapped(batch, more)
        assert result[1] is batch and result[2] is more[0]
    assert twins.reasons() == ["unsupported_output"]
