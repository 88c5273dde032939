"""Adds the leaves of values of the standard library; see `walker.Walker`."""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import ctypes
import datetime
import decimal
import fractions
import inspect
import io
import logging
import operator
import os
import pathlib
import random
import re
import sys
import threading
import types
import uuid
from typing import Any

from rekindle.key.code.binaries import build_id
from rekindle.key.values.cells import OBJECT, object_but, seen_only
from rekindle.key.values.library_members import add_class_members
from rekindle.key.values.walker import IMMUTABLE, Kind, Walker, add_text, handles, kinds, label, opaque
from rekindle.process.origin import is_covered_class

_TUPLE_FIELD = type(collections.namedtuple("_", "field").field)  # type: ignore[attr-defined]
_CAPSULE = type(datetime.datetime_CAPI)  # type: ignore[attr-defined]
_Lock: Any = type(threading.Lock())
_RLock: Any = type(threading.RLock())


def _path_of(value: pathlib.PurePath) -> pathlib.PurePath:
    own = pathlib.PosixPath if isinstance(value, pathlib.Path) else pathlib.PurePosixPath
    return own(pathlib.PurePath.__str__(value))


_PATH = seen_only(lambda value: (pathlib.PurePath.__str__(value),))
_FRACTION = seen_only(lambda value: (value.numerator, value.denominator))
_PATHS = (pathlib.PosixPath, pathlib.PurePosixPath, pathlib.Path, pathlib.PurePath)


@handles(*_PATHS, cells=(_PATH,), by_identity=False, exact=_path_of)
@handles(fractions.Fraction, cells=(_FRACTION,), by_identity=False)
@handles(uuid.UUID, cells=IMMUTABLE, by_identity=False)
@handles(decimal.Decimal, cells=IMMUTABLE, exact=decimal.Decimal)
def _text(walker: Walker, path: str, value: Any) -> None:
    add_text(walker, path, value)
    add_class_members(walker, path, type(value))


_DATES = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)


def _reduced(kind: type) -> Any:
    """Returns a function that makes a date of exactly that kind of one of a subclass."""
    if kind in (datetime.datetime, datetime.time):
        return lambda value: kind(*kind.__reduce_ex__(value, 4)[1])  # type: ignore[index]
    return lambda value: kind(*kind.__reduce__(value)[1])  # type: ignore[index]


def _date(walker: Walker, path: str, value: Any) -> None:
    zone = getattr(value, "tzinfo", None)
    walker.leaves.append((path, f"{value.replace(tzinfo=None)!r}" if zone is not None else repr(value)))
    if zone is not None:
        walker.walk(f"{path}.tzinfo", zone)


def _zone(walker: Walker, path: str, value: Any) -> None:
    parts = value.__getinitargs__()
    walker.leaves.append((path, "timezone"))
    walker.walk(f"{path}.arguments", parts)


for _kind in _DATES[:4]:
    handles(_kind, cells=IMMUTABLE, exact=_reduced(_kind))(_date)
handles(datetime.timezone, cells=IMMUTABLE)(_zone)


@handles(datetime.tzinfo, cells=IMMUTABLE, exact=lambda value: value)
def _no_content(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, "tzinfo"))


@handles(operator.itemgetter, operator.attrgetter, operator.methodcaller, _TUPLE_FIELD, cells=IMMUTABLE, shared=True)
def _from_arguments(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"{type(value).__module__}.{type(value).__name__}"))
    walker.walk(f"{path}.arguments", value.__reduce__()[1])


@handles(_CAPSULE, cells=IMMUTABLE)
def _capsule(walker: Walker, path: str, value: Any) -> None:
    if walker.deep_classes:
        raise opaque(path, value)
    walker.leaves.append((path, "PyCapsule"))  # a table of C functions that the class's library put there


@handles(re.Pattern, cells=IMMUTABLE)
def _pattern(walker: Walker, path: str, value: re.Pattern) -> None:
    walker.leaves.append((path, f"pattern {value.flags} {value.pattern!r}"))


@handles(types.SimpleNamespace, cells=(OBJECT,))
def _namespace(walker: Walker, path: str, value: types.SimpleNamespace) -> None:
    walker.leaves.append((path, f"namespace[{len(vars(value))}]"))


@handles(contextlib._GeneratorContextManager, cells=(OBJECT,), attributes=False, shared=True)
def _context_manager(walker: Walker, path: str, value: Any) -> None:
    """Adds a `contextlib.contextmanager` not entered yet, as decorators keep it: what makes its generator."""
    if inspect.getgeneratorstate(value.gen) != inspect.GEN_CREATED:
        raise opaque(path, value, " that was entered already")
    walker.leaves.append((path, type(value).__name__))
    walker.attributes(path, value, frozenset({"gen", "__doc__"}))


@handles(type(os.environ), cells=IMMUTABLE, attributes=False)
def _environ(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, "environ"))  # single variables are recorded as they are read


def _generator(walker: Walker, path: str, value: Any) -> None:
    """Adds the process's own generators by name only: a recorder notices if the forward draws from them."""
    numpy = sys.modules.get("numpy")
    if value is not random._inst and (numpy is None or value is not numpy.random.mtrand._rand):  # type: ignore[attr-defined]
        raise opaque(path, value)
    walker.leaves.append((path, f"global generator {type(value).__name__}"))


@handles(_Lock, cells=(seen_only(lambda value: (value.locked(),)),))
def _lock(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, "locked lock" if value.locked() else "lock"))


