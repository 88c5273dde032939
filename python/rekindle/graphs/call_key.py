"""Tells calls of a wrapped module apart without looking into the module, and lists the tables that make up a module."""

from __future__ import annotations

import enum
import numbers
from collections.abc import Container
from typing import Any

import torch
from torch import nn

from rekindle.modules.tensor_kinds import is_plain_kind, keys_of
from rekindle.results import structure
from rekindle.results.layouts import arrangement
from rekindle.sizes.shapes import is_open

# Plain arguments that are compared by value: those that the fingerprint takes, as far as they have a hash.
_HASHED = (bool, int, str, bytes, torch.dtype, torch.device, torch.memory_format, torch.layout, torch.qscheme)


def tables_of(module: nn.Module, but: Container[str] = ()) -> list[dict[str, Any]]:
    """Lists the dicts of a module that decide how it computes: attributes, parameters, buffers, children, hooks.

    but: names of those that are left out
    """
    tables = [
        value for name, value in module.__dict__.items() if name.startswith("_") and isinstance(value, dict) and name not in but
    ]
    return [module.__dict__, *tables]


def kind_key(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[torch.Tensor],
    open_sizes: bool = False,
    told_apart: Container[int] = (),
) -> tuple[Any, ...]:
    """Returns what tells kinds of calls apart or, if `open_sizes`, families of kinds: (grad mode, layout, *plain values).

    The layout is a call's structure, with the dtypes, sizes and strides of its tensors. What is neither tensor, plain value nor
    container is told by its type only: a call with such an argument never runs from a graph.

    tensors: gets the call's distinct tensors, in flattening order
    open_sizes: whether sizes that may be symbols are left out
    told_apart: ids of containers that are told from others like them
    """
    keys = _Keys(tensors, open_sizes, told_apart)
    layout = (*map(keys.key, args), *((name, keys.key(value)) for name, value in kwargs.items()))
    return (torch.is_grad_enabled(), layout, *keys.values)


def is_told_by_class(value: Any) -> bool:
    """Tells whether a call's key has of an argument its class alone, so that the call never runs from a graph."""
    keys = _Keys([], False, ())
    return keys.key(value) is type(value) and not keys.values


class _Keys:
    """Describes the arguments of one call, each once.

    tensors: gets the distinct tensors, in flattening order
    open_sizes, told_apart: as of kind_key
    """

    def __init__(self, tensors: list[torch.Tensor], open_sizes: bool, told_apart: Container[int]) -> None:
        self.values: list[Any] = []  # plain values, each with its type
        self._tensors, self._open_sizes, self._told_apart = tensors, open_sizes, told_apart
        self._seen: dict[int, int] = {}  # position of each tensor
        # Position of each container that can change, and whether all of its items have been described.
        self._containers: dict[int, tuple[int, bool]] = {}

    def key(self, value: Any) -> Any:
        """Describes one argument, or an item of one."""
        if isinstance(value, torch.Tensor):
            return self._of_tensor(value)
        if isinstance(value, tuple):
            return (type(value), *map(self.key, value))
        if isinstance(value, (float, complex)) or (type(value).__module__ == "numpy" and isinstance(value, numbers.Number)):
            self.values.append((type(value), repr(value)))
        elif value is None or type(value) in _HASHED or isinstance(value, enum.Enum):
            self.values.append((type(value), value))
        elif isinstance(value, slice):
            return (slice, self.key(value.start), self.key(value.stop), self.key(value.step))
        elif isinstance(value, (list, dict)) or structure.parts(value) is not None:
            return self._of_container(value)
        return type(value)

    def _of_tensor(self, value: torch.Tensor) -> Any:
        position = self._seen.setdefault(id(value), len(self._seen))
        if position == len(self._tensors):
            self._tensors.append(value)
        keys = keys_of(value)
        if not is_plain_kind(value):  # it may have no sizes or strides
            return (position, type(value), keys)
        meaning = (value.dtype, value.device, value.requires_grad, keys)
        if value.__dict__:  # such a call never runs from a graph, unless it is a tensor of the module
            meaning += (True,)
        if self._open_sizes and is_open(value):
            return (position, type(value), value.dim(), arrangement(value), *meaning)
        return (position, type(value), value.shape, value.stride(), *meaning)

    def _of_container(self, value: Any) -> Any:
        """Describes a container by identity, too: a forward may ask whether two of them are one.

        Raises ValueError for one that holds itself.
        """
        known = self._containers.get(id(value))
        if known is not None:
            position, is_whole = known
            if not is_whole:
                raise ValueError("a container holds itself")
            return ("again", position)
        position = len(self._containers)
        self._containers[id(value)] = (position, False)
        own = (type(value), id(value)) if id(value) in self._told_apart else (type(value),)
        items = self._items_of(value)
        self._containers[id(value)] = (position, True)
        return (*own, *items)

    def _items_of(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, list):
            return tuple(map(self.key, value))
        if isinstance(value, dict):
            return tuple((type(name), name, self.key(item)) for name, item in value.items())
        return tuple((name, self.key(item)) for name, item in structure.parts(value) or ())
