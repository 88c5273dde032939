"""Plain tensors below objects that private copies share with the live module: no graph keeps numbers of them that change."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import enum
import functools
import itertools
import logging
import operator
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import torch
from module_support import rows
from rekindle.export.copies.copied_kinds import kind_of
from rekindle.key.values.kinds import find_kind
from torch import nn

LARGE = (600, 512)  # more than a key digests, so that a graph binds it from the first export on


class Reader(nn.Module):
    """Multiplies by a tensor that it reads from what it holds."""

    def __init__(self, holder: Any, read: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.holder, self.read = nn.Linear(4, 512), holder, read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.read(self.holder)


class Plain:
    """Holds a tensor as an object of Python."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def method(self) -> torch.Tensor:
        return self.tensor


class Finalized(Plain):
    """Has a finalizer, which copies would run."""

    def __del__(self) -> None:
        pass


class Registered(Plain):
    """Says itself what it holds."""


class Queue(collections.deque):  # type: ignore[type-arg]
    """Is made of a class of C."""


class Space(types.SimpleNamespace):
    """Is made of a class of C."""


class Reference(weakref.ref):  # type: ignore[type-arg]
    """Is a weak reference with attributes."""


def variable(tensor: torch.Tensor) -> Any:
    return contextvars.ContextVar("variable", default=tensor)


def module(tensor: torch.Tensor) -> Any:
    made = types.ModuleType("settings_of_the_user")
    made.__file__, made.tensor = __file__, tensor  # type: ignore[attr-defined]
    return made


def member(tensor: torch.Tensor) -> Any:
    return enum.Enum("Kinds", {"ONLY": [tensor]}).ONLY  # type: ignore[attr-defined]


def class_attribute(tensor: torch.Tensor) -> Any:
    return type("Held", (), {"tensor": tensor, "__module__": __name__})


def closure(tensor: torch.Tensor) -> Any:
    return lambda: tensor


def default(tensor: torch.Tensor) -> Any:
    return lambda given=tensor: given


def finalized_below(tensor: torch.Tensor) -> Any:
    return [{"inner": Finalized([tensor])}]


@contextlib.contextmanager
def _entered(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    yield tensor


def referred(tensor: torch.Tensor) -> Any:
    made = Plain(tensor)
    tensor.keeps = made  # type: ignore[attr-defined]
    return made


def reference(tensor: torch.Tensor) -> Any:
    made = Reference(len)
    made.tensor = tensor  # type: ignore[attr-defined]
    return made


def values(tensor: torch.Tensor) -> Any:
    return weakref.WeakValueDictionary({"tensor": tensor})


def called(holder: Any) -> torch.Tensor:
    return holder()


def attribute(holder: Any) -> torch.Tensor:
    return holder.tensor


def first(holder: Any) -> torch.Tensor:
    return holder[0]


HOLDERS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "context variable": (variable, lambda holder: holder.get()),
    "module": (module, attribute),
    "names of a module": (lambda tensor: vars(module(tensor)), operator.itemgetter("tensor")),
    "enum member": (member, lambda holder: holder.value[0]),
    "class": (class_attribute, attribute),
    "instance": (lambda tensor: class_attribute(tensor)(), attribute),
    "closure": (closure, called),
    "default": (default, called),
    "partial": (lambda tensor: functools.partial(dict.get, {"tensor": tensor}, "tensor"), called),
    "method": (lambda tensor: Plain(tensor).method, called),
    "method of C": (lambda tensor: [tensor].__getitem__, lambda holder: holder(0)),
    "method caller": (lambda tensor: operator.methodcaller("mul", tensor), lambda holder: holder(torch.ones(1))),
    "property": (lambda tensor: property(default(tensor)), lambda holder: holder.fget()),
    "cached property": (lambda tensor: functools.cached_property(default(tensor)), lambda holder: holder.func()),
    "cached function": (lambda tensor: functools.lru_cache(closure(tensor)), called),
    "wrapped function": (lambda tensor: functools.lru_cache(closure(tensor)), lambda holder: holder.__wrapped__()),
    "static method": (lambda tensor: staticmethod(closure(tensor)), called),
    "slice": (lambda tensor: slice(tensor), lambda holder: holder.stop),
    "type expression": (lambda tensor: typing.Annotated[int, tensor], lambda holder: holder.__metadata__[0]),
    "context manager": (_entered, lambda holder: holder.args[0]),
    "finalized": (Finalized, attribute),
    "finalized in containers": (finalized_below, lambda holder: holder[0]["inner"].tensor[0]),
    "registered": (Registered, attribute),
    "adapter of a logger": (lambda tensor: logging.LoggerAdapter(logging.root, {"a": tensor}), lambda holder: holder.extra["a"]),
    "deque": (lambda tensor: Queue([tensor]), first),
    "namespace": (lambda tensor: Space(tensor=tensor), attribute),
    "weak reference": (lambda tensor: weakref.ref(referred(tensor)), lambda holder: holder().tensor),
    "reference with attributes": (reference, attribute),
    "weak values": (values, operator.itemgetter("tensor")),
    "read-only dict": (lambda tensor: types.MappingProxyType({"tensor": tensor}), operator.itemgetter("tensor")),
    "iterator": (itertools.repeat, next),
    "generated": (lambda tensor: (tensor for _ in itertools.count()), next),
}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """A type whose digest function a user has registered."""
    rekindle.register_digest(Registered, lambda held: held.tensor.sum().item())
    yield
    rekindle.register_digest(Registered, None)


def renewed(model: Reader, make: Callable[[torch.Tensor], Any], tensor: torch.Tensor, number: float) -> torch.Tensor:
    other = torch.full_like(tensor, number)
    model.holder = make(other)
    return other


def filled(model: Reader, make: Callable[[torch.Tensor], Any], tensor: torch.Tensor, number: float) -> torch.Tensor:
    return tensor.fill_(number)


@pytest.mark.parametrize("change", [renewed, filled], ids=lambda change: change.__name__)
@pytest.mark.parametrize("size", [(1,), LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", HOLDERS)
def test_every_call_has_the_numbers_of_now(name: str, size: tuple[int, ...], change: Callable[..., torch.Tensor]) -> None:
    make, read = HOLDERS[name]
    tensor = torch.ones(size)
    model, x = Reader(make(tensor), read), rows(0, LARGE[0])
    wrapped = rekindle.Module(model)
    for step, number in enumerate((1.0, 2.0, 2.0, 3.0, 4.0)):
        if step == 4:  # another that finds what the cache has
            wrapped = rekindle.Module(model)
        tensor = change(model, make, tensor, number)
        torch.testing.assert_close(wrapped(x), model(x))


OF_KEY_AND_COPY = [
    "context variable", "module", "enum member", "closure", "partial", "method caller", "property", "slice", "context manager",
    "finalized", "registered", "deque", "weak reference", "read-only dict",
]  # fmt: skip


@pytest.mark.parametrize("name", OF_KEY_AND_COPY)
def test_the_key_knows_what_copies_share(name: str) -> None:
    holder = HOLDERS[name][0](torch.ones(1))
    assert find_kind(type(holder)).shared or kind_of(holder) is not None
