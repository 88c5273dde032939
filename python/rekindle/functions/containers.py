"""Knows which lists, dicts and other containers autograd Functions are given, and which of these a Function writes to.

Eager gives a Function the very container that the forward has. A graph gives it one that the module or a global holds, live, and
makes the others anew for each call (functions/calls.py). It does not run the forward, which might read what a Function has put
into a container: such a call has to run in eager.

An example: `Note.apply(x, flags)` appends to `flags`, a list that the forward has made, where x is large. The graph of a call
with a small x makes an empty list for each call; after the first call that leaves it filled the module runs in eager.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from typing import Any

import torch
from torch import nn

from rekindle.functions.references import Path, containers_from
from rekindle.modules.module_tables import named_modules
from rekindle.process.origin import is_heap_class, is_of_library
from rekindle.process.registered_types import is_registered
from rekindle.reasons import Bypass, Reason
from rekindle.results.structure import is_scalar

_MOST_ITEMS = 1000  # of a container that lasts whose items are looked at for containers
_CONTAINERS = frozenset((list, tuple, dict))
_NO_OBJECTS = (type, types.ModuleType, types.FunctionType, torch.Tensor)
_OF_TORCH = frozenset(vars(nn.Module()))  # attributes of a module that torch keeps


class Lasting:
    """Finds the lists and dicts that were there before a forward ran, and will be when a graph of it runs.

    Make it before the forward runs.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before = [(module, dict(vars(module))) for module in named_modules(model).values()]
        self._paths: dict[int, tuple[Any, Path]] | None = None  # by identity of the container, which is kept alive

    def path(self, container: Any) -> Path | None:
        """Returns a path to a list or dict (functions/references.py), or None for one that the forward has made."""
        if self._paths is None:
            fresh = {(id(module), name) for module, before in self._before for name in _changed(before, vars(module))}
            self._paths = containers_from(self._model, fresh)
        return self._paths.get(id(container), (None, None))[1]


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [name for name, value in now.items() if name not in before or before[name] is not value]


class Contents:
    """Remembers what containers hold, and tells which of them was written since."""

    __slots__ = ("_kept", "_lasting")

    def __init__(self) -> None:
        self._kept: list[tuple[Any, tuple[Any, ...]]] = []
        self._lasting: set[int] = set()  # by identity

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, container: Any) -> Any:
        """Remembers a list, tuple, dict, cell, partial object, function or object, and returns it."""
        self._kept.append((container, _contents(container)))
        return container

    def add_lasting(self, value: Any) -> Any:
        """Remembers what lasts, with the lists and dicts in it, unless it is a library's object; returns it."""
        kind = type(value)
        if (kind not in _CONTAINERS and not _is_object(value)) or id(value) in self._lasting:
            return value
        self._lasting.add(id(value))
        self.add(value)
        if kind not in _CONTAINERS:
            inner = [item for name, item in vars(value).items() if type(item) in _CONTAINERS and name not in _OF_TORCH]
        else:
            items = dict.values(value) if kind is dict else value
            inner = [item for item in items if type(item) in _CONTAINERS] if len(items) <= _MOST_ITEMS else []
        for item in inner:
            self.add_lasting(item)
        return value

    def written(self) -> Any:
        """Returns a container that holds something else than it did, or None."""
        for container, before in self._kept:
            if not _same(before, _contents(container)):
                return container
        return None

    def references(self) -> int:
        """Returns how many references there are to the containers, together: more after a call that keeps one."""
        return sum(sys.getrefcount(container) for container, _ in self._kept if type(container) is not tuple or container)

    def shared_with(self, other: Contents) -> Any:
        """Returns a list or dict that both remember, or None.

        What a function leads to does not count: the Function calls it in its forward, where a write is seen.
        """
        mine, others = ({id(one): one for one, _ in contents._kept} for contents in (self, other))
        if any(type(one) is types.FunctionType for one in (*mine.values(), *others.values())):
            return None
        return next((one for key, one in mine.items() if key in others and type(one) in (list, dict)), None)

    def put_back(self) -> None:
        """Lets lists, dicts and objects hold what they did: whoever runs in the place of this call writes once more."""
        for container, before in self._kept:
            if _same(before, _contents(container)):
                continue
            if type(container) is list:
                container[:] = before
            elif (table := _table(container)) is not None:
                table.clear()
                table.update(zip(before[: len(before) // 2], before[len(before) // 2 :], strict=True))


def _is_object(value: Any) -> bool:
    """Tells whether an object has attributes that a key has; of a registered type, a user says what the key has."""
    kind = type(value)
    if kind.__dictoffset__ == 0 or isinstance(value, _NO_OBJECTS):
        return False
    return is_heap_class(kind) and not is_of_library(kind) and not is_registered(kind)


def _table(container: Any) -> dict[Any, Any] | None:
    if type(container) is dict:
        return container
    return None if type(container) in (list, tuple, types.CellType, functools.partial) else vars(container)


def _contents(container: Any) -> tuple[Any, ...]:
    kind = type(container)
    if kind is list:
        return tuple(container)
    if kind is tuple:
        return ()
    if kind is types.CellType:
        return () if container == types.CellType() else (container.cell_contents,)
    table = {**vars(container), **container.keywords} if kind is functools.partial else _table(container)
    return () if table is None else (*table, *table.values())


def _same(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    if len(before) != len(now):
        return False
    return all(map(operator.is_, before, now)) or all(map(_is_same, before, now))


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and is_scalar(one) and one == other)


def inner_parts(value: Any) -> list[Any]:
    """Returns what a value that is made anew for each call is made of, besides plain values: the parts of a container."""
    kind = type(value)
    if kind in (list, tuple):
        return list(value)
    if kind is dict:
        return list(value.values())
    if kind is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    if kind is types.MethodType:
        return [value.__self__]
    if kind is types.FunctionType and "<locals>" in value.__qualname__:
        return [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *map(_held, cells_of(value))]
    return []


def cells_of(function: types.FunctionType) -> list[types.CellType]:
    """Returns the cells of a closure that hold something else than the function itself."""
    return [cell for cell in function.__closure__ or () if cell != types.CellType() and _held(cell) is not function]


def _held(cell: types.CellType) -> Any:
    return cell.cell_contents


def writes_to(container: Any, function: type, position: int, when: str = "") -> Bypass:
    """Returns the refusal of a Function that writes to a container that its argument is, or leads to.

    when: says more about it
    """
    name = "variable of a closure" if type(container) is types.CellType else type(container).__name__
    what = f"the autograd Function {function.__qualname__} writes to a {name} that it gets by argument {position}"
    return Bypass(Reason.PYTHON_OP, f"{what}{when}; write to a copy, and return as a tensor what the forward is to know")
