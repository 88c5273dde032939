"""Modules whose result depends on one thing that they read, and what a change of it must do."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import rekindle
import torch
from module_support import assert_same, rows
from torch import nn


class Reader(nn.Module):
    """Scales its result by what `read` finds, given the module and the input."""

    def __init__(self, read: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.read = read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (1.0 + float(self.read(self, x)))


def reader(read: Callable[[Any, torch.Tensor], Any]) -> Reader:
    """The same parameters each time."""
    torch.manual_seed(1)
    return Reader(read)


def compare_reads(read: Callable[[Any, torch.Tensor], Any], between: list[Callable[[], Any]], inputs: list[Any]) -> Any:
    """The wrapped module, after it did as its twin in each state of the world, twice."""
    module, wrapped = reader(read), rekindle.Module(reader(read), rekindle.Options(log="error"))
    for enter in between:
        enter()
        for make in inputs:
            for _ in range(2):
                x, y = make(), make()
                assert_same(wrapped(x), module(y))
    return wrapped


class Holder(nn.Module):
    """Scales its result by what `read` finds in a value."""

    def __init__(self, held: Any, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.held = held
        self.read = read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.read(self.held)


def assert_a_change_is_followed(
    module: Holder, change: Callable[[Any], Any], cache: pathlib.Path, matters: bool = True
) -> rekindle.Status:
    """A call after `change` is as eager's, of this wrapped module and of another one with its cache; the status before.

    matters: whether the change changes the result.
    """
    x = rows()
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(cache)))
    before = module(x)
    for _ in range(2):
        assert_same(wrapped(x), before)
    status = rekindle.status(wrapped)
    change(module.held)
    after = module(x)
    assert_same(wrapped(x), after)
    assert wrapped(x).requires_grad
    assert_same(rekindle.Module(module, rekindle.Options(cache_dir=str(cache)))(x), after)
    assert not matters or not torch.equal(before, after)
    return status
