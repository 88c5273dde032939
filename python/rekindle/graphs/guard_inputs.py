"""Collects the live objects behind a fingerprint and its observations, for a guard that compares by identity on every call.

An example: a forward reads the global RATE of the module `app`, which makes the observation ["global", "app", "RATE", "0.1"].
Watched then has the items (sys.modules, "app") and (vars(app), "RATE"). After `app.RATE = 0.2` another object is there: the guard
fails, and the call is looked up by content again.
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
import logging
import operator
import os
import sys
import types
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from rekindle.export.request import Call
from rekindle.key.ambient import PLACES
from rekindle.key.code.module_names import names_of, own_names, read_names
from rekindle.key.fingerprint import Fingerprint
from rekindle.key.patches import NAMESPACES
from rekindle.key.values.cached_answers import ANSWERS
from rekindle.key.values.cells import CLASS, FUNCTION, ITEMS, LIST, OBJECT, TENSOR, VARIABLE, Cells, seen_only
from rekindle.key.values.classes import one_pass, referred, walked_members
from rekindle.key.values.module_values import CLASS_OF
from rekindle.key.values.names import ABSENT, SINGLE_DISPATCH
from rekindle.key.values.walker import Walker, label, value_text
from rekindle.process.origin import is_covered_class, is_covered_function, is_heap_class
from rekindle.process.process_state import builtin_named
from rekindle.process.world import ALL_NAMES, ALL_VALUES
from rekindle.recording import cached_functions, queries
from rekindle.recording.logger_reads import chain_of
from rekindle.results import structure

# Observations that stay as they are as long as the process lives, or whose change the results already follow.
_OF_THE_PROCESS = frozenset({"version", "binary", "order"})


# Holds a number that changes whenever anything is registered with any abstract class.
_REGISTERED = seen_only(lambda _: (abc.get_cache_token(),))
# The names of a class, of which its version and dictionary do not tell.
_NAMES = seen_only(operator.attrgetter("__name__", "__qualname__"))


def _weakly(value: Any, cells: Cells) -> tuple[Any, Any]:
    """Returns the cell of _native.Guard, (object, how), for what it may not keep alive."""
    if cells.how == "object":
        return value, "weak"

    def take(reference: weakref.ref[Any]) -> tuple[Any, ...]:
        target = weakref.ref.__call__(reference)
        if target is None:
            return ()
        return (value_text("content", target),) if cells.how == "bytes" else tuple(cells.take(target))

    return weakref.ref(value), take


# What the process answers now; a guard compares by identity.
_ANSWER = seen_only(lambda question: (sys.intern(str(queries.answer(*question))),))


class Watched:
    """Watches what a fingerprint and observations depend on: as long as all of it is unchanged, so are they."""

    def __init__(self, fingerprint: Fingerprint, observations: Iterable[Sequence[str | None]]) -> None:
        self._cells: dict[tuple[int, Any], tuple[Any, Cells]] = {}
        self._items: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self._weak: set[int] = set()
        self._tensors: dict[int, tuple[str, torch.Tensor]] = {}
        self._inputs = {id(tensor) for tensor in fingerprint.bound.values()}  # of the graph: their numbers are no constants of it
        self.registered: list[tuple[Any, str]] = []  # (value, digest) that only a registered digest function can compare
        with one_pass():  # one walk of each class, for all that lead to it
            self._add_parts(fingerprint)
            for _, namespace in NAMESPACES:
                self._watch(namespace, CLASS) if isinstance(namespace, type) else self._watch(vars(namespace), ITEMS)
            for namespace, name in PLACES:
                self._add_item(namespace, name)
            for kind, module, name, _ in observations:
                assert kind is not None and module is not None and name is not None
                self._observe(kind, module, name)

    @property
    def cells(self) -> list[tuple[Any, Any]]:
        """Lists what may change and how it is compared: the (object, how) pairs that _native.Guard takes."""
        return [
            _weakly(value, cells) if id(value) in self._weak else (value, cells.comparison)
            for value, cells in self._cells.values()
        ]

    @property
    def weak(self) -> set[int]:
        """Returns the ids of objects that nothing which compares may keep alive: a user can see when they go."""
        return self._weak

    @property
    def items(self) -> list[tuple[Any, Any]]:
        """Lists the (dict or class, key) pairs whose value, or its absence, is compared one by one."""
        return list(self._items.values())

    @property
    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Lists (name, tensor) of the plain tensors whose numbers a graph may have, each once.

        Another process that has the same fingerprint and observations finds its own under the same names.
        """
        return list(self._tensors.values())

    def _observe(self, kind: str, module: str, name: str) -> None:
        if kind in _OF_THE_PROCESS:
            return
        if kind == "env":
            self._add_variable(name)
            return
        if kind == "query":
            kept = queries.KEPT.get((module, name))
            self._watch((module, name), _ANSWER) if kept is None else self._watch(kept, VARIABLE)
            return
        if kind == "logger":
            self._add_logger(name)
            return
        if kind == "setting":
            self._add_setting(module, name)
            return
        self._add_item(sys.modules, module)
        loaded = sys.modules.get(module)
        if loaded is None:
            return
        if kind == "module":
            self._add_value(module, loaded)
        elif name:
            value = self._follow(read_names(loaded), name.split("."))
            if kind not in ("code", "library"):
                self._add_value(f"{module}.{name}", value)
            elif type(value) is types.FunctionType:
                self._watch(value, FUNCTION)

    def _add_variable(self, name: str) -> None:
        data = os.environ._data  # type: ignore[attr-defined]
        if name in (ALL_NAMES, ALL_VALUES):
            self._watch(data, ITEMS)
        else:
            self._add_item(data, os.environ.encodekey(name))  # type: ignore[attr-defined]

    def _add_logger(self, name: str) -> None:
        self._watch(logging.root.manager, OBJECT)
        for logger in chain_of(name):
            self._watch(logger, OBJECT)
            self._watch(logger.handlers, LIST)
            self._watch(logger.filters, LIST)

    def _add_setting(self, module: str, name: str) -> None:
        namespace = names_of(module)
        if namespace is None:
            return
        value = self._follow(namespace, name.split("."))
        if isinstance(value, type):
            self._watch(value, CLASS)
        else:
            self._add_value(name, value)

    def _follow(self, namespace: dict[str, Any], chain: list[str]) -> Any:
        """Returns the value at the end of a chain of names, as names.follow (key/values) finds it, and watches every link."""
        self._add_item(namespace, chain[0])
        value = namespace.get(chain[0], ABSENT)
        if value is ABSENT:
            self._add_item(vars(builtins), chain[0])
            value = builtin_named(chain[0], ABSENT)
        for name in chain[1:]:
            if type(value) is types.ModuleType or (isinstance(value, types.ModuleType) and name in own_names(value, name)):
                self._add_item(vars(value), name)
                self._add_item(own_names(value, name), name)
                value = own_names(value, name).get(name, ABSENT)
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
        if isinstance(value, type) and is_covered_class(value) and "_abc_impl" in vars(value):
            self._watch(value, _REGISTERED)
        if value is ABSENT:
            return
        if type(value) is types.FunctionType and is_covered_function(value) and value.__code__ is not SINGLE_DISPATCH:
            return
        walker = Walker()
        walker.walk(path, value)
        self._add_parts(walker)

    def _add_parts(self, found: Any, owner: str = "") -> None:
        """Watches what a Walker or a Fingerprint met; `owner`: whose parts these are, if their paths do not tell."""
        self._weak |= found.weak
        for path, tensor in found.tensors:
            self._tensors.setdefault(id(tensor), (owner + path, tensor))
        for value, cells in found.cells:
            self._watch(value, cells)
            for held, inner in cached_functions.cells_in(value) if cells is ANSWERS else ():
                self._watch(held, inner)
        for function in found.functions:
            self._watch(function, FUNCTION)
        self.registered += found.registered
        classes = found.classes.values() if isinstance(found.classes, dict) else found.classes
        for cls in classes:
            self._add_class(cls)

    def _add_class(self, cls: type) -> None:
        for base in (*cls.__mro__, *type(cls).__mro__, *referred(cls)):
            if not isinstance(base, type):
                self._add_module(base)
                continue
            if (id(base), CLASS.how) in self._cells or not is_heap_class(base):
                continue
            self._watch(base, CLASS)
            if not is_covered_class(base):
                self._watch(base, _NAMES)
                self._add_parts(walked_members(base), f"{label(base)}.")
                if "_abc_impl" in vars(base):
                    self._watch(base, _REGISTERED)

    def _add_module(self, module: types.ModuleType) -> None:
        """Watches a module that a class leads to; what that leads to, the class leads to."""
        names = vars(module)
        if (id(names), ITEMS.how) not in self._cells:
            self._watch(names, ITEMS)
            self._watch(module, CLASS_OF)
            self._add_parts(walked_members(module), f"{module.__name__}.")

    def _watch(self, value: Any, cells: Cells) -> None:
        if cells is TENSOR and (id(value) in self._inputs or value.device.type != "cpu"):
            return
        self._cells.setdefault((id(value), cells.comparison), (value, cells))

    def _add_item(self, container: Any, key: Any) -> None:
        self._items[id(container), key] = (container, key)


def containers_told_apart(call: Call, cells: Iterable[tuple[Any, Any]]) -> frozenset[int]:
    """Returns the ids of the containers among a guard's cells; none where no call is given a container."""
    if not any(map(_is_container, (*call.args, *call.kwargs.values()))):
        return frozenset()
    found: dict[type, bool] = {}
    for kind in {type(value) for value, _ in cells}:
        found[kind] = issubclass(kind, (list, dict)) or dataclasses.is_dataclass(kind)
    return frozenset(id(value) for value, _ in cells if found[type(value)])


def _is_container(value: Any) -> bool:
    """Tells whether it is a container that a call may be given, other than a tuple of plain ones."""
    return structure.parts(value) is not None and (not isinstance(value, tuple) or any(map(_is_container, tuple.__iter__(value))))
