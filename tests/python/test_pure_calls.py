"""Calls into C that compute from their arguments leave a forward its graph, by whatever class they are reached."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import assert_same, rows
from torch import nn


class Made(collections.OrderedDict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()

    def move_to_end(self, key: str, last: bool = True) -> None:
        super().move_to_end(key, last)


class Settings(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key.lower())

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key.lower(), default)


class Stack(list[torch.Tensor]):
    def append(self, value: torch.Tensor) -> None:
        super().append(value * 2)


class Ring(collections.deque[torch.Tensor]):
    def append(self, value: torch.Tensor) -> None:
        super().append(value + 1)


class Label(str):
    def upper(self) -> Label:
        return Label(super().upper())


class Places(tuple[int, ...]):
    @classmethod
    def of(cls, *items: int) -> Places:
        return cls(items)

    def index(self, *args: Any) -> int:
        return super().index(*args) + 1


class Calls(nn.Module):
    def __init__(self, call: Callable[[Calls, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.made = Made(relu=nn.ReLU, gelu=nn.GELU)
        self.settings = Settings(rate=2.0)
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self, self.linear(x))


def _stacked(module: Calls, x: torch.Tensor) -> torch.Tensor:
    stack = Stack()
    stack.append(x)
    return torch.cat(stack)


def _in_a_ring(module: Calls, x: torch.Tensor) -> torch.Tensor:
    ring = Ring(maxlen=1)
    ring.append(x)
    return ring[0]


def _reordered(module: Calls, x: torch.Tensor) -> torch.Tensor:
    made = Made(relu=nn.ReLU, gelu=nn.GELU)
    made.move_to_end("relu")
    return made[next(iter(made))](x)


CALLS: dict[str, Callable[[Calls, torch.Tensor], torch.Tensor]] = {
    "an item of an OrderedDict": lambda module, x: module.made["gelu"](x),
    "an order of an OrderedDict": _reordered,
    "an item of a dict": lambda module, x: x * module.settings.RATE,
    "an item of a dict that may be missing": lambda module, x: x * module.settings.get("Rate"),
    "a list": _stacked,
    "a deque": _in_a_ring,
    "a text": lambda module, x: x * len(Label("ab").upper()),
    "a tuple": lambda module, x: x * Places.of(1, 2).index(2),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_method_of_c_that_python_overrides_is_the_class_of_c_s(name: str) -> None:
    module = Calls(CALLS[name])
    wrapped = rekindle.Module(module, rekindle.Options(cache="off"))
    for _ in range(2):
        assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass
