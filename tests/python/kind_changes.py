"""State of many kinds that a forward reads, and changes of it: a table."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import fractions
import functools
import inspect
import logging
import pathlib
import threading
import types
import typing
import uuid
import weakref
from collections.abc import Callable
from typing import Annotated, Any

import numpy
import torch

SETTINGS: dict[str, Any] = {"k": 1.0}
LOG = logging.getLogger("rekindle.tests.kinds")


class Cfg:
    scale = 1.0


class Base:
    pass


class OfBase(Base):
    pass


class Box:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class OwnDecimal(decimal.Decimal):
    pass


class OwnDate(datetime.date):
    pass


class OwnMoment(datetime.datetime):
    pass


class OwnPath(type(pathlib.Path())):  # type: ignore[misc]
    pass


class OwnId(uuid.UUID):
    __slots__ = ("k",)


class OwnFraction(fractions.Fraction):
    pass


class OwnPartial(functools.partial):  # type: ignore[type-arg]
    pass


class OwnReference(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("k",)


class OwnDeque(collections.deque):  # type: ignore[type-arg]
    pass


class OwnBytes(bytearray):
    pass


class Pair(typing.NamedTuple):
    a: float
    b: float


class OwnPair(Pair):
    pass


class Zone(datetime.tzinfo):
    k = 1.0

    def utcoffset(self, _: Any) -> datetime.timedelta:
        return datetime.timedelta(hours=self.k)


class Generic:
    k = 1.0

    def __class_getitem__(cls, _: Any) -> float:
        return cls.k


@dataclasses.dataclass
class Point:
    x: float = 1.0


@functools.cache
def cached() -> float:
    return float(SETTINGS["k"])


def helper(k: float = 1.0) -> float:
    return k


def _with(value: Any, **attributes: Any) -> Any:
    for name, item in attributes.items():
        setattr(value, name, item)
    return value


def _answered() -> None:
    SETTINGS["k"] = 1.0
    cached.cache_clear()
    cached()
    SETTINGS["k"] = 3.0


def _reshape(held: Any) -> None:
    held.shape = (3, 1)


def _recast(held: Any) -> None:
    held.dtype = numpy.int32


def _of_type(value: Any) -> float:
    return {int: 1.0, float: 3.0, bool: 5.0}[type(value)]


def _set(name: str, value: Any = 3.0) -> Callable[[Any], None]:
    return lambda held: setattr(held, name, value)


Read = Callable[[Any], Any]
# name: (what the attribute `held` is at first, what the forward makes of it, how it is changed)
CHANGES: dict[str, tuple[Callable[[], Any], Read, Callable[[Any], Any]]] = {
    "attribute of the class, set on an empty object": (Cfg, lambda held: held.scale, _set("scale")),
    "attribute of the class, set on an object": (lambda: Box(scale=1.0), lambda held: held.scale, _set("scale")),
    "absent attribute": (Box, lambda held: getattr(held, "k", 1.0), _set("k")),
    "absent attribute of a base": (OfBase, lambda held: getattr(held, "k", 1.0), lambda _: setattr(Base, "k", 3.0)),
    "dict of an object replaced": (lambda: Box(k=1.0), lambda held: held.k, lambda held: setattr(held, "__dict__", {"k": 3.0})),
    "event": (threading.Event, lambda held: 3.0 if held.is_set() else 1.0, lambda held: held.set()),
    "lock": (threading.Lock, lambda held: 3.0 if held.locked() else 1.0, lambda held: held.acquire()),
    "reentrant lock": (threading.RLock, lambda held: 3.0 if held._is_owned() else 1.0, lambda held: held.acquire()),
    "semaphore": (lambda: threading.Semaphore(2), lambda held: float(held._value), lambda held: held.acquire()),
    "condition": (threading.Condition, lambda held: 3.0 if held._is_owned() else 1.0, lambda held: held.acquire()),
    "shape of an array": (lambda: numpy.ones((1, 3)), lambda held: float(held.shape[0]), _reshape),
    "dtype of an array": (lambda: numpy.ones(2, numpy.float32), lambda held: float(held[0]), _recast),
    "key of another type": (
        lambda: {1: 0}, lambda held: _of_type(next(iter(held))), lambda held: (held.clear(), held.update({1.0: 0}))
    ),
    "zero of another sign": (lambda: [0.0], lambda held: 1 / torch.tensor(held[0]), lambda held: held.__setitem__(0, -0.0)),
    "item of another type": (lambda: [1], lambda held: _of_type(held[0]), lambda held: held.__setitem__(0, True)),
    "attribute of a named tuple's subclass": (
        lambda: _with(OwnPair(1.0, 2.0), k=1.0), lambda held: held.k, _set("k")
    ),
    "new attribute of a named tuple's subclass": (
        lambda: OwnPair(1.0, 2.0), lambda held: getattr(held, "k", 1.0), _set("k")
    ),
    "default_factory": (
        lambda: collections.defaultdict(lambda: 1.0), lambda held: held.default_factory(), _set("default_factory", lambda: 3.0)
    ),
    "attribute of a Counter": (collections.Counter, lambda held: getattr(held, "k", 1.0), _set("k")),
    "attribute of an OrderedDict": (collections.OrderedDict, lambda held: getattr(held, "k", 1.0), _set("k")),
    "Decimal": (lambda: _with(OwnDecimal("1"), k=1.0), lambda held: held.k, _set("k")),
    "date": (lambda: _with(OwnDate(2000, 1, 1), k=1.0), lambda held: held.k, _set("k")),
    "datetime": (lambda: OwnMoment(2000, 1, 1), lambda held: getattr(held, "k", 1.0), _set("k")),
    "time zone": (
        lambda: datetime.datetime(2000, 1, 1, tzinfo=Zone()),
        lambda held: held.utcoffset().seconds / 3600.0,
        lambda held: setattr(held.tzinfo, "k", 3.0),
    ),
    "Path": (lambda: _with(OwnPath("a"), k=1.0), lambda held: held.k, _set("k")),
    "UUID": (lambda: OwnId(int=1), lambda held: getattr(held, "k", 1.0), lambda held: object.__setattr__(held, "k", 3.0)),
    "Fraction": (lambda: _with(OwnFraction(1, 2), k=1.0), lambda held: held.k, _set("k")),
    "partial": (lambda: _with(OwnPartial(helper), k=1.0), lambda held: held.k, _set("k")),
    "slot of a reference": (lambda: OwnReference(Base), lambda held: getattr(held, "k", 1.0), _set("k")),
    "attribute of a deque": (lambda: OwnDeque([1.0]), lambda held: getattr(held, "k", 1.0), _set("k")),
    "attribute of a bytearray": (lambda: OwnBytes(b"a"), lambda held: getattr(held, "k", 1.0), _set("k")),
    "metadata of a type": (
        lambda: Annotated[int, Cfg()], lambda held: held.__metadata__[0].scale, lambda held: _set("scale")(held.__metadata__[0])
    ),
    "cleared answers": (_answered, lambda _: cached(), lambda _: cached.cache_clear()),
    "attribute of a cached function": (lambda: None, lambda _: getattr(cached, "k", 1.0), lambda _: setattr(cached, "k", 3.0)),
    "__class_getitem__": (
        lambda: Generic,
        lambda held: held[int],
        lambda held: setattr(held, "__class_getitem__", classmethod(lambda cls, _: 3.0)),
    ),
    "__match_args__": (
        lambda: Point, lambda held: float(len(held.__match_args__)), lambda held: setattr(held, "__match_args__", ("x",) * 3)
    ),
    "default of a dataclass's field": (
        lambda: Point,
        lambda held: dataclasses.fields(held)[0].default,
        lambda held: setattr(held.__dataclass_fields__["x"], "default", 3.0),
    ),
    "defaults of a function": (
        lambda: helper,
        lambda held: inspect.signature(held).parameters["k"].default,
        lambda held: setattr(held, "__defaults__", (3.0,)),
    ),
    "name of a function": (lambda: helper, lambda held: float(len(held.__name__)), lambda held: setattr(held, "__name__", "a")),
    "level of a logger": (lambda: LOG, lambda held: float(held.level + 1), lambda held: held.setLevel(10)),
    "effective level of a logger": (
        lambda: LOG.getChild("own"),
        lambda held: 3.0 if held.isEnabledFor(5) else 1.0,
        lambda _: LOG.setLevel(5),
    ),
    "length of a list of proxies": (
        lambda: types.MappingProxyType(SETTINGS), lambda held: float(len(held)), lambda _: SETTINGS.update(other=1)
    ),
}  # fmt: skip
