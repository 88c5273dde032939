"""Finds the calls of torch that write to a tensor they are given, and what they write."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from rekindle.export.trace.leaves import tensors_of

_IN_PLACE_DUNDERS = {
    "__setitem__",
    "__iadd__",
    "__isub__",
    "__imul__",
    "__itruediv__",
    "__ifloordiv__",
    "__imod__",
    "__ipow__",
    "__iand__",
    "__ior__",
    "__ixor__",
    "__ilshift__",
    "__irshift__",
}


def is_in_place(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tells whether a call writes to what it is given, by its name or because it is told to."""
    name = getattr(function, "__name__", "")
    if kwargs.get("out") is not None or name in _IN_PLACE_DUNDERS:
        return True
    if name.endswith("_") and not name.endswith("__"):
        return name != "requires_grad_"
    return getattr(function, "__module__", None) == "torch.nn.functional" and _asked_to_write(function, args, kwargs)


_signature = functools.lru_cache(inspect.signature)


def _asked_to_write(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tells whether a function of torch.nn.functional is called with inplace=True."""
    signature = _signature(function)
    return "inplace" in signature.parameters and bool(signature.bind(*args, **kwargs).arguments.get("inplace"))


def written_by(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors that a call of torch, or of an operator under torch.ops, writes."""
    found: list[Any] = []
    if is_in_place(function, args, kwargs):
        target = target_of(args, kwargs)
        found = [kwargs if target is None else target]
    elif isinstance(function, torch._ops.OpOverload):
        found = _marked_as_written(function, args, kwargs)
    elif isinstance(function, torch._ops.OpOverloadPacket):
        found = [_marked_as_written(getattr(function, name), args, kwargs) for name in function.overloads()]
    return tensors_of(found)


def _marked_as_written(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    marked = [(i, each.name) for i, each in enumerate(operator._schema.arguments) if each.alias_info and each.alias_info.is_write]
    return [args[i] if i < len(args) else kwargs.get(name) for i, name in marked]


def exchanged(values: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """Returns arguments with `new` wherever `old` is."""
    return tree_map_only(torch.Tensor, lambda value: new if value is old else value, values)


def target_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns what an in-place call writes."""
    written = kwargs.get("out") if kwargs.get("out") is not None else (args[0] if args else None)
    return kwargs.get("input") if written is None else written
