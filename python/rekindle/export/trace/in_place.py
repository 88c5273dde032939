"""Finds the calls of torch that write to a tensor they are given, and what they write."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from rekindle.export.trace.leaves import tensors_of
from rekindle.reasons import Bypass, Reason

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


_HALVES = (torch.float16, torch.bfloat16)
# In the dtype that all operands promote to.
_PROMOTING = frozenset(
    """
    add sub subtract mul multiply div divide true_divide truediv floor_divide floordiv fmod remainder mod pow float_power
    atan2 arctan2 hypot copysign xlogy nextafter heaviside ldexp lerp clamp clip clamp_min clamp_max addcmul addcdiv gcd lcm
    igamma igammac bitwise_and bitwise_or bitwise_xor and or xor
    """.split()
)
_BOOLEAN = frozenset(
    """
    eq ne not_equal lt less le less_equal gt greater ge greater_equal logical_and logical_or logical_xor logical_not
    """.split()
)


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


def computed_apart(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]] | None:
    """Returns the call that computes what this one writes, where the two cannot be one operator; else None.

    That is so of an argument `out`, and where an operator computes in another dtype than its target's: `h.div_(x)` of a half `h`
    and a single `x` divides singles, while the exporter would round `x` first. So it does with the number in `h.mul_(0.9)`.
    """
    if isinstance(kwargs.get("out"), torch.Tensor):
        return _of_dtype(function, kwargs["out"].dtype), args, {name: item for name, item in kwargs.items() if name != "out"}
    name, target = getattr(function, "__name__", ""), target_of(args, kwargs)
    name = f"__{name[3:]}" if name in _IN_PLACE_DUNDERS else name.removesuffix("_")
    operands = tensors_of((args, kwargs))
    if not isinstance(target, torch.Tensor) or name.strip("_") not in _PROMOTING | _BOOLEAN:
        return None
    if name in _BOOLEAN:
        differs = target.dtype != torch.bool and not any(tensor.requires_grad for tensor in operands)
    else:
        dtypes = {tensor.dtype for tensor in operands}
        with_numbers = target.dtype in _HALVES and any(isinstance(item, (int, float)) for item in (*args, *kwargs.values()))
        fits = torch.can_cast(functools.reduce(torch.promote_types, dtypes), target.dtype)  # else it is eager's error
        differs = (len(dtypes) > 1 and fits) or with_numbers
    if not differs:
        return None
    before = target.clone()  # a backward reads what was there
    return getattr(torch.Tensor, name), exchanged(args, target, before), exchanged(kwargs, target, before)


def _of_dtype(function: Any, dtype: torch.dtype) -> Any:
    """Wraps a function so that it raises Bypass where its result has another dtype: with `out` it might compute in that."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.dtype != dtype:
            message = f"an argument out= of {dtype} is given what is {result.dtype}; convert the result instead"
            raise Bypass(Reason.UNSUPPORTED_OP, message)
        return result

    return call


def exchanged(values: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """Returns arguments with `new` wherever `old` is."""
    return tree_map_only(torch.Tensor, lambda value: new if value is old else value, values)


def target_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns what an in-place call writes."""
    written = kwargs.get("out") if kwargs.get("out") is not None else (args[0] if args else None)
    return kwargs.get("input") if written is None else written
