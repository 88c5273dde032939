"""Adds the leaves of a call's inputs: their structure, tensors by description, plain values by value."""

from __future__ import annotations

import enum
import numbers
from dataclasses import dataclass, field
from typing import Any

import torch

from rekindle.key.values import tensors
from rekindle.key.values.walker import Walker
from rekindle.modules.tensor_kinds import unlike_plain
from rekindle.reasons import Bypass, Reason
from rekindle.results import structure

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    str,
    bytes,
    complex,
    slice,
    torch.dtype,
    torch.device,
    torch.Size,
    torch.memory_format,
    torch.layout,
    torch.qscheme,
)


@dataclass
class Found:
    """Holds the tensors that were found in a call so far."""

    open_sizes: bool  # whether their sizes are left open
    tensors: list[torch.Tensor] = field(default_factory=list)  # in the order of the leaves


def add_signature(walker: Walker, args: tuple[Any, ...], kwargs: dict[str, Any], open_sizes: bool = False) -> list[torch.Tensor]:
    """Adds the leaves of the call's inputs and returns its tensors in order; raises Bypass(unsupported_input).

    open_sizes: as of tensors.describe
    """
    found = Found(open_sizes)
    walker.emit("input", f"args[{len(args)}] kwargs[{len(kwargs)}]")
    for index, value in enumerate(args):
        _add(walker, f"input.args[{index}]", value, found)
    for name, value in kwargs.items():
        _add(walker, f"input.{name}", value, found)
    return found.tensors


def _add(walker: Walker, path: str, value: Any, found: Found) -> None:
    kind = type(value)
    if isinstance(value, torch.Tensor):
        _add_tensor(walker, path, value, found.open_sizes)
        found.tensors.append(value)
    elif kind in _PLAIN or isinstance(value, enum.Enum) or (kind.__module__ == "numpy" and isinstance(value, numbers.Number)):
        walker.walk(path, value)
    elif (items := structure.parts(value)) is not None:
        if not isinstance(value, tuple) and walker.seen(path, value):
            return
        walker.emit(path, f"{structure.kind_of(value)}[{len(items)}]")
        if kind.__module__ not in ("builtins", "collections"):
            walker.emit(f"{path}.class", walker.add_class(kind))
        for key, item in items:
            walker.walk(f"{path} key", key)
            _add(walker, f"{path}[{key!r}]", item, found)
    else:
        raise _unsupported(
            path,
            f"a {kind.__module__}.{kind.__qualname__}",
            "pass tensors, plain values, or containers of them",
        )


def _add_tensor(walker: Walker, path: str, value: torch.Tensor, open_sizes: bool) -> None:
    if not tensors.is_plain(value):
        kind = type(value)
        raise _unsupported(path, f"a tensor subclass {kind.__module__}.{kind.__qualname__}", "pass a plain tensor")
    if (other := unlike_plain(value)) is not None:
        raise _unsupported(path, other, "pass a dense tensor without names")
    if not walker.seen(path, value):
        walker.emit(path, tensors.describe(value, walker.devices, open_sizes))
        if value.__dict__:  # a trace runs on other tensors, which have none
            name = next(iter(value.__dict__))
            raise _unsupported(path, f"a tensor with an attribute {name!r}", "pass what it holds as an argument of its own")


def _unsupported(path: str, what: str, remedy: str) -> Bypass:
    return Bypass(Reason.UNSUPPORTED_INPUT, f"{path} is {what}; {remedy}")
