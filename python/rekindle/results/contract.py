"""Flattens the tensors of a call and of its result: an entry's calling contract, of which rebuilding.py makes results again.

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
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rekindle.reasons import Bypass, Reason
from rekindle.results import structure, views
from rekindle.results.rebuilding import find_class


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
    objects: gets those in the result that are no containers, then containers that can be written to; a call has to make new ones
    number: gives the position among the numbers that depend on sizes, for a value that is one
    steps: gives how a view is made, where that is known
    own: what the module holds or the forward was given, by identity: none of it may be in the result

    Raises Bypass(unsupported_output) for what cannot be rebuilt.
    """
    given = {id(tensor): i for i, tensor in enumerate(inputs)}
    walk = _Flattening(given, [] if objects is None else objects, number, own or {})
    found = walk.with_attributes(result) if type(result) is structure.WithAttributes else walk.of(result, "result")
    walk.number_shared(found)
    walk.objects += walk.containers
    outputs, described, where = views.separate(walk.results, inputs, steps)
    for tensor, (kind, position) in zip(walk.results, where, strict=True):
        walk.places[id(tensor)][kind] = position
    return ({"with_views": described, "result": found} if described else found), outputs


@dataclasses.dataclass
class _Flattening:
    """Walks through one result, and collects its tensors and objects."""

    given: dict[int, int]  # positions of the inputs, by identity
    objects: list[Any]  # those that are no containers
    number: Callable[[Any], int | None]  # gives a value's position among the numbers that depend on sizes
    own: Mapping[int, Any] = dataclasses.field(default_factory=dict)  # what may not be in the result, by identity
    containers: list[Any] = dataclasses.field(default_factory=list)  # that can be written to
    met: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)  # structures of both, by identity; empty: not done
    again: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # {"same": structure of one that was met before}
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
        if (met := self.met.get(id(value))) is not None:
            return self._met_again(met, path)
        if (position := self.number(value)) is not None:
            return {"number": position}
        if structure.is_scalar(value):
            return {"value": value}
        if isinstance(value, (list, dict)) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
            self.containers.append(value)
            described = self.met[id(value)] = {}
            described.update(self._of_items(value, path))
            return described
        return self._of_items(value, path)

    def _met_again(self, met: dict[str, Any], path: str) -> Any:
        if not met:
            raise Bypass(
                Reason.UNSUPPORTED_OUTPUT, f"{path} is a container that holds itself; return tensors, or one that does not"
            )
        self.again.append({"same": met})
        return self.again[-1]

    def number_shared(self, found: Any) -> None:
        """Numbers, in the whole structure `found`, what "same" refers to: objects, and containers that are in several places."""
        for reference in self.again:
            met = reference["same"]
            if met.keys().isdisjoint({"object", "shared"}):
                described = dict(met)
                met.clear()
                met["shared"] = described
        if self.again:
            numbers = dict[int, int]()
            _number(found, numbers)
            for reference in self.again:
                reference["same"] = numbers[id(reference["same"])]

    def _of_items(self, value: Any, path: str) -> Any:
        if type(value) in (list, tuple):
            return {type(value).__name__: self._items(value, path)}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"namedtuple": _name_of(type(value), path), "items": self._items(value, path)}
        if structure.is_return_type(type(value)):
            return {"return_type": _name_of(type(value), path), "items": self._items(value, path)}
        if isinstance(value, torch.Size):
            return {"size": self._items(value, path)}
        if is_plain_dataclass(value):
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
        kind = type(value)
        if not structure.is_plain_class(kind):
            raise Bypass(
                Reason.UNSUPPORTED_OUTPUT,
                f"{path} is a {kind.__module__}.{kind.__qualname__}; return tensors, plain values or containers of them",
            )
        self.objects.append(value)
        described = self.met.setdefault(id(value), {})
        described["object"] = _name_of(kind, path)  # from here on what it holds may lead back to it
        described["items"] = [[name, self.of(item, f"{path}.{name}")] for name, item in vars(value).items()]
        return described


def _number(found: Any, numbers: dict[int, int]) -> None:
    """Numbers the objects and shared containers of a structure, by its identity, as src/contract/structure.h counts them."""
    if isinstance(found, list):
        for item in found:
            _number(item, numbers)
    elif isinstance(found, dict) and "same" not in found:
        if "object" in found:
            numbers[id(found)] = len(numbers)
        for item in found.values():
            _number(item, numbers)
        if "shared" in found:
            numbers[id(found)] = len(numbers)


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


def is_plain_dataclass(value: Any) -> bool:
    """Tells whether calling the class with the attributes by name makes the same object again."""
    kind = type(value)
    if not dataclasses.is_dataclass(kind) or isinstance(value, OrderedDict) or not hasattr(value, "__dict__"):
        return False
    made_by_dataclass = kind.__dataclass_params__.init and "__init__" in vars(kind) and not hasattr(kind, "__post_init__")
    names = [field.name for field in dataclasses.fields(kind)]
    return made_by_dataclass and all(field.init for field in dataclasses.fields(kind)) and list(vars(value)) == names


def _name_of(cls: type, path: str) -> list[str]:
    if find_class([cls.__module__, cls.__qualname__]) is not cls:
        raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"{path} is of the local class {cls.__qualname__}, which cannot be found by name")
    return [cls.__module__, cls.__qualname__]
