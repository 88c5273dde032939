"""Rarer kinds of Python state that a forward reads: a change in the process is followed at the next call, and by a new
module over the same cache, as eager follows it."""

from __future__ import annotations

import abc
import array
import collections
import colorsys
import contextvars
import enum
import functools
import importlib
import logging
import pathlib
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import rekindle
import torch
from reader_support import Holder, assert_a_change_is_followed
from rekindle.key.values.cells import ITEMS
from torch import nn

SETTING: contextvars.ContextVar[float] = contextvars.ContextVar("setting", default=1.0)
HIDDEN = {"k": 1.0}


class Slotted:
    __slots__ = ("k",)

    def __init__(self, k: float) -> None:
        self.k = k


class Plain:
    def __init__(self, k: Any) -> None:
        self.k = k


class Once:
    def scale(self) -> float:
        return 1.0


class Thrice:
    def scale(self) -> float:
        return 3.0


class Derived(Once):
    pass


class Meta(type):
    K = 1.0


class OfMeta(metaclass=Meta):
    pass


class Abstract(abc.ABC):  # noqa: B024
    pass


class Concrete:
    pass


class Colour(enum.Enum):
    RED = 1


class SlottedModule(nn.Module):
    __slots__ = ("gain",)


class Twice(nn.Identity):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


class OwnModule(types.ModuleType):
    k = 3.0


class OwnList(list):  # type: ignore[type-arg]
    pass


@functools.singledispatch
def dispatched(_: Any) -> float:
    return 1.0


def helper() -> float:
    return getattr(helper, "k", 1.0)


def thrice(*_: float) -> tuple[float]:
    return (3.0,)


def _with(value: Any, **attributes: Any) -> Any:
    for name, item in attributes.items():
        setattr(value, name, item)
    return value


