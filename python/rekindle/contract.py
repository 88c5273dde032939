"""The calling contract of an entry: how a call's tensors are flattened, and how a result is rebuilt from the outputs.

Structures are plain JSON, so that an entry holds no code. A class in a result (a namedtuple, a transformers ModelOutput)
is stored by name and found again among the modules that are already imported; nothing is imported by name.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict
from typing import Any

import torch

from rekindle import structure, views
from rekindle.reasons import Bypass, Reason

VERSION = 8  # of the contract; part of the key

_PLAIN = (bool, int, float, str)


def flatten_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The distinct tensors of a call, in order of first appearance: positional, then keyword arguments."""
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
    """The same call with `tensors` in the place of its own, in the order of flatten_arguments."""
    replacement = dict(zip(map(id, flatten_arguments(args, kwargs)), tensors, strict=True))

    def swap(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return replacement[id(value)]
        found = structure.parts(value)
        return value if found is None else structure.with_items(value, [swap(item) for _, item in found])

    return tuple(map(swap, args)), {name: swap(value) for name, value in kwargs.items()}


def flatten_outputs(result: Any, inputs: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
    """(structure, distinct tensors that the graph computes). An input that is returned as it is becomes a reference to it,
    a view of an input or of a computed tensor is described (views.py).

    Raises Bypass(unsupported_output) for what cannot be rebuilt.
    """
    given = {id(tensor): i for i, tensor in enumerate(inputs)}
    places: dict[int, dict[str, int]] = {}
    results: list[torch.Tensor] = []

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) in given:
                return {"input": given[id(value)]}
            if id(value) not in places:
                places[id(value)] = {}  # where it comes from is known once all are
                results.append(value)
            return places[id(value)]
        if value is None or type(value) in _PLAIN:
            return {"value": value}
        if type(value) in (list, tuple):
            return {type(value).__name__: [walk(item, f"{path}[{i}]") for i, item in enumerate(value)]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"namedtuple": _name_of(type(value), path), "items": [walk(v, f"{path}[{i}]") for i, v in enumerate(value)]}
        if type(value) is torch.Size:
            return {"size": list(value)}
        if _is_plain_dataclass(value):
            items = [[name, walk(item, f"{path}.{name}")] for name, item in vars(value).items()]
            return {"dataclass": _name_of(type(value), path), "items": items}
        if isinstance(value, (dict, OrderedDict)) and all(key is None or type(key) in _PLAIN for key in value):
            items = [[key, walk(item, f"{path}[{key!r}]")] for key, item in value.items()]
            if type(value) in (dict, OrderedDict):
                return {type(value).__name__: items}
            if dataclasses.is_dataclass(value) and isinstance(value, OrderedDict):
                return {"model_output": _name_of(type(value), path), "items": items}
        raise Bypass(
            Reason.UNSUPPORTED_OUTPUT,
            f"{path} is a {type(value).__module__}.{type(value).__qualname__}; return tensors, plain values or containers of them",
        )

    found = walk(result, "result")
    outputs, described, where = views.separate(results, inputs)
    for tensor, (kind, position) in zip(results, where, strict=True):
        places[id(tensor)][kind] = position
    return ({"with_views": described, "result": found} if described else found), outputs


def _is_plain_dataclass(value: Any) -> bool:
    """Whether calling the class with the attributes by name makes the same object again."""
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


def rebuild_outputs(
    layout: Any, outputs: list[torch.Tensor], inputs: list[torch.Tensor], made: list[torch.Tensor] | None = None
) -> Any:
    """The module's result; made: its views. Raises Bypass(unsupported_output) when a class is not there any more."""
    (kind, content), *rest = layout.items()
    if kind == "with_views":
        return rebuild_outputs(layout["result"], outputs, inputs, views.made_again(content, outputs, inputs))
    if kind == "view":
        assert made is not None
        return made[content]
    if kind == "output":
        return outputs[content]
    if kind == "input":
        return inputs[content]
    if kind == "value":
        return content
    if kind == "size":
        return torch.Size(content)
    if kind in ("list", "tuple"):
        items = [rebuild_outputs(item, outputs, inputs, made) for item in content]
        return items if kind == "list" else tuple(items)
    if kind in ("dict", "OrderedDict"):
        pairs = ((key, rebuild_outputs(item, outputs, inputs, made)) for key, item in content)
        return dict(pairs) if kind == "dict" else OrderedDict(pairs)
    cls, (_, items) = _result_class(kind, content), rest[0]
    if kind == "namedtuple":
        return cls(*(rebuild_outputs(item, outputs, inputs, made) for item in items))
    return cls(**{key: rebuild_outputs(item, outputs, inputs, made) for key, item in items})


def _result_class(kind: str, name: list[str]) -> type:
    """The class of that name, if it is of the kind: an entry must not be able to call just anything."""
    cls = _find_class(name)
    if cls is not None:
        is_namedtuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
        is_model_output = issubclass(cls, OrderedDict) and dataclasses.is_dataclass(cls)
        is_dataclass = dataclasses.is_dataclass(cls) and cls.__init__ is not object.__init__
        if {"namedtuple": is_namedtuple, "model_output": is_model_output, "dataclass": is_dataclass}[kind]:
            return cls
    raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"the class {'.'.join(name)} of the result is not imported, or not a {kind}")
