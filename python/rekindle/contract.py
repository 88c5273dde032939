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

from rekindle import structure
from rekindle.reasons import Bypass, Reason

VERSION = 5  # of the contract; part of the key

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
    """(structure, distinct output tensors). An input that is returned as it is becomes a reference to it.

    Raises Bypass(unsupported_output) for what cannot be rebuilt, and for outputs that share memory: writing to one
    would have to change the other.
    """
    given = {id(tensor): i for i, tensor in enumerate(inputs)}
    found: dict[int, int] = {}
    outputs: list[torch.Tensor] = []

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) in given:
                return {"input": given[id(value)]}
            if id(value) not in found:
                found[id(value)] = len(outputs)
                outputs.append(value)
            return {"output": found[id(value)]}
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

    found_structure = walk(result, "result")
    _refuse_shared_memory(outputs, inputs)
    return found_structure, outputs


def _is_plain_dataclass(value: Any) -> bool:
    """Whether calling the class with the attributes by name makes the same object again."""
    kind = type(value)
    if not dataclasses.is_dataclass(kind) or isinstance(value, OrderedDict) or not hasattr(value, "__dict__"):
        return False
    made_by_dataclass = kind.__dataclass_params__.init and "__init__" in vars(kind) and not hasattr(kind, "__post_init__")
    names = [field.name for field in dataclasses.fields(kind)]
    return made_by_dataclass and all(field.init for field in dataclasses.fields(kind)) and list(vars(value)) == names


def _refuse_shared_memory(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    owners = {tensor.untyped_storage().data_ptr(): "an input" for tensor in inputs if tensor.numel() > 0}
    for tensor in outputs:
        if tensor.numel() == 0:
            continue
        pointer = tensor.untyped_storage().data_ptr()
        if pointer in owners:
            raise Bypass(
                Reason.UNSUPPORTED_OUTPUT,
                f"an output of shape {tuple(tensor.shape)} is a view of {owners[pointer]}; return a clone",
            )
        owners[pointer] = "another output"


def _name_of(cls: type, path: str) -> list[str]:
    if _find_class([cls.__module__, cls.__qualname__]) is not cls:
        raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"{path} is of the local class {cls.__qualname__}, which cannot be found by name")
    return [cls.__module__, cls.__qualname__]


def _find_class(name: list[str]) -> type | None:
    found: Any = sys.modules.get(name[0])
    for part in name[1].split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def rebuild_outputs(layout: Any, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> Any:
    """The module's result. Raises Bypass(unsupported_output) when a class is not there any more."""
    (kind, content), *rest = layout.items()
    if kind == "output":
        return outputs[content]
    if kind == "input":
        return inputs[content]
    if kind == "value":
        return content
    if kind == "size":
        return torch.Size(content)
    if kind in ("list", "tuple"):
        items = [rebuild_outputs(item, outputs, inputs) for item in content]
        return items if kind == "list" else tuple(items)
    if kind in ("dict", "OrderedDict"):
        pairs = ((key, rebuild_outputs(item, outputs, inputs)) for key, item in content)
        return dict(pairs) if kind == "dict" else OrderedDict(pairs)
    cls, (_, items) = _result_class(kind, content), rest[0]
    if kind == "namedtuple":
        return cls(*(rebuild_outputs(item, outputs, inputs) for item in items))
    return cls(**{key: rebuild_outputs(item, outputs, inputs) for key, item in items})


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