Read = Callable[[Any], Any]
# name: (what the attribute `held` is at first, what the forward makes of it, how it is changed)
CHANGES: dict[str, tuple[Callable[[], Any], Read, Callable[[Any], Any]]] = {
    "slot": (lambda: Slotted(1.0), lambda held: held.k, lambda held: setattr(held, "k", 3.0)),
    "deleted slot": (lambda: Slotted(1.0), lambda held: getattr(held, "k", 3.0), lambda held: delattr(held, "k")),
    "item of a deque": (lambda: collections.deque([1.0]), lambda held: held[0], lambda held: held.__setitem__(0, 3.0)),
    "length of a deque": (lambda: collections.deque([1.0]), len, lambda held: held.append(3.0)),
    "object in a deque": (
        lambda: collections.deque([Plain(1.0)]), lambda held: held[0].k, lambda held: setattr(held[0], "k", 3.0)
    ),
    "bytearray": (lambda: bytearray(b"\1"), lambda held: held[0], lambda held: held.__setitem__(0, 3)),
    "array": (lambda: array.array("d", [1.0]), lambda held: held[0], lambda held: held.__setitem__(0, 3.0)),
    "context variable": (lambda: None, lambda _: SETTING.get(), lambda _: SETTING.set(3.0)),
    "order of an OrderedDict": (
        lambda: collections.OrderedDict(a=1.0, b=3.0),
        lambda held: next(iter(held.values())),
        lambda held: held.move_to_end("a"),
    ),
    "behind a mapping proxy": (lambda: types.MappingProxyType(HIDDEN), lambda held: held["k"], lambda _: HIDDEN.update(k=3.0)),
    "attribute of a function": (lambda: None, lambda _: helper(), lambda _: setattr(helper, "k", 3.0)),
    "attribute of a partial": (
        lambda: _with(functools.partial(helper), k=1.0), lambda held: held.k, lambda held: setattr(held, "k", 3.0)
    ),
    "attribute of an enum member": (
        lambda: _with(Colour.RED, k=1.0), lambda held: held.k, lambda held: setattr(held, "k", 3.0)
    ),
    "attribute of a list": (lambda: _with(OwnList([1]), k=1.0), lambda held: held.k, lambda held: setattr(held, "k", 3.0)),
    "attribute of a tensor": (
        lambda: [_with(torch.ones(1), k=1.0)], lambda held: held[0].k, lambda held: setattr(held[0], "k", 3.0)
    ),
    "tensor that now requires a gradient": (lambda: [torch.ones(1)], lambda held: held[0], lambda held: held[0].requires_grad_()),
    "class of an object": (Once, lambda held: held.scale(), lambda held: setattr(held, "__class__", Thrice)),
    "class of a module": (nn.Identity, lambda held: held(torch.ones(1)), lambda held: setattr(held, "__class__", Twice)),
    "bases of a class": (Derived, lambda held: held.scale(), lambda _: setattr(Derived, "__bases__", (Thrice,))),
    "attribute of a metaclass": (lambda: None, lambda _: OfMeta.K, lambda _: setattr(Meta, "K", 3.0)),
    "abstract class": (
        Concrete, lambda held: 3.0 if isinstance(held, Abstract) else 1.0, lambda _: Abstract.register(Concrete)
    ),
    "single dispatch": (lambda: None, lambda _: dispatched(1.0), lambda _: dispatched.register(float, lambda _: 3.0)),
    "slot of a module": (
        lambda: _with(SlottedModule(), gain=1.0), lambda held: held.gain, lambda held: SlottedModule.gain.__set__(held, 3.0)  # type: ignore[attr-defined]
    ),
    "list in a module made by hand": (
        lambda: _with(types.ModuleType("made"), rates=[1.0]),
        lambda held: held.rates[0],
        lambda held: held.rates.__setitem__(0, 3.0),
    ),
    "module in a module": (
        lambda: _with(types.ModuleType("made"), inner=_with(types.ModuleType("inner"), k=1.0)),
        lambda held: held.inner.k,
        lambda held: setattr(held.inner, "k", 3.0),
    ),
    "list in a module of a class": (
        lambda: _with(OwnModule("made"), rates=[1.0]), lambda held: held.rates[0], lambda held: held.rates.__setitem__(0, 3.0)
    ),
    "class of a Python module": (
        lambda: types.ModuleType("made"), lambda held: getattr(held, "k", 1.0), lambda held: setattr(held, "__class__", OwnModule)
    ),
    "class of a library": (
        lambda: torch.distributions.VonMises,
        lambda held: 1.0 + held.has_rsample,
        lambda held: setattr(held, "has_rsample", True),
    ),
    "module of a library": (
        lambda: colorsys, lambda held: held.rgb_to_yiq(1, 1, 1)[0], lambda held: setattr(held, "rgb_to_yiq", thrice)
    ),
    "attribute of a logger": (
        lambda: _with(logging.getLogger("live"), k=1.0), lambda held: held.k, lambda held: setattr(held, "k", 3.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_followed(name: str, tmp_path: pathlib.Path) -> None:
    make, read, change = CHANGES[name]
    matters = name != "tensor that now requires a gradient"
    assert_a_change_is_followed(Holder(make(), read), change, tmp_path, matters)


@pytest.mark.parametrize("dtype", ["f4", "c16", "?", "i2", "U3"])
@pytest.mark.parametrize(
    "view", [lambda a: a.T[::2], lambda a: a[::-1], lambda a: a[:, 1]], ids=["strided", "reversed", "column"]
)
def test_a_guard_compares_the_items_of_a_view_and_no_others(dtype: str, view: Callable[[Any], Any]) -> None:
    array_ = numpy.arange(48).reshape(8, 6).astype(dtype)
    seen = view(array_)
    guard = rekindle._native.Guard([], [], [], [(seen, "bytes")])
    others = numpy.ones_like(array_, dtype=bool)
    view(others)[...] = False
    array_[others] = array_[0, 0] if dtype != "?" else True
    assert guard.check()
    for index in numpy.ndindex(seen.shape):
        before = seen[index].copy()
        seen[index] = (not before) if dtype == "?" else 1000
        assert guard.check() == (seen[index] == before), index
        seen[index] = before
    assert guard.check()


def test_what_was_imported_stays_in_its_package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "held_package").mkdir()
    for name in ("__init__.py", "part.py"):
        (tmp_path / "held_package" / name).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    names = vars(importlib.import_module("held_package"))
    before = ITEMS.take(names)
    names["part"] = importlib.import_module("held_package.part")
    names["more"] = 1.0
    ITEMS.put_back(names, before)
    assert "part" in names and "more" not in names
