"""Sizes in the message of a torch._assert leave a graph right for all sizes; those in any other text do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from module_support import Twins, assert_same
from torch import _assert, nn


def _no_assert(condition: bool, text: str) -> int:
    return len(text) if condition else 0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def check(self, x: torch.Tensor) -> Any:
        return None

    def forward(self, x: torch.Tensor) -> Any:
        found = self.check(x)
        return self.linear(x) if found is None else (self.linear(x), found)


class OfShape(Net):
    def check(self, x: torch.Tensor) -> None:
        torch._assert(x.dim() == 2, f"expected two dimensions, got {x.shape}: {x.shape[0]!r} rows of {x.size(1):>4}")


class ByItself(Net):
    def check(self, x: torch.Tensor) -> None:
        _assert(len(x) > 0, f"{len(x)}")


class Returned(Net):
    def check(self, x: torch.Tensor) -> str:
        return f"{x.shape}"


class ResultUsed(Net):
    def check(self, x: torch.Tensor) -> Any:
        return torch._assert(x.dim() == 2, f"{x.shape}") or f"{len(x)}"


class OfAnother(Net):
    def check(self, x: torch.Tensor) -> int:
        torch._assert(_no_assert(True, f"{x.shape[0]}") > 0, "no rows")
        return _no_assert(True, f"{x.shape[0]}")


class Compared(Net):
    def check(self, x: torch.Tensor) -> None:
        torch._assert(f"{x.shape[0]}" != "7", "seven rows")


@pytest.mark.parametrize("net", [OfShape, ByItself])
def test_one_graph_serves_all_sizes(net: type[Net]) -> None:
    twins = Twins(net(), fallback="error")
    for rows in (3, 12, 1, 100):
        twins.call(torch.randn(rows, 4))
    assert twins.status.exports <= 2  # one row may be a graph of its own


@pytest.mark.parametrize("net", [Returned, ResultUsed, OfAnother, Compared])
def test_texts_that_are_used_are_eagers(net: type[Net]) -> None:
    twins = Twins(net())
    for rows in (3, 12, 100, 3):
        assert_same(twins.wrapped(x := torch.randn(rows, 4)), twins.eager(x))


def test_an_assertion_that_fails_shows_eagers_message() -> None:
    twins = Twins(OfShape())
    twins.call(torch.randn(3, 4))
    with pytest.raises(AssertionError, match=r"expected two dimensions, got torch.Size\(\[2, 3, 4\]\): 2 rows of    3"):
        twins.wrapped(torch.randn(2, 3, 4))
    comparing = Twins(Compared())
    comparing.call(torch.randn(3, 4))
    with pytest.raises(AssertionError, match="seven rows"):
        comparing.wrapped(torch.randn(7, 4))
