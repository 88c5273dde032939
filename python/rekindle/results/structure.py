"""Takes containers apart that a module may take, and makes the same container with other items in it."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Generic

from torch import nn

Parts = list[tuple[Any, Any]]
_SCALARS = (type(None), bool, int, float, str)
_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def is_scalar(value: Any) -> bool:
    """Tells whether a contract holds the value as it is: a scalar of src/contract/json.h."""
    return type(value) in _SCALARS


def parts(value: Any) -> Parts | None:
    """Lists (key or position or field, item) for each item of a container; None for everything else.

    Containers are lists, tuples, namedtuples, what operators such as torch.max return, dicts, dataclasses and, as transformers
    has it, dataclasses that are dicts.
    """
    kind = type(value)
    if kind is list or kind is tuple or _is_namedtuple(kind) or is_return_type(kind):
        return list(enumerate(value))
    if kind is dict or kind is OrderedDict or _is_model_output(kind):
        return list(value.items())
    if dataclasses.is_dataclass(kind):
        return list(vars(value).items()) if hasattr(value, "__dict__") else _field_values(value)
    return None


def with_items(value: Any, items: list[Any]) -> Any:
    """Returns a container like `value` that holds `items` in the places of its parts."""
    kind = type(value)
    if kind is list or kind is tuple or is_return_type(kind):
        return kind(items)
    if _is_namedtuple(kind):
        return kind._make(items)
    keys = [key for key, _ in parts(value) or ()]
    pairs = zip(keys, items, strict=True)
    if _is_model_output(kind):
        return kind(**dict(pairs))
    if dataclasses.is_dataclass(kind):
        other = copy.copy(value)
        for name, item in pairs:
            object.__setattr__(other, name, item)
        return other
    return kind(pairs)


def kind_of(value: Any) -> str:
    """Names a container in a key: by its kind and its class, where that is not Python's own."""
    kind = type(value)
    if kind in (list, tuple, dict, OrderedDict):
        return kind.__name__
    if is_return_type(kind):
        return f"return_type {kind.__qualname__}"
    name = "namedtuple" if _is_namedtuple(kind) else "model_output" if _is_model_output(kind) else "dataclass"
    return f"{name} {kind.__module__}.{kind.__qualname__}"


def same_items(before: Any, after: Any) -> bool:
    """Tells whether two containers hold, at every depth, the same objects under the same keys."""
    mine, other = parts(before), parts(after)
    if mine is None or other is None:
        return before is after
    return (
        type(before) is type(after)
        and [key for key, _ in mine] == [key for key, _ in other]
        and all(same_items(x, y) for (_, x), (_, y) in zip(mine, other, strict=True))
    )


def snapshot(value: Any) -> Any:
    """Copies all containers of `value`, around the same leaves."""
    found = parts(value)
    return value if found is None else with_items(value, [snapshot(item) for _, item in found])


def is_plain_class(kind: type) -> bool:
    """Tells whether an object of the class is its `__dict__`, to which anything can be written without running its code."""
    bases = [base for base in kind.__mro__ if base not in (object, ABC, Generic)]
    return (
        kind.__new__ is object.__new__
        and kind.__dictoffset__ != 0
        and not issubclass(kind, (nn.Module, type))
        and not any({"__slots__", "__del__", "__setstate__"} & vars(base).keys() for base in bases)
        and all(base.__flags__ & _MADE_BY_PYTHON for base in bases)
    )


def _is_namedtuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_make")


def is_return_type(kind: type) -> bool:
    """Tells whether it is a class of torch.return_types: a tuple with names for its items, made of a sequence."""
    return kind.__module__ == "torch.return_types" and issubclass(kind, tuple)


def _is_model_output(kind: type) -> bool:
    return issubclass(kind, OrderedDict) and dataclasses.is_dataclass(kind)


def _field_values(value: Any) -> Parts:
    return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]


class WithAttributes(tuple[Any, ...]):
    """Holds what a forward returned, then what it has set as attributes of its modules; flattened as a tuple.

    attributes: (title for messages, value) of each
    """

    titles: list[str]

    def __new__(cls, result: Any, attributes: Sequence[tuple[str, Any]]) -> WithAttributes:
        """Makes one; see the class."""
        made = super().__new__(cls, (result, *(value for _, value in attributes)))
        made.titles = [title for title, _ in attributes]
        return made
