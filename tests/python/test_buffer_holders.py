"""A buffer that a list, a closure, a global or something else holds as well is one tensor wherever it is read or written."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from aliasing_support import Base, call, fill, load, run


class Held(Base):
    """A buffer that something else holds as well; holder: makes it of the buffer, get: takes the buffer out."""

    def __init__(self, holder: Callable[[Held], Any], get: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(4))
        self.holder = holder(self)
        self.get = get

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.get(self.holder)


class WritesHeld(Held):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.get(self.holder).add_(1)
        return self.linear(x) * self.mean


class Box:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def method(self) -> torch.Tensor:
        return self.tensor


def closure_of(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    def inner() -> torch.Tensor:
        return tensor

    return inner


HOLDERS: dict[str, tuple[Any, Any]] = {
    "list": (lambda self: [self.mean], lambda held: held[0]),
    "dict": (lambda self: {"mean": self.mean}, lambda held: held["mean"]),
    "tuple in a list": (lambda self: [(self.mean, 1)], lambda held: held[0][0]),
    "object": (lambda self: Box(self.mean), lambda held: held.tensor),
    "bound method": (lambda self: Box(self.mean).method, lambda held: held()),
    "closure": (lambda self: closure_of(self.mean), lambda held: held()),
    "partial": (lambda self: functools.partial(torch.clone, self.mean), lambda held: held()),
    "partial of a closure": (lambda self: functools.partial(closure_of(self.mean)), lambda held: held()),
    "namespace": (lambda self: types.SimpleNamespace(mean=self.mean), lambda held: held.mean),
    "attribute": (lambda self: self.__dict__.update(same=self.mean) or self.__dict__["same"], lambda held: held),
    "builtin method": (lambda self: self.mean.clone, lambda held: held()),
    "module": (lambda self: [self], lambda held: held[0].mean),
}  # fmt: skip
WRITABLE = [name for name in HOLDERS if name not in ("partial", "builtin method")]


@pytest.mark.parametrize("name", HOLDERS)
def test_whoever_holds_a_buffer_holds_the_graphs_input(name: str) -> None:
    holder, get = HOLDERS[name]
    model = run(lambda: Held(holder, get), [call, fill, call, load, call, call])
    assert rekindle.status(model).source == "export"
    assert rekindle.status(model).exports == 1
    other = run(lambda: Held(holder, get), [fill, load, call, fill, call])
    assert rekindle.status(other).exports <= 1  # functions made in a test keep other processes and models from hits, not wrong


@pytest.mark.parametrize("name", WRITABLE)
def test_a_write_through_whoever_holds_a_buffer_is_one_to_the_buffer(name: str) -> None:
    holder, get = HOLDERS[name]
    model = run(lambda: WritesHeld(holder, get), [call, call, fill, call, load, call])
    assert rekindle.status(model).source == "export"


GLOBAL: dict[str, torch.Tensor] = {}


def test_a_global_that_holds_a_buffer() -> None:
    class Reads(Base):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.ones(4))
            GLOBAL["mean"] = self.mean

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * GLOBAL["mean"] + self.mean

    class Writes(Reads):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean.add_(1)
            return self.linear(x) * GLOBAL["mean"]

    class WritesIt(Reads):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            GLOBAL["mean"].add_(1)
            return self.linear(x) * self.mean

    for make in (Reads, Writes, WritesIt):
        # One after the other, for there is one global.
        results = []
        for wrap in (lambda model: model, rekindle.Module):
            torch.manual_seed(0)
            model = wrap(make())
            steps = [call, call, fill, call, load, call, call]
            results.append([value.detach().clone() for i, step in enumerate(steps) if (value := step(model, i)) is not None])
            results[-1].append(model.mean.clone())
        torch.testing.assert_close(results[1], results[0], msg=lambda text, make=make: f"{make.__name__}: {text}")
