"""Tests made from the registry of kinds: whatever can be set on, taken from or put into a value of a registered type is seen by a
guard, changes the text of the value, and is put back."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import datetime
import decimal
import enum
import fractions
import functools
import operator
import os
import pathlib
import re
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from fingerprint_support import load
from rekindle import _native
from rekindle.key.values import kinds as _every_kind  # noqa: F401  which fills the registry
from rekindle.key.values.cells import Cells
from rekindle.key.values.walker import IMMUTABLE, Walker, kinds, value_text
from torch._library.custom_ops import CustomOpDef

Change = Callable[[Any], Any]


def _function(k: float = 1.0) -> float:
    return k


def _closure(k: Any) -> Callable[[], Any]:
    return lambda: k


@contextlib.contextmanager
def _managed(k: Any) -> Iterator[Any]:
    yield k


class Thing:
    def __init__(self) -> None:
        self.k = 1.0


def _set(name: str, value: Any) -> Change:
    return lambda held: setattr(held, name, value)


def _delete(name: str) -> Change:
    return lambda held: delattr(held, name)


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
    "attribute replaced": _set("k", 3.0),
    "attribute added": _set("other", 3.0),
    "attribute removed": _delete("k"),
}
_CONTEXT: contextvars.ContextVar[float] = contextvars.ContextVar("registry")

# By type: how a value is made, and all that can be done to it.
SAMPLES: dict[Any, tuple[Callable[[], Any], dict[str, Change]]] = {
    dict: (lambda: {"a": 1.0, "b": 2.0}, _ITEMS),
    collections.OrderedDict: (lambda: _thing(lambda: collections.OrderedDict(a=1.0, b=2.0)), {**_ITEMS, **_ATTRIBUTES}),
    collections.Counter: (lambda: _thing(lambda: collections.Counter(a=1.0, b=2.0)), {**_ITEMS, **_ATTRIBUTES}),
    collections.defaultdict: (
        lambda: collections.defaultdict(int, a=1.0, b=2.0), {**_ITEMS, "default": _set("default_factory", float)}
    ),
    types.MappingProxyType: (
        lambda: types.MappingProxyType({"a": Thing()}), {"behind it": lambda held: _set("k", 3.0)(held["a"])}
    ),
    list: (lambda: [1.0, 2.0], _SEQUENCE),
    collections.deque: (lambda: collections.deque([1.0, 2.0]), _SEQUENCE),
    set: (lambda: {1.0, 2.0}, {"added": lambda held: held.add(3.0), "removed": lambda held: held.pop()}),
    bytearray: (lambda: bytearray(b"ab"), {"item": lambda held: held.__setitem__(0, 1), "length": lambda held: held.append(1)}),
    types.FunctionType: (
        lambda: _thing(lambda: types.FunctionType(_function.__code__, globals(), "f", (1.0,))),
        {
            **_ATTRIBUTES,
            "defaults": _set("__defaults__", (3.0,)),
            "keyword defaults": _set("__kwdefaults__", {"k": 3.0}),
            "code": _set("__code__", _closure.__code__.replace(co_freevars=(), co_cellvars=())),
            "name": _set("__name__", "g"),
            "qualified name": _set("__qualname__", "g"),
        },
    ),
    functools.partial: (lambda: _thing(lambda: functools.partial(_function, 1.0)), _ATTRIBUTES),
    functools._lru_cache_wrapper: (lambda: _thing(_cached), _ATTRIBUTES),
    property: (lambda: property(_function), {"made anew": lambda held: held.__init__(_closure)}),
    staticmethod: (lambda: staticmethod(_function), {"made anew": lambda held: held.__init__(_closure)}),
    classmethod: (lambda: classmethod(_function), {"made anew": lambda held: held.__init__(_closure)}),
    functools.cached_property: (
        lambda: _thing(lambda: functools.cached_property(_function)), {**_ATTRIBUTES, "function": _set("func", _closure)}
    ),
    weakref.ref: (lambda: weakref.ref(_function), {}),
    contextvars.ContextVar: (lambda: _CONTEXT, {"set": lambda held: held.set(3.0)}),
    types.SimpleNamespace: (lambda: types.SimpleNamespace(k=1.0), _ATTRIBUTES),
    contextlib._GeneratorContextManager: (
        lambda: _thing(lambda: _managed(1.0)), {**_ATTRIBUTES, "argument": _set("args", (3.0,))}
    ),
    type(threading.Lock()): (threading.Lock, {"taken": lambda held: held.acquire()}),
    type(threading.RLock()): (threading.RLock, {"taken": lambda held: held.acquire()}),
    fractions.Fraction: (lambda: fractions.Fraction(1, 2), {"numerator": _set("_numerator", 3)}),
    pathlib.PurePosixPath: (lambda: pathlib.PurePosixPath("a"), {"text": _set("_str", "b")}),
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
            "shape": _set("shape", (4, 1)),
            "dtype": _set("dtype", numpy.int32),
            "bytes of another order": _set("dtype", numpy.dtype(">f4")),
            "flag": lambda held: held.setflags(write=False),
        },
    ),
}  # fmt: skip
# What has kinds of its own in other tests, or is named only.
_ELSEWHERE = {CustomOpDef, torch.nn.Parameter, torch.nn.Buffer}
_NAMED = {type, types.ModuleType, type(os.environ), torch._ops.OpOverload, torch._ops.OpOverloadPacket, staticmethod, classmethod}


def _guard(value: Any) -> tuple[Any, str, list[tuple[Any, Cells]]]:
    walker = Walker()
    walker.walk("value", value)
    cells = [(held, one.comparison) for held, one in walker.cells]
    return _native.Guard([], [], [], cells), value_text("value", value), walker.cells


@pytest.mark.parametrize(("kind", "change"), [(kind, name) for kind in SAMPLES for name in SAMPLES[kind][1]])
def test_a_change_is_seen_and_put_back(kind: type, change: str) -> None:
    make, changes = SAMPLES[kind]
    value = contextvars.copy_context().run(make)

    def run() -> None:
        guard, text, cells = _guard(value)
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


class Kept(dict):  # type: ignore[type-arg]
    __slots__ = ("s",)

    def items(self) -> Any:
        raise AssertionError("a method of the user's runs")

    __iter__ = keys = values = __len__ = __getitem__ = items  # type: ignore[assignment]


@pytest.mark.parametrize(
    "kind", [kind for kind, known in kinds.items() if known.exact is not None], ids=lambda kind: kind.__name__
)
def test_a_subclass_is_its_class_its_attributes_its_slots_and_what_it_is_made_of(kind: type) -> None:
    samples: dict[Any, tuple[Any, ...]] = {
        tuple: ((1, 2),), list: ([1, 2],), str: ("a",), int: (1,), float: (1.0,), complex: (1j,), bytes: (b"a",), set: ({1},),
        frozenset: ({1},), bytearray: (b"a",), dict: ({"a": 1},), collections.OrderedDict: ({"a": 1},), datetime.time: (1,),
        collections.Counter: ({"a": 1},), collections.defaultdict: (int, {"a": 1}), collections.deque: ([1], 3),
        functools.partial: (_function, 1), property: (_function,), weakref.ref: (Thing,), decimal.Decimal: ("1",),
        datetime.date: (2000, 1, 1), datetime.datetime: (2000, 1, 1), datetime.timedelta: (1,), staticmethod: (_function,),
        classmethod: (_function,),
    }  # fmt: skip
    own = type("Own", (kind,), {"__module__": __name__})
    arguments = samples.get(kind, ("a",) if issubclass(kind, pathlib.PurePath) else ())
    if kind in (pathlib.Path, pathlib.PurePath):
        own = type("Own", (type(kind("a")),), {"__module__": __name__})
    value = own(*arguments)
    for change in (_set("k", 1.0), _set("k", 3.0), _set("other", None), _delete("k")):
        guard, text, _ = _guard(value)
        assert guard.check()
        change(value)
        assert not guard.check() and value_text("value", value) != text


def test_no_method_of_a_subclass_runs() -> None:
    value = Kept(a=1.0)
    before = value_text("value", value)
    dict.__setitem__(value, "a", 2.0)
    assert value_text("value", value) != before
    value.s = 1.0
    guard, _, _ = _guard(value)
    value.s = 2.0
    assert not guard.check()


def test_members_of_enums_and_classes_are_watched() -> None:
    class Colour(enum.Enum):
        RED = 1

    guard, text, _ = _guard(Colour.RED)
    Colour.RED.k = 3.0  # type: ignore[attr-defined]
    assert not guard.check() and value_text("value", Colour.RED) != text


def test_the_class_of_another_build_of_an_extension_has_another_text(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    from rekindle.key.code import binaries

    module = load("kinds_extension", "class Made:\n    pass\n")
    texts = set()
    for build in (b"1", b"2"):
        path = tmp_path / f"kinds_extension{build.decode()}.so"
        path.write_bytes(build)
        monkeypatch.setattr(module, "__file__", str(path))
        assert binaries.build_of("kinds_extension")
        texts.add(value_text("value", module.Made))
    assert len(texts) == 2
    del sys.modules["kinds_extension"]
