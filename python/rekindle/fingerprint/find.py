"""The handler of a type that is met for the first time."""

from __future__ import annotations

import enum
import functools
import logging
import types
import weakref
from collections.abc import Callable
from typing import Any

from rekindle.fingerprint import callables, containers, library_values, objects, proxies
from rekindle.fingerprint.digest import digest_leaves
from rekindle.fingerprint.values import Handler, Walker, handlers, label, opaque, registered, registered_walk
from rekindle.proxy import Proxy

_SUBCLASSED: tuple[tuple[type | tuple[type, ...], Handler], ...] = (
    ((logging.Logger, logging.LoggerAdapter, logging.Handler), callables.noise),
    (types.ModuleType, callables.module_value),
    (weakref.ref, callables.weak_reference),
    (functools.partial, callables.partial),
    (property, callables.property_value),
    (functools.cached_property, callables.cached_property),
)


def find_handler(value: Any) -> Handler:
    """What the exact type asks for, then what its bases do, then plain objects; else a handler that
    refuses."""
    cls = type(value)
    if issubclass(cls, Proxy):
        return proxies.proxy
    for base in cls.__mro__:
        if base in registered:
            return _registered_handler(registered[base])
    if cls in handlers:
        return handlers[cls]
    if isinstance(value, type):
        return callables.class_value
    if isinstance(value, enum.Enum):
        return containers.enum_member
    handler = library_values.find(value)
    if handler is not None:
        return handler
    for kinds, handler in _SUBCLASSED:
        if isinstance(value, kinds):
            return handler
    if isinstance(value, tuple) and (hasattr(cls, "_fields") or hasattr(cls, "n_fields")):
        return containers.namedtuple
    return objects.plain_object if objects.is_plain_class(cls) else _refuse


def _registered_handler(function: Callable[[Any], Any]) -> Handler:
    def handle(walker: Walker, path: str, value: Any) -> None:
        walker.leaves.append((path, f"registered {label(type(value))}"))
        walker.walk(f"{path}.digest_function", function)  # with other code it may see another part of the value
        inner = registered_walk(path, value, function)
        walker.leaves += inner.leaves
        walker.take_parts(inner)
        walker.registered.append((value, digest_leaves(inner.leaves)))

    return handle


def _refuse(walker: Walker, path: str, value: Any) -> None:
    raise opaque(path, value)
