"""Keeps what users declare about their autograd Functions: by rekindle.register_python_op, or class attributes of the Function.

A declaration is part of the key of every graph: a changed one is a miss.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from rekindle.errors import PythonOpError


@dataclass(frozen=True)
class Declaration:
    """Says how a Function runs inside of graphs; see register_python_op. None: nothing is said."""

    inplace_map: tuple[tuple[int, int], ...] | None = None  # (output, input), sorted
    infer_shape: Callable[..., Any] | None = None  # gives meta tensors like the results
    export: Callable[..., Any] | None = None  # runs instead of the Function in an export
    inline: bool | None = None  # whether the graph gets the operations of forward
    recompute: bool | None = None  # whether the backward calls forward again, for what it saves


_declared: dict[type, Declaration] = {}
# The same by name, for the key: what a graph's guard watches.
_key: dict[str, tuple[Any, ...]] = {}


def register_python_op(
    function: type,
    *,
    inplace_map: Mapping[int, int] | None = None,
    infer_shape: Callable[..., Any] | None = None,
    export: Callable[..., Any] | None = None,
    inline: bool | None = None,
    recompute: bool | None = None,
) -> type:
    """Declares how an autograd Function runs inside of graphs, and returns the Function. See docs/python-ops.md.

    What is None keeps what a class attribute of that name says. A later registration replaces an earlier one.

    inplace_map: output -> input (positions among what forward returns, and among the arguments of apply) that share memory in
        every call. Such an output is not copied; a call where it does not is a PythonOpError.
    infer_shape: called with the arguments of apply, tensors on the meta device, for results like those of forward; it makes
        graphs serve input sizes that no export saw.
    export: called with the arguments of apply instead of the Function while a graph is exported, under autograd; what it computes
        with torch becomes part of the graph, as one call of an operator of torch.library does.
    inline: True: the operations of forward become part of the graph, and autograd differentiates them; backward is ignored.
        False: the Function is called back even where the option inline_functions is on, or Rekindle has an export for it.
    recompute: True: the graph keeps the inputs of forward alone, and calls it again in the backward for what it saves, from the
        same random states. A call that writes to an input in place saves as ever.

    Raises PythonOpError for a class that is no Function, and for declarations that mean nothing.
    """
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise PythonOpError(f"register_python_op takes a subclass of torch.autograd.Function, not {function!r}")
    made = _checked(function, Declaration(_pairs(function, inplace_map), infer_shape, export, inline, recompute))
    _declared[function] = made
    same_name = [
        known for known in _declared if (known.__module__, known.__qualname__) == (function.__module__, function.__qualname__)
    ]
    name = f"{function.__module__}.{function.__qualname__}#{same_name.index(function)}"
    _key[name] = tuple(getattr(made, field.name) for field in fields(Declaration))
    return function


def declaration_of(function: type) -> Declaration:
    """Returns what holds for a Function: registered, or else said by a class attribute.

    Raises PythonOpError for a bad attribute.
    """
    registered = _declared.get(function, Declaration())
    attributes = {field.name: _attribute(function, field.name) for field in fields(Declaration)}
    attributes["inplace_map"] = _pairs(function, attributes["inplace_map"])
    said = _checked(function, Declaration(**attributes))
    chosen = {
        field.name: getattr(said if getattr(registered, field.name) is None else registered, field.name)
        for field in fields(Declaration)
    }
    return Declaration(**chosen)


def _attribute(function: type, name: str) -> Any:
    found = inspect.getattr_static(function, name, None)
    return found.__func__ if isinstance(found, staticmethod) else found


def _pairs(function: type, inplace_map: Any) -> tuple[tuple[int, int], ...] | None:
    """Returns an inplace_map as (output, input) pairs, sorted; raises PythonOpError for what is none."""
    if inplace_map is None:
        return None
    pairs = list(inplace_map.items()) if isinstance(inplace_map, Mapping) else [(None, None)]
    if any(type(i) is not int or i < 0 for pair in pairs for i in pair):
        raise PythonOpError(
            f"inplace_map of the autograd Function {function.__qualname__} is {inplace_map!r}; it maps positions of outputs to "
            "positions of inputs, as {0: 0}"
        )
    return tuple(sorted(pairs))


def _checked(function: type, said: Declaration) -> Declaration:
    """Returns what is said of a Function; raises PythonOpError for what means nothing."""
    what = f"of the autograd Function {function.__qualname__}"
    for name, value in (("infer_shape", said.infer_shape), ("export", said.export)):
        if value is not None and not callable(value):
            raise PythonOpError(f"{name} {what} is {value!r}, which cannot be called")
    for name, flag in (("inline", said.inline), ("recompute", said.recompute)):
        if flag is not None and type(flag) is not bool:
            raise PythonOpError(f"{name} {what} is {flag!r}; it must be True or False")
    if said.inline and said.export is not None:
        raise PythonOpError(f"the autograd Function {function.__qualname__} has both inline=True and an export; choose one")
    if said.recompute and (said.inline or said.export is not None or said.inplace_map):
        other = "inline=True" if said.inline else "an export" if said.export is not None else "an inplace_map"
        raise PythonOpError(f"the autograd Function {function.__qualname__} has both recompute=True and {other}; choose one")
    return said


def registrations() -> dict[str, tuple[Any, ...]]:
    """Returns all that is registered, for the key: the dict itself, so that a guard sees it change."""
    return _key
