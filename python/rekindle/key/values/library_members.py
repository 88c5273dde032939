"""Adds what users may have set on classes and modules of libraries, for which else their names and versions stand.

What a held class or module is asked for, no recorder is told of. For example, after `Normal.has_rsample = False` the class
torch.distributions.Normal reads otherwise at a path than before: the digest of its plain members is another one. After
`math.sqrt = mine`, the module `math` has a leaf for the function `mine`, with its code.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import types
from collections.abc import Iterable
from typing import Any

import torch

from rekindle.key.values.cells import CLASS, ITEMS
from rekindle.key.values.classes import members_met
from rekindle.key.values.names import codes_of
from rekindle.key.values.walker import Walker, attribute_path, label
from rekindle.process.digest import digest_leaves
from rekindle.process.origin import Origin, installed, is_covered_class, is_heap_class, origin_of
from rekindle.process.process_state import unpatched

# What the libraries themselves change as they run is their own business.
SEEN_ITEMS = dataclasses.replace(ITEMS, put_back=None)
_SEEN_CLASS = dataclasses.replace(CLASS, put_back=None)
_PLAIN = (bool, int, float, complex, str, type(None))
_C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
Members = tuple[str | None, list[tuple[str, Any]]]  # a digest of plain values and names, and what is the user's
_IN_EVERY_KEY = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Module, torch.autograd.Function})
_COUNTERS = frozenset({"next_id"})  # of hooks that the process has ever had


def add_class_members(walker: Walker, path: str, cls: type) -> None:
    """Adds what is set on a class that versions stand for, or on those it is made of: plain values, and what is the user's."""
    met = members_met()
    for base in cls.__mro__:
        if is_heap_class(base) and is_covered_class(base) and base not in _IN_EVERY_KEY:
            walker.watch(base, _SEEN_CLASS)
            known = met.get(id(base))
            if known is None:
                known = met[id(base)] = _members((name, item) for name, item in vars(base).items() if name not in _COUNTERS)
            _add(walker, f"{path}.{label(base)}", known)


def add_module_members(walker: Walker, path: str, module: types.ModuleType) -> None:
    """Adds what is set on a library's module; not private numbers and texts, by which libraries tell what they have done."""
    members = list(vars(module).items())
    _add(walker, path, _members((name, item) for name, item in members if not (name[:1] == "_" and type(item) in _PLAIN)))


def _add(walker: Walker, path: str, members: Members) -> None:
    digest, users = members
    if digest is not None:
        walker.leaves.append((f"{path}.__members__", digest))
    for name, value in users:
        walker.walk(attribute_path(path, name), value)


def _members(items: Iterable[tuple[str, Any]]) -> Members:
    texts: list[tuple[str, str]] = []
    users: list[tuple[str, Any]] = []
    for name, member in items:
        value = unpatched(member)
        if type(value) in _PLAIN:
            # Texts that are paths say where something is installed.
            if not name.startswith("__") and not (type(value) is str and value.startswith(os.sep)):
                texts.append((name, repr(value)))
        elif isinstance(value, _C_FUNCTIONS):
            if value.__name__ != name:
                texts.append((name, label(value)))
        elif _is_the_users(value):
            users.append((name, value))
        elif type(value) is types.FunctionType and value.__name__ != name and not _is_ours(value):
            texts.append((name, label(value)))
    return digest_leaves(sorted(texts)) if texts else None, users


def _is_the_users(value: Any) -> bool:
    """Tells whether a value runs code of the user's."""
    if isinstance(value, types.ModuleType):
        return False
    if type(value) is types.FunctionType:  # most members
        file = value.__code__.co_filename
        return _is_of_users_module(value.__globals__.get("__name__")) if file.startswith("<") else _is_users_file(file)
    codes = list(codes_of(value))
    if codes:
        return any(_is_users_file(code.co_filename) for code in codes)
    cls = value if isinstance(value, type) else type(value)
    if not is_heap_class(cls) or is_covered_class(cls):
        return False
    return _is_of_users_module(cls.__module__)


def _is_of_users_module(name: Any) -> bool:
    return name == "__main__" or _is_users_file(getattr(sys.modules.get(str(name)), "__file__", None))


def _is_ours(function: types.FunctionType) -> bool:
    """Tells whether it is what Rekindle puts in the place of another one while it exports."""
    return origin_of(function.__code__.co_filename) is Origin.REKINDLE


def _is_users_file(file: Any) -> bool:
    return isinstance(file, str) and not file.startswith("<") and origin_of(file) is Origin.USER and not installed(file)
