"""The live objects behind a fingerprint and its observations, for a guard that compares by identity on every call."""

from __future__ import annotations

import abc
import builtins
import os
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from rekindle.exporters.lengths import builtin_named
from rekindle.fingerprint import Fingerprint, queries
from rekindle.fingerprint.callables import SINGLE_DISPATCH
from rekindle.fingerprint.classes import one_pass, referred, walk_members
from rekindle.fingerprint.namespace import NAMESPACES
from rekindle.fingerprint.origin import is_covered_class, is_covered_function
from rekindle.fingerprint.resolve import ABSENT
from rekindle.fingerprint.values import Walker
from rekindle.fingerprint.world import ALL_NAMES, ALL_VALUES

_HEAP_TYPE = 1 << 9
# Observations that stay as they are as long as the process lives, or whose change the results already follow.
_OF_THE_PROCESS = frozenset({"version", "binary", "order", "answers"})


def _abstract_classes(_: type) -> tuple[int]:
    """A number that changes whenever anything is registered with any abstract class."""
    return (abc.get_cache_token(),)


def _answer(question: tuple[str, str]) -> tuple[Any]:
    """What the process says now; a guard compares by identity."""
    return (sys.intern(str(queries.answer(*question))),)


class Watched:
    """As long as all of it is unchanged, the fingerprint's fields and the observations are.

    containers: dicts, lists, sets, functions and classes, to be compared by the identity of their parts. items: (dict or
    class, key) pairs, whose value or absence is compared. contents: tensors and arrays, compared by their bytes. reads: as of
    Walker. registered: (value, digest) that only a registered digest function can compare.
    """

    def __init__(self, fingerprint: Fingerprint, observations: Iterable[Sequence[str | None]]) -> None:
        self._containers: dict[int, Any] = {}
        self._items: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self._contents: dict[int, Any] = {}
        self._reads: dict[int, tuple[Any, Any]] = {}
        self.registered: list[tuple[Any, str]] = []
        self._add_parts(fingerprint)
        for _, namespace in NAMESPACES:
            self._add_containers([namespace if isinstance(namespace, type) else vars(namespace)])
        self._add_item(vars(torch.utils._device), "CURRENT_DEVICE")
        self._add_item(vars(torch.backends.mha), "_is_fastpath_enabled")
        with one_pass():
            for kind, module, name, _ in observations:
                assert kind is not None and module is not None and name is not None
                self._observe(kind, module, name)

    @property
    def containers(self) -> list[Any]:
        """What is compared by the identity of its parts."""
        return list(self._containers.values())

    @property
    def items(self) -> list[tuple[Any, Any]]:
        """What is compared one by one."""
        return list(self._items.values())

    @property
    def contents(self) -> list[Any]:
        """What is compared by its bytes."""
        return list(self._contents.values())

    @property
    def reads(self) -> list[tuple[Any, Any]]:
        """What is compared by what a function says of it."""
        return list(self._reads.values())

    def _observe(self, kind: str, module: str, name: str) -> None:
        if kind in _OF_THE_PROCESS:
            return
        if kind == "env":
            self._add_variable(name)
            return
        if kind == "query":
            question = (module, name)
            self._reads[id(question)] = (question, _answer)
            return
        self._add_item(sys.modules, module)
        loaded = sys.modules.get(module)
        if loaded is None:
            return
        if kind == "module":
            self._add_value(module, loaded)
        elif name:
            value = self._follow(vars(loaded), name.split("."))
            if kind not in ("code", "library"):
                self._add_value(f"{module}.{name}", value)
            elif type(value) is types.FunctionType:
                self._add_containers([value])

    def _add_variable(self, name: str) -> None:
        data = os.environ._data  # type: ignore[attr-defined]
        if name in (ALL_NAMES, ALL_VALUES):
            self._add_containers([data])
        else:
            self._add_item(data, os.environ.encodekey(name))  # type: ignore[attr-defined]

    def _follow(self, namespace: dict[str, Any], chain: list[str]) -> Any:
        """The value at the end of a chain, as observations._follow finds it; every link is watched."""
        self._add_item(namespace, chain[0])
        value = namespace.get(chain[0], ABSENT)
        if value is ABSENT:
            self._add_item(vars(builtins), chain[0])
            value = builtin_named(chain[0], ABSENT)
        for name in chain[1:]:
            if type(value) is types.ModuleType:
                self._add_item(vars(value), name)
                value = vars(value).get(name, ABSENT)
            elif isinstance(value, type):
                value = self._class_attribute(value, name)
            else:
                break
        return value

    def _class_attribute(self, cls: type, name: str) -> Any:
        for base in cls.__mro__:
            self._add_item(base, name)
            if name in vars(base):
                return vars(base)[name]
        return ABSENT

    def _add_value(self, path: str, value: Any) -> None:
        if value is ABSENT or (isinstance(value, type) and is_covered_class(value)):
            return
        if type(value) is types.FunctionType and is_covered_function(value) and value.__code__ is not SINGLE_DISPATCH:
            return
        walker = Walker()
        walker.walk(path, value)
        self._add_parts(walker)

    def _add_parts(self, found: Any) -> None:
        """What a Walker or a Fingerprint met."""
        self._add_containers(found.containers)
        self._add_containers(found.functions)
        self.registered += found.registered
        for value, read in found.reads:
            self._reads[id(value)] = (value, read)
        for _, tensor in found.tensors:
            self._contents[id(tensor)] = tensor
        classes = found.classes.values() if isinstance(found.classes, dict) else found.classes
        for cls in classes:
            self._add_class(cls)

    def _add_class(self, cls: type) -> None:
        for base in (*cls.__mro__, *type(cls).__mro__, *referred(cls)):
            if not isinstance(base, type):
                self._add_value(base.__name__, base)
                continue
            if id(base) in self._containers or not base.__flags__ & _HEAP_TYPE:
                continue
            self._containers[id(base)] = base
            if not is_covered_class(base):
                self._add_parts(walk_members(base))
                if "_abc_impl" in vars(base):
                    self._reads[id(base)] = (base, _abstract_classes)

    def _add_containers(self, containers: Iterable[Any]) -> None:
        for container in containers:
            self._containers[id(container)] = container

    def _add_item(self, container: Any, key: Any) -> None:
        self._items[id(container), key] = (container, key)
