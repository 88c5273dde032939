"""Observes state that torch's own Python code keeps in its modules and classes: settings, registries and caches.

What can change is what some function of the same module rebinds or fills, and plain numbers and texts whoever sets them. All of
it that the forward may have read is observed by value, but for what the code that ran keeps for itself: a cache.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any

import torch

from rekindle.key.code.code_objects import nested_code
from rekindle.key.code.module_names import names_of
from rekindle.key.code.reads import reads_of
from rekindle.key.values.names import ABSENT, codes_of, follow
from rekindle.key.values.walker import value_text
from rekindle.process.origin import is_of_library
from rekindle.reasons import Bypass, Reason

Key = tuple[str, str, str]
PLAIN = (bool, int, float, str, type(None))
_TABLES = (dict, list, set)
# Settings that no forward's result depends on: where the ranks of this run met, which another start does elsewhere; and the names
# that containers have in files.
_LEFT_OUT = {
    ("torch.distributed.distributed_c10d", "_default_pg_init_method"),
    ("torch.utils._pytree", "SERIALIZED_TYPE_TO_PYTHON_TYPE"),
    ("torch.utils._pytree", "SUPPORTED_SERIALIZED_TYPES"),
}
# By class: an import that defines a class of torch's adds it, and no object of it was there before.
_BY_CLASS = {("torch.utils._pytree", "SUPPORTED_NODES"), ("torch.utils._pytree", "CONSTANT_NODES")}
# Classes that keep what they work out when it is first asked for, and the method that is asked.
_WORKED_OUT = {("torch.utils.checkpoint", "DefaultDeviceType"): "get_device_type"}
_FILLS = frozenset("append add update setdefault pop popitem clear extend insert remove discard".split())
_STORES = {dis.opmap[name] for name in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_SUBSCR", "DELETE_SUBSCR")}
_INTO_GLOBAL, _INTO_ITEM = ("STORE_GLOBAL", "DELETE_GLOBAL"), ("STORE_SUBSCR", "DELETE_SUBSCR")

_stored: dict[int, tuple[types.CodeType, frozenset[str]]] = {}
_changeable: dict[str, tuple[str, ...]] = {}


def stored_names(code: types.CodeType) -> frozenset[str]:
    """Returns the names of globals that a code object, or one nested in it, rebinds or fills."""
    known = _stored.get(id(code))
    if known is None:
        found: set[str] = set()
        for part in nested_code(code):
            if _FILLS.intersection(part.co_names) or not _STORES.isdisjoint(part.co_code[::2]):
                found |= _stored_by(part)
        known = _stored[id(code)] = (code, frozenset(found))
    return known[1]


def _stored_by(code: types.CodeType) -> set[str]:
    found: set[str] = set()
    loaded: list[str] = []  # globals that the current line loads
    lines = {offset for offset, _ in dis.findlinestarts(code)}
    for instruction in dis.get_instructions(code):
        if instruction.offset in lines:
            loaded = []
        name = instruction.opname
        if name == "LOAD_GLOBAL":
            loaded.append(str(instruction.argval))
        elif name in _INTO_GLOBAL:
            found.add(str(instruction.argval))
        elif name in _INTO_ITEM or (name in ("LOAD_METHOD", "LOAD_ATTR") and instruction.argval in _FILLS):
            found.update(loaded)
    return found


def changeable_names(module: str, namespace: dict[str, Any]) -> tuple[str, ...]:
    """Returns the names of what functions of a module of torch's rebind or fill."""
    known = _changeable.get(module)
    if known is None:
        found: set[str] = set()
        for value in list(namespace.values()):
            members = vars(value).values() if isinstance(value, type) else (value,)
            for member in members:
                for code in codes_of(member):
                    found |= stored_names(code)
        known = _changeable[module] = tuple(sorted(found & namespace.keys()))
    return known


def text_of(module: str, name: str) -> str | None:
    """Returns what stands for a name of a module, or for the plain attributes of a class there; None if nothing can."""
    namespace = names_of(module)
    value = ABSENT if namespace is None else follow(namespace, name.split("."))[0]
    if value is ABSENT:
        return None
    if (module, name) in _WORKED_OUT:
        value = getattr(value, _WORKED_OUT[module, name])()
    if isinstance(value, type):
        plain = sorted((key, repr(item)) for key, item in vars(value).items() if type(item) in PLAIN and key[:2] != "__")
        return repr(plain) if plain else None
    if (module, name) in _BY_CLASS:
        value = [(key, value[key] if isinstance(value, dict) else None) for key in value if not is_of_library(key)]
    try:
        return value_text(name, value)
    except Bypass:
        return None


class LibraryState:
    """Collects what torch's code may read, as it is before that code runs."""

    def __init__(self) -> None:
        self._before: dict[Key, str | None] = {}  # texts
        self._own: set[tuple[str, str]] = set()  # what code that ran keeps for itself
        self._tables: dict[int, tuple[Key, Any, Any]] = {}  # (key, table, copy of it), by identity
        self._modules: set[str] = set()  # those whose changeable names are noted

    def add(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        """Notes what code of torch that starts for the first time may read.

        Raises Bypass for what the forward may read and no text can stand for.
        """
        module = namespace.get("__name__")
        if not isinstance(module, str) or names_of(module) is not namespace:
            return
        self._own.update((module, name) for name in stored_names(code))
        if module not in self._modules:
            self._modules.add(module)
            for name in changeable_names(module, namespace):
                if isinstance(namespace[name], (*PLAIN, *_TABLES, tuple)):
                    self._note(module, name, namespace[name])
        for chain in reads_of(code).chains:
            value, used = follow(namespace, chain)
            if type(value) in PLAIN and "__" not in chain[used - 1]:
                self._note(module, ".".join(chain[:used]), value)
        for owner, name in _classes_of(code, namespace):
            self._note(owner, name, ABSENT)

    def _note(self, module: str, name: str, value: Any) -> None:
        key = ("setting", module, name)
        if key not in self._before and key[1:] not in _LEFT_OUT:
            self._before[key] = text_of(module, name)
            if type(value) in _TABLES and _holds_tensors(value):
                message = f"torch keeps tensors in {module}.{name}, which the forward may be given"
                raise Bypass(Reason.OPAQUE_VALUE, f"{message}; call the module outside of what keeps them")
            if type(value) in _TABLES:
                self._tables[id(value)] = (key, value, value.copy())

    def observations(self) -> list[list[str | None]]:
        """Returns the observations of what is as it was.

        Raises Bypass if torch has kept tensors of the forward, which are then taken from it.
        """
        for (_, module, name), table, before in self._tables.values():
            if len(table) != len(before) and _holds_tensors(table):
                table.clear()
                table.extend(before) if isinstance(table, list) else table.update(before)
                raise Bypass(Reason.STATE_MUTATED, f"the forward leaves tensors in {module}.{name}, where torch keeps them")
        kept = ((key, text) for key, text in self._before.items() if text is not None and key[1:] not in self._own)
        return [[*key, text] for key, text in kept if text_of(*key[1:]) == text]


def _holds_tensors(table: Any) -> bool:
    return any(isinstance(item, torch.Tensor) for item in (table.values() if isinstance(table, dict) else table))


def _classes_of(code: types.CodeType, namespace: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields module and name of the class that code is a method of, and of its bases in torch."""
    owner = namespace.get(code.co_qualname.rpartition(".")[0])
    for base in owner.__mro__ if isinstance(owner, type) else ():
        if base.__module__.partition(".")[0] == "torch" and (names_of(base.__module__) or {}).get(base.__name__) is base:
            yield base.__module__, base.__name__
