"""Tells calls of a wrapped module apart without looking into the module, and lists the tables that make up a module."""

from __future__ import annotations

import enum
import numbers
from collections.abc import Container
from functools import partial
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


def call_key(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor], values: list[Any], open_sizes: bool = False
) -> Any:
    """Returns a hashable description of a call's structure and of the dtypes, sizes and strides of its tensors.

    tensors: gets the distinct tensors, in flattening order
    values: gets the plain values, each with its type
    open_sizes: whether sizes that may be symbols are left out

    What is neither is told by its type only: a call with such an argument never runs from a graph.
    """
    seen: dict[int, int] = {}
    key = partial(_key, seen, tensors, values, open_sizes)
    return (*map(key, args), *((name, key(value)) for name, value in kwargs.items()))


def kind_key(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor], open_sizes: bool = False
) -> tuple[Any, ...]:
    """Returns what tells kinds of calls apart or, if `open_sizes`, families of kinds: (grad mode, call_key, *plain values).

    tensors: gets the call's distinct tensors, in flattening order
    """
    values: list[Any] = []
    layout = call_key(args, kwargs, tensors, values, open_sizes)
    return (torch.is_grad_enabled(), layout, *values)


def is_told_by_class(value: Any) -> bool:
    """Tells whether a call's key has of an argument its class alone, so that the call never runs from a graph."""
    values: list[Any] = []
    return _key({}, [], values, False, value) is type(value) and not values


def _key(seen: dict[int, int], tensors: list[torch.Tensor], values: list[Any], open_sizes: bool, value: Any) -> Any:
    """Describes one argument. A function of its own: one that held itself would be garbage after each call."""
    if isinstance(value, torch.Tensor):
        position = seen.setdefault(id(value), len(seen))
        if position == len(tensors):
            tensors.append(value)
        keys = keys_of(value)
        if not is_plain_kind(value):  # it may have no sizes or strides
            return (position, type(value), keys)
        meaning = (value.dtype, value.device, value.requires_grad, keys)
        if value.__dict__:  # such a call never runs from a graph, unless it is a tensor of the module
            meaning += (True,)
        if open_sizes and is_open(value):
            return (position, type(value), value.dim(), arrangement(value), *meaning)
        return (position, type(value), value.shape, value.stride(), *meaning)
    key = partial(_key, seen, tensors, values, open_sizes)
    if isinstance(value, (list, tuple)):
        return (type(value), *map(key, value))
    if isinstance(value, dict):
        return (type(value), *((type(name), name, key(item)) for name, item in value.items()))
    if isinstance(value, (float, complex)) or (type(value).__module__ == "numpy" and isinstance(value, numbers.Number)):
        values.append((type(value), repr(value)))
    elif value is None or type(value) in _HASHED or isinstance(value, enum.Enum):
        values.append((type(value), value))
    elif isinstance(value, slice):
        return (slice, key(value.start), key(value.stop), key(value.step))
    elif (items := structure.parts(value)) is not None:
        return (type(value), *((name, key(item)) for name, item in items))
    return type(value)
