"""Flattens the tensors of a call and of its result, and rebuilds results from a graph's outputs: an entry's calling contract.

Structures are plain JSON (src/contract/structure.h), so that an entry holds no code. A class in a result (a namedtuple, a
transformers ModelOutput or cache) is stored by name and found again among the modules that are already imported; nothing is
imported by name. Objects that are no containers get their attributes, and no code of their class runs.

An example: `forward` returns {"loss": loss, "tokens": tokens, "task": "lm"}, where tokens is its argument. flatten_outputs gives
the structure {"dict": [["loss", {"output": 0}], ["tokens", {"input": 0}], ["task", {"value": "lm"}]]} and the outputs [loss].
When the graph gives [tensor(1.5)] for a later call, `Structure.rebuild` returns {"loss": tensor(1.5), "tokens": that call's
argument, "task": "lm"}.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from rekindle.reasons import Bypass, Reason
from rekindle.results import structure, views


def flatten_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Lists the distinct tensors of a call, in order of first appearance: positional, then keyword arguments."""
    found: dict[int, torch.Tensor] = {}
    for value in (*args, *kwargs.values()):
        _collect(value, found)
    return list(found.values())


def _collect(value: Any, found: dict[int, torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        found.setdefault(id(value), value)
        return
    for _, item in structure.parts(value) or ():
        _collect(item, found)


def rebuild_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the same call, (args, kwargs), with `tensors` in the place of its own, in the order of flatten_arguments."""
    replacement = dict(zip(map(id, flatten_arguments(args, kwargs)), tensors, strict=True))
    swapped = functools.partial(_swapped, replacement)
    return tuple(map(swapped, args)), {name: swapped(value) for name, value in kwargs.items()}


def _swapped(replacement: dict[int, torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return replacement[id(value)]
    found = structure.parts(value)
    return value if found is None else structure.with_items(value, [_swapped(replacement, item) for _, item in found])


def flatten_outputs(
    result: Any,
    inputs: list[torch.Tensor],
    objects: list[Any] | None = None,
    number: Callable[[Any], int | None] = lambda value: None,
    steps: views.StepsOf = lambda view, base: None,
    own: Mapping[int, Any] | None = None,
) -> tuple[Any, list[torch.Tensor]]:
    """Takes a result apart: (structure, distinct tensors that the graph computes).

    An input that is returned as it is becomes a reference to it; views are described (results/views.py).

    inputs: the call's tensors, then those of the module; the structure refers to them by position
    objects: gets those in the result that are no containers, then its lists and dicts; they have to be new ones at each call
    number: gives the position among the numbers that depend on sizes, for a value that is one
    steps: gives how a view is made, where that is known
    own: what the module holds or the forward was given, by identity: none of it may be in the result

    Raises Bypass(unsupported_output) for what cannot be rebuilt.
    """
    given = {id(tensor): i for i, tensor in enumerate(inputs)}
    walk = _Flattening(given, [] if objects is None else objects, number, own or {})
    found = walk.with_attributes(result) if type(result) is structure.WithAttributes else walk.of(result, "result")
    walk.objects += walk.containers
    outputs, described, where = views.separate(walk.results, inputs, steps)
    for tensor, (kind, position) in zip(walk.results, where, strict=True):
        walk.places[id(tensor)][kind] = position
    return ({"with_views": described, "result": found} if described else found), outputs


@dataclasses.dataclass
class _Flattening:
    """Walks through one result, and collects its tensors and objects."""

    given: dict[int, int]  # positions of the inputs, by identity
    objects: list[Any]  # those that are no containers; "same" counts them
    number: Callable[[Any], int | None]  # gives a value's position among the numbers that depend on sizes
    own: Mapping[int, Any] = dataclasses.field(default_factory=dict)  # what may not be in the result, by identity
    containers: list[Any] = dataclasses.field(default_factory=list)  # lists and dicts that were met
    places: dict[int, dict[str, int]] = dataclasses.field(default_factory=dict)  # structures of `results`, by identity
    results: list[torch.Tensor] = dataclasses.field(default_factory=list)  # distinct tensors that are no inputs

    def with_attributes(self, values: structure.WithAttributes) -> Any:
        """Returns the structure of a result and of what is set; raises Bypass(state_mutated) for what no graph can set."""
        found = [self.of(values[0], "result")]
        for value, title in zip(values[1:], values.titles, strict=True):
            try:
                found.append(self.of(value, title))
            except Bypass as bypass:
                raise Bypass(Reason.STATE_MUTATED, f"the forward sets the attribute {title}, and {bypass.message}") from bypass
        return {"tuple": found}

    def of(self, value: Any, path: str) -> Any:
        """Returns the structure of one value; `path`: for messages."""
        if isinstance(value, torch.Tensor):
            return self._of_tensor(value)
        if id(value) in self.own:
            what = f"{path} is a {type(value).__name__} that the module holds, or that the forward was given"
            raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"{what}, and a graph would return another; return a copy")
        if isinstance(value, (list, dict)):
            self.containers.append(value)
        if (position := self.number(value)) is not None:
            return {"number": position}
        if structure.is_scalar(value):
            return {"value": value}
        if type(value) in (list, tuple):
            return {type(value).__name__: self._items(value, path)}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"namedtuple": _name_of(type(value), path), "items": self._items(value, path)}
        if structure.is_return_type(type(value)):
            return {"return_type": _name_of(type(value), path), "items": self._items(value, path)}
        if isinstance(value, torch.Size):
            return {"size": self._items(value, path)}
        if _is_plain_dataclass(value):
            items = [[name, self.of(item, f"{path}.{name}")] for name, item in vars(value).items()]
            return {"dataclass": _name_of(type(value), path), "items": items}
        if isinstance(value, (dict, OrderedDict)) and all(map(structure.is_scalar, value)):
            items = [[key, self.of(item, f"{path}[{key!r}]")] for key, item in value.items()]
            if type(value) in (dict, OrderedDict):
                return {type(value).__name__: items}
            if dataclasses.is_dataclass(value) and isinstance(value, OrderedDict):
                return {"model_output": _name_of(type(value), path), "items": items}
        return self._of_object(value, path)

    def _items(self, value: Any, path: str) -> list[Any]:
        return [self.of(item, f"{path}[{i}]") for i, item in enumerate(tuple(value))]

    def _of_tensor(self, value: torch.Tensor) -> Any:
        if id(value) in self.given:
            return {"input": self.given[id(value)]}
        if id(value) not in self.places:
            self.places[id(value)] = {}  # where it comes from is known once all are
            self.results.append(value)
        return self.places[id(value)]

    def _of_object(self, value: Any, path: str) -> Any:
        if isinstance(value, (torch.dtype, torch.device)):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        if isinstance(value, type):
            return {"class": _name_of(value, path)}
        known = next((i for i, other in enumerate(self.objects) if other is value), None)
        if known is not None:
            return {"same": known}
        kind = type(value)
        if not structure.is_plain_class(kind):
            raise Bypass(
                Reason.UNSUPPORTED_OUTPUT,
                f"{path} is a {kind.__module__}.{kind.__qualname__}; return tensors, plain values or containers of them",
            )
        self.objects.append(value)
        items = [[name, self.of(item, f"{path}.{name}")] for name, item in vars(value).items()]
        return {"object": _name_of(kind, path), "items": items}


def with_numbers(layout: Any, numbers: list[int]) -> Any:
    """Returns a structure with these values of the numbers that depend on sizes."""
    if isinstance(layout, dict):
        if layout.keys() == {"number"}:
            return {"value": numbers[layout["number"]]}
        return {name: item if name == "with_views" else with_numbers(item, numbers) for name, item in layout.items()}
    return [with_numbers(item, numbers) for item in layout] if isinstance(layout, list) else layout


def is_like(layout: Any, other: Any) -> bool:
    """Tells whether two structures, as JSON, are equal but for numbers that depend on sizes; the second has values of these."""
    if isinstance(layout, dict) and isinstance(other, dict):
        if layout.keys() == {"number"}:
            return other.keys() == {"value"} and type(other["value"]) is int
        if "steps" in layout:  # of a view; where it lies follows from them
            return all(is_like(layout[name], other.get(name)) for name in layout.keys() - {"steps"})
        return layout.keys() == other.keys() and all(is_like(layout[name], other[name]) for name in layout)
    if isinstance(layout, list) and isinstance(other, list):
        return len(layout) == len(other) and all(map(is_like, layout, other))
    return layout == other


def _is_plain_dataclass(value: Any) -> bool:
    """Tells whether calling the class with the attributes by name makes the same object again."""
    kind = type(value)
    if not dataclasses.is_dataclass(kind) or isinstance(value, OrderedDict) or not hasattr(value, "__dict__"):
        return False
    made_by_dataclass = kind.__dataclass_params__.init and "__init__" in vars(kind) and not hasattr(kind, "__post_init__")
    names = [field.name for field in dataclasses.fields(kind)]
    return made_by_dataclass and all(field.init for field in dataclasses.fields(kind)) and list(vars(value)) == names


def _name_of(cls: type, path: str) -> list[str]:
    if _find_class([cls.__module__, cls.__qualname__]) is not cls:
        raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"{path} is of the local class {cls.__qualname__}, which cannot be found by name")
    return [cls.__module__, cls.__qualname__]


def _find_class(name: list[str]) -> type | None:
    found: Any = sys.modules.get(name[0])
    for part in name[1].split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


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
    cls = _find_class(name)
    if cls is None or kind not in _KINDS or not _KINDS[kind](cls):
        raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"the class {'.'.join(name)} of the result is not imported, or not a {kind}")
    return cls
