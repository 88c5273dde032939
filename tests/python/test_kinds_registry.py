"""Tests made from the registry of kinds: whatever can be set on, taken from or put into a value of a registered type is seen by a
guard, changes the text of the value, and is put back."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import datetime
import decimal
import fractions
import functools
import io
import operator
import os
import pathlib
import re
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from kinds_support import Change, Thing, deleted, guarded, set_to
from rekindle.key.values import kinds as _every_kind  # noqa: F401  which fills the registry
from rekindle.key.values.walker import IMMUTABLE, kinds, value_text
from torch._library.custom_ops import CustomOpDef


def _function(k: float = 1.0) -> float:
    return k


def _closure(k: Any) -> Callable[[], Any]:
    return lambda: k


@contextlib.contextmanager
def _managed(k: Any) -> Iterator[Any]:
    yield k


def _cached() -> Any:
    function = functools.lru_cache(maxsize=4)(_closure(1.0))
    function()
    return function


def _thing(make: Callable[[], Any] = Thing) -> Any:
    value = make()
    value.k = 1.0
    return value


_ITEMS: dict[str, Change] = {
    "replaced": lambda held: held.__setitem__("a", 3.0),
    "of another type": lambda held: held.__setitem__("a", 1),
    "added": lambda held: held.__setitem__("c", 3.0),
    "removed": lambda held: held.pop("a"),
    "reordered": lambda held: held.__setitem__("a", held.pop("a")),
    "renamed": lambda held: (held.clear(), held.update(c=1.0, b=2.0)),
    "cleared": lambda held: held.clear(),
}
_SEQUENCE: dict[str, Change] = {
    "replaced": lambda held: held.__setitem__(0, 3.0),
    "of another type": lambda held: held.__setitem__(0, True),
    "added": lambda held: held.append(3.0),
    "removed": lambda held: held.pop(),
    "reordered": lambda held: held.reverse(),
    "cleared": lambda held: held.clear(),
}
_ATTRIBUTES: dict[str, Change] = {
    "attribute replaced": set_to("k", 3.0),
    "attribute added": set_to("other", 3.0),
    "attribute removed": deleted("k"),
}
_CONTEXT: contextvars.ContextVar[float] = contextvars.ContextVar("registry")

# By type: how a value is made, and all that can be done to it.
SAMPLES: dict[Any, tuple[Callable[[], Any], dict[str, Change]]] = {
    dict: (lambda: {"a": 1.0, "b": 2.0}, _ITEMS),
    collections.OrderedDict: (lambda: _thing(lambda: collections.OrderedDict(a=1.0, b=2.0)), {**_ITEMS, **_ATTRIBUTES}),
    collections.Counter: (lambda: _thing(lambda: collections.Counter(a=1.0, b=2.0)), {**_ITEMS, **_ATTRIBUTES}),
    collections.defaultdict: (
        lambda: collections.defaultdict(int, a=1.0, b=2.0), {**_ITEMS, "default": set_to("default_factory", float)}
    ),
    types.MappingProxyType: (
        lambda: types.MappingProxyType({"a": Thing()}), {"behind it": lambda held: set_to("k", 3.0)(held["a"])}
    ),
    list: (lambda: [1.0, 2.0], _SEQUENCE),
    collections.deque: (lambda: collections.deque([1.0, 2.0]), _SEQUENCE),
    set: (lambda: {1.0, 2.0}, {"added": lambda held: held.add(3.0), "removed": lambda held: held.pop()}),
    bytearray: (lambda: bytearray(b"ab"), {"item": lambda held: held.__setitem__(0, 1), "length": lambda held: held.append(1)}),
    types.FunctionType: (
        lambda: _thing(lambda: types.FunctionType(_function.__code__, globals(), "f", (1.0,))),
        {
            **_ATTRIBUTES,
            "defaults": set_to("__defaults__", (3.0,)),
            "keyword defaults": set_to("__kwdefaults__", {"k": 3.0}),
            "code": set_to("__code__", _closure.__code__.replace(co_freevars=(), co_cellvars=())),
            "name": set_to("__name__", "g"),
            "qualified name": set_to("__qualname__", "g"),
        },
    ),
    functools.partial: (lambda: _thing(lambda: functools.partial(_function, 1.0)), _ATTRIBUTES),
    functools._lru_cache_wrapper: (lambda: _thing(_cached), _ATTRIBUTES),
    property: (lambda: property(_function), {"made anew": lambda held: held.__init__(_closure)}),
    staticmethod: (lambda: staticmethod(_function), {"made anew": lambda held: held.__init__(_closure)}),
    classmethod: (lambda: classmethod(_function), {"made anew": lambda held: held.__init__(_closure)}),
    functools.cached_property: (
        lambda: _thing(lambda: functools.cached_property(_function)), {**_ATTRIBUTES, "function": set_to("func", _closure)}
    ),
    weakref.ref: (lambda: weakref.ref(_function), {}),
    contextvars.ContextVar: (lambda: _CONTEXT, {"set": lambda held: held.set(3.0)}),
    types.SimpleNamespace: (lambda: types.SimpleNamespace(k=1.0), _ATTRIBUTES),
    contextlib._GeneratorContextManager: (
        lambda: _thing(lambda: _managed(1.0)), {**_ATTRIBUTES, "argument": set_to("args", (3.0,))}
    ),
    type(threading.Lock()): (threading.Lock, {"taken": lambda held: held.acquire()}),
    type(threading.RLock()): (threading.RLock, {"taken": lambda held: held.acquire()}),
    fractions.Fraction: (lambda: fractions.Fraction(1, 2), {"numerator": set_to("_numerator", 3)}),
    pathlib.PurePosixPath: (lambda: pathlib.PurePosixPath("a"), {"text": set_to("_str", "b")}),
    torch.Tensor: (
        lambda: _thing(lambda: torch.ones(2, 2)),
        {
            **_ATTRIBUTES,
            "item": lambda held: held.fill_(3.0),
            "sizes": lambda held: held.resize_(1, 4),
            "strides": lambda held: held.t_(),
        },
    ),
    numpy.ndarray: (
        lambda: numpy.ones((1, 4), numpy.float32),
        {
            "item": lambda held: held.fill(3.0),
            "shape": set_to("shape", (4, 1)),
            "dtype": set_to("dtype", numpy.int32),
            "bytes of another order": set_to("dtype", numpy.dtype(">f4")),
            "flag": lambda held: held.setflags(write=False),
        },
    ),
}  # fmt: skip
# What has kinds of its own in other tests, or is named only.
_ELSEWHERE = {CustomOpDef, torch.nn.Parameter, torch.nn.Buffer, io.TextIOWrapper}
_NAMED = {type, types.ModuleType, type(os.environ), torch._ops.OpOverload, torch._ops.OpOverloadPacket, staticmethod, classmethod}


@pytest.mark.parametrize(("kind", "change"), [(kind, name) for kind in SAMPLES for name in SAMPLES[kind][1]])
def test_a_change_is_seen_and_put_back(kind: type, change: str) -> None:
    make, changes = SAMPLES[kind]
    value = contextvars.copy_context().run(make)

    def run() -> None:
        guard, text, cells = guarded(value)
        before = [(held, one.take(held), one) for held, one in cells if one.put_back is not None]
        assert guard.check()
        changes[change](value)
        assert not guard.check()
        assert value_text("value", value) != text or change == "attribute added"
        if isinstance(value, fractions.Fraction | pathlib.PurePath):
            return  # what no forward does to them
        if isinstance(value, torch.Tensor | numpy.ndarray) and change in ("sizes", "strides", "flag"):
            return  # a tensor's own layout is not state of the user's
        for held, parts, one in before:
            if not one.same(one.take(held), parts):
                assert one.put_back is not None
                one.put_back(held, parts)
        if kind not in (contextvars.ContextVar, types.MappingProxyType, type(threading.Lock()), type(threading.RLock())):
            assert value_text("value", value) == text

    contextvars.copy_context().run(run)


def test_every_kind_is_here_or_cannot_change() -> None:
    for kind, known in kinds.items():
        if (
            kind in SAMPLES
            or issubclass(kind, pathlib.PurePath)
            or kind in _ELSEWHERE
            or kind in _NAMED
            or kind.__module__.startswith("rekindle.")
        ):
            continue
        assert known.cells == IMMUTABLE, f"{kind} can change, and no test changes it"


UNCHANGEABLE: list[Any] = [
    None, True, 1, 1.0, "a", b"a", 1j, range(2), slice(1), ..., NotImplemented, (1,), frozenset({1}), object(),
    decimal.Decimal(1), datetime.date(2000, 1, 1), datetime.time(1), datetime.datetime(2000, 1, 1), datetime.timedelta(1),
    datetime.UTC, re.compile("a"), operator.itemgetter(1), torch.float32, torch.Size([1]),
    torch.device("cpu"), list[int], int | str, _function.__code__, len, uuid.UUID(int=1), Thing().__init__,
]  # fmt: skip


# What an object is called and described as; the name of a property can be set since Python 3.13.
_TEXTS = ("__class__", "__doc__", "__module__", "__name__")


@pytest.mark.parametrize("value", UNCHANGEABLE, ids=lambda value: type(value).__name__)
def test_what_has_no_cells_cannot_be_changed(value: Any) -> None:
    assert kinds[type(value)].cells == IMMUTABLE
    writable = (name for name in dir(value) if not callable(getattr(value, name, None)) and name not in _TEXTS)
    for name in [*writable, "k"]:
        with pytest.raises((AttributeError, TypeError, NotImplementedError)):
            setattr(value, name, getattr(value, name, None))