def _depth(lock: Any) -> str:
    """Tells how often a lock is held, and whether by this thread; only its text shows it."""
    found = re.search(r"count=(\d+)", repr(lock))
    return f"{found[1] if found else 0} {'own' if lock._is_owned() else ''}"


@handles(_RLock, cells=(seen_only(lambda value: (_depth(value),)),))
def _reentrant_lock(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"reentrant lock {_depth(value)}"))


_OF_LOGGERS = frozenset(vars(logging.Logger("")))
_SET_ON_LOGGERS = object_but(tuple(sorted(_OF_LOGGERS)))


def _logger(walker: Walker, path: str, value: logging.Logger) -> None:
    """Adds a logger by its name, its class if that is the user's, and what is set on it.

    What else a forward asks of it, or of a handler, is recorded as it asks; see logger_reads.py.
    """
    cls = type(value)
    is_covered = is_covered_class(cls)
    walker.leaves.append((path, f"logger {value.name}{'' if is_covered else f' {walker.add_class(cls)}'}"))
    if is_covered:
        add_class_members(walker, path, cls)
    walker.attributes(path, value, _OF_LOGGERS)


_OF_STREAMS = ("name", "mode", "encoding", "errors", "newlines", "line_buffering", "write_through", "closed")
_SET_ON_STREAMS = {"mode", "write"}  # by Python, and by the recorder of a forward


def _stream_state(value: io.TextIOWrapper) -> tuple[Any, ...]:
    """Returns what a text stream says of itself without a call, which a recorder would notice; nothing once it is detached."""
    try:
        return tuple(getattr(value, name, None) for name in _OF_STREAMS)
    except ValueError:
        return ()


@handles(io.TextIOWrapper, cells=(seen_only(_stream_state),), attributes=False)
def _stream(walker: Walker, path: str, value: io.TextIOWrapper) -> None:
    """Adds stdout or stderr of the process, to which a forward may print under a condition that is off; no other file."""
    state = _stream_state(value)
    is_own = value is sys.__stdout__ or value is sys.__stderr__
    if not is_own or state[:1] not in (("<stdout>",), ("<stderr>",)) or vars(value).keys() - _SET_ON_STREAMS:
        raise opaque(path, value)
    walker.leaves.append((path, f"stream {state}"))


def type_only(walker: Walker, path: str, value: Any) -> None:
    """Adds the type of a value that nothing a forward computes depends on."""
    walker.leaves.append((path, f"a {label(type(value))}"))


def _c_library(walker: Walker, path: str, value: ctypes.CDLL) -> None:
    walker.leaves.append((path, f"C library {value._name} {build_id(value._name)}"))


def _c_function(walker: Walker, path: str, value: Any) -> None:
    """Adds a function of a C library, covered where the library is; raises Bypass for a Python callback, which has no name."""
    if not hasattr(value, "__name__"):
        raise opaque(path, value)
    walker.leaves.append((path, f"C function {value.__name__} {value.argtypes!r} {value.restype!r}"))


_C_TYPES = seen_only(lambda value: (value.argtypes, value.restype))
_TYPING = (
    "__origin__",
    "__args__",
    "__metadata__",
    "__bound__",
    "__constraints__",
    "__supertype__",
    "__forward_arg__",
    "__default__",
)


_CALLABLE = type(collections.abc.Callable[[], None])  # of a class of its own


@handles(types.GenericAlias, types.UnionType, _CALLABLE, cells=IMMUTABLE, attributes=False, shared=True)
def _typing(walker: Walker, path: str, value: Any) -> None:
    """Adds a type expression: which one it is, and what it is made of, the user's own objects included."""
    name = getattr(value, "__name__", None) or getattr(value, "_name", None)
    walker.leaves.append((path, f"typing {type(value).__qualname__} {name}"))
    for part in _TYPING:
        try:
            found = getattr(value, part)
        except (AttributeError, TypeError):
            continue
        if not isinstance(found, types.MethodWrapperType | types.BuiltinFunctionType):
            walker.walk(f"{path}.{part}", found)


def find(cls: type) -> Kind | None:
    """Returns the kind of a class of the standard library that is one of a family, or None."""
    if issubclass(cls, ctypes.CDLL):
        return Kind(_c_library, IMMUTABLE, False)
    if issubclass(cls, ctypes._CFuncPtr):
        return Kind(_c_function, (_C_TYPES,), False)
    if issubclass(cls, random.Random) or label(cls) == "numpy.random.mtrand.RandomState":
        return Kind(_generator, IMMUTABLE, False)
    if issubclass(cls, logging.Logger):
        return Kind(_logger, (_SET_ON_LOGGERS,), True)
    if issubclass(cls, logging.Handler | logging.Manager):
        return Kind(type_only, IMMUTABLE, False)
    if cls.__name__ == "cython_function_or_method":
        return kinds[types.WrapperDescriptorType]  # compiled: named, and covered by its package's version
    if issubclass(cls, contextlib._GeneratorContextManager):
        return kinds[contextlib._GeneratorContextManager]
    if cls.__module__ in ("typing", "typing_extensions"):
        return Kind(_typing, (OBJECT,) if cls.__dictoffset__ else IMMUTABLE, bool(cls.__dictoffset__), shared=True)
    if cls is getattr(sys.modules.get("zoneinfo"), "ZoneInfo", None):
        return Kind(_keyed, IMMUTABLE, False)
    return None


def _keyed(walker: Walker, path: str, value: Any) -> None:
    if value.key is None:
        raise opaque(path, value)
    walker.leaves.append((path, f"time zone {value.key}"))
