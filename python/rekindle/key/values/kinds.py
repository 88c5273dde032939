"""Finds the kind of a type that is met for the first time."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from rekindle.key.values import callables, containers, library_values, module_values, objects, proxies, standard_values
from rekindle.key.values.registered import registered_walk
from rekindle.key.values.walker import IMMUTABLE, Kind, Walker, kinds, label, opaque, steps
from rekindle.modules.proxy import Proxy
from rekindle.process.digest import digest_leaves
from rekindle.process.registered_types import registered


def find_kind(cls: type) -> Kind:
    """Returns the kind of the values of a type.

    The first that fits: wrapped modules, what the user registered, the exact type, metaclasses, families of types, objects of
    Python classes; else one that refuses.
    """
    if issubclass(cls, Proxy):
        return proxies.PROXY
    for base in cls.__mro__:
        if base in registered:
            return _registered(registered[base])
    if cls in kinds:
        return kinds[cls]
    if issubclass(cls, type):
        return callables.CLASS_VALUE
    family = containers.find(cls) or library_values.find(cls)  # namespaces of operators, which are modules too, among them
    if family is None and issubclass(cls, types.ModuleType):
        return module_values.MODULE_VALUE
    return family or standard_values.find(cls) or objects.object_kind(cls) or _REFUSED


def _registered(function: Callable[[Any], Any]) -> Kind:
    def leaves(walker: Walker, path: str, value: Any) -> None:
        walker.leaves.append((path, f"registered {label(type(value))}"))
        walker.walk(f"{path}.digest_function", function)  # with other code it may see another part of the value
        inner = registered_walk(path, value, function)
        walker.leaves += inner.leaves
        walker.take_parts(inner)
        walker.registered.append((value, digest_leaves(inner.leaves)))

    return Kind(leaves, IMMUTABLE, False, shared=True)


def _refuse(walker: Walker, path: str, value: Any) -> None:
    raise opaque(path, value)


_REFUSED = Kind(_refuse, IMMUTABLE, False)
steps.find_kind = find_kind
