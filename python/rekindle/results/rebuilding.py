"""Rebuilds what a module returns from a graph's outputs, as results/contract.py described it; runs no code of classes' own."""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rekindle.reasons import Bypass, Reason
from rekindle.results import structure, views


class Structure:
    """Rebuilds what a module returns, as described by flatten_outputs."""

    def __init__(self, described: Any) -> None:
        self._views = views.Views(described["with_views"]) if "with_views" in described else None
        self._layout = described if self._views is None else described["result"]

    def rebuild(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], numbers: Sequence[int]) -> Any:
        """Returns the result of a call. Raises Bypass(unsupported_output) when a class is gone.

        outputs: of the graph
        inputs: the call's tensors, then the module's
        numbers: those that depend on sizes
        """
        made = [] if self._views is None else self._views.of(outputs, inputs, numbers)
        places = {"output": outputs, "input": inputs, "view": made, "number": numbers, "same": []}
        return _Rebuilding(places).of(self._layout)


class _Rebuilding:
    """Rebuilds one result."""

    def __init__(self, places: dict[str, Any]) -> None:
        self._places = places  # what a structure refers to by position, by kind

    def of(self, layout: Any) -> Any:
        """Returns what one part of a structure stands for."""
        (kind, content), *rest = layout.items()
        if kind in self._places:
            return self._places[kind][content]
        if kind == "value":
            return content
        if kind == "shared":
            made = self.of(content)
            self._places["same"].append(made)
            return made
        if kind in ("list", "tuple", "size"):
            items = [self.of(item) for item in content]
            return items if kind == "list" else tuple(items) if kind == "tuple" else torch.Size(items)
        if kind in ("dict", "OrderedDict"):
            pairs = ((key, self.of(item)) for key, item in content)
            return dict(pairs) if kind == "dict" else OrderedDict(pairs)
        if kind in ("dtype", "device"):
            return torch.device(content) if kind == "device" else _dtype(content)
        cls = _result_class(kind, content)
        if kind == "class":
            return cls
        items = rest[0][1]
        if kind == "object":
            return self._object(cls, items)
        if kind == "namedtuple":
            return cls(*map(self.of, items))
        if kind == "return_type":
            return cls([self.of(item) for item in items])
        return cls(**{key: self.of(item) for key, item in items})

    def _object(self, cls: type, items: list[Any]) -> Any:
        made = cls.__new__(cls)
        self._places["same"].append(made)
        vars(made).update((name, self.of(item)) for name, item in items)
        return made


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"the dtype {name!r} of the result does not exist")
    return found


# What a class of a result has to be: an entry must not be able to call just anything.
_KINDS: dict[str, Callable[[type], bool]] = {
    "namedtuple": lambda cls: issubclass(cls, tuple) and hasattr(cls, "_fields"),
    "return_type": structure.is_return_type,
    "model_output": lambda cls: issubclass(cls, OrderedDict) and dataclasses.is_dataclass(cls),
    "dataclass": lambda cls: dataclasses.is_dataclass(cls) and cls.__init__ is not object.__init__,
    "object": structure.is_plain_class,
    "class": lambda cls: True,
}


def _result_class(kind: str, name: list[str]) -> type:
    cls = find_class(name)
    if cls is None or kind not in _KINDS or not _KINDS[kind](cls):
        raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"the class {'.'.join(name)} of the result is not imported, or not a {kind}")
    return cls


def find_class(name: list[str]) -> type | None:
    """Finds a class by [module, qualified name] among the modules that are imported; None if it is not there."""
    found: Any = sys.modules.get(name[0])
    for part in name[1].split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None
