"""Describes how one tensor is a view of another: by the calls that make it, so that it can be made again at other sizes.

The grammar of steps, and which methods they may be, are in src/contract/view_steps.h.
An example: `x.select(1, 0).flatten()` is [["select", [1, 0], {}, null], ["flatten", [], {}, null]].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rekindle import _native

Step = list[Any]

_PROPERTIES: tuple[str, ...] = _native.VIEW_PROPERTIES
_METHODS: tuple[str, ...] = _native.VIEW_METHODS
# Of another tensor they need the sizes.
_LIKE = {torch.Tensor.view_as: "view", torch.Tensor.expand_as: "expand", torch.Tensor.reshape_as: "reshape"}
_FUNCTIONS: dict[Any, str] = {
    **{getattr(torch.Tensor, name).__get__: name for name in _PROPERTIES},
    **{getattr(torch, name): name for name in (*_METHODS, "real", "imag") if hasattr(torch, name)},
    **{getattr(torch.Tensor, name): name for name in _METHODS if hasattr(torch.Tensor, name)},
    torch.functional.split: "split",
    torch.Tensor.data.__get__: "detach",
}


class NotAStep(Exception):
    """Says that nothing tells how a tensor is a view of another."""


def recorded(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shape: Callable[[torch.Tensor], Any]) -> Step | None:
    """Returns the step that a call of `function` is, with Python's own arguments; None for a call that makes no view.

    args, kwargs: those of the call without the tensor that is viewed
    shape: gives the sizes of a tensor
    """
    if function in _LIKE:
        return [_LIKE[function], [shape(*args, *kwargs.values())], {}, None]
    name = _FUNCTIONS.get(function)
    return None if name is None else [name, list(args), kwargs, None]


def encoded(steps: Sequence[Step], number: Callable[[Any], int | None]) -> list[Step]:
    """Returns steps as JSON. Raises NotAStep for arguments of other kinds.

    number: gives the position of a number, as in contract.flatten_outputs
    """

    def one(value: Any) -> Any:
        if (position := number(value)) is not None:
            return {"number": position}
        if value is None or type(value) is int:
            return value
        if value is Ellipsis:
            return "..."
        if type(value) is slice:
            return {"slice": [one(value.start), one(value.stop), one(value.step)]}
        if isinstance(value, (list, tuple)):
            return [one(item) for item in tuple(value)]
        raise NotAStep

    return [
        [name, [one(arg) for arg in args], {key: one(arg) for key, arg in kwargs.items()}, item]
        for name, args, kwargs, item in steps
    ]


def repeated(steps: Sequence[Step], base: torch.Tensor, argument: Callable[[Any], Any]) -> torch.Tensor:
    """Returns what the steps make of a tensor. Raises NotAStep for an unknown name.

    argument: gives what a step's argument stands for
    """
    for name, args, kwargs, item in steps:
        if name in _PROPERTIES:
            made = getattr(base, name)
        elif name in _METHODS:
            made = _method(name)(base, *map(argument, args), **{key: argument(arg) for key, arg in kwargs.items()})
        else:
            raise NotAStep
        base = made if item is None else made[item]
    return base


def _method(name: str) -> Callable[..., Any]:
    """Returns that of tensors or, as view_as_real is none, the function."""
    return getattr(torch.Tensor, name) if hasattr(torch.Tensor, name) else getattr(torch, name)


def decoded(numbers: Sequence[int]) -> Callable[[Any], Any]:
    """Returns a function that gives the argument of a step that was encoded, given these numbers."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(one, value))
        if isinstance(value, dict):
            ((kind, content),) = value.items()
            return numbers[content] if kind == "number" else slice(*map(one, content))
        return Ellipsis if value == "..." else value

    return one
