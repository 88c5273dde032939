"""Custom autograd Functions inside the graph: how an entry names a call of one, and how it is bound to the live one.

A call is plain JSON. Tensors come from the graph; plain values are written down; every other object, and the Function
itself, is a path from the live model or a loaded module (references.py). An entry can thus name only what is there already.

    call  := {"function": path, "arguments": [value*], "results": [position*], "others": [value*], "layouts": [[dtype, size*]*],
               "dirty": [position*]}
    value := {"tensor": position among the node's inputs} | {"plain": None, bool, int, float or str} | {"object": path}
           | {"list" | "tuple": [value*]} | {"dict": [[value, value]*]} | {"dtype" | "device": name} | {"size": [int*]}

`results` are the positions of the tensors among what the Function returns, `layouts` what these look like; `others` is the rest.
Both are None before the Function has run, and then the same whenever it runs. `dirty` inputs are written in place, so they
are given a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rekindle.reasons import Bypass, Reason
from rekindle.references import follow, path_to, show

_PLAIN = (bool, int, float, str)

Call = dict[str, Any]
Bound = Callable[[list[torch.Tensor | None]], list[torch.Tensor]]


def describe_call(function: type, arguments: list[Any], is_tensor: list[bool], results: list[bool], model: nn.Module) -> Call:
    """The call of `function.apply(*arguments)`. is_tensor: which arguments the graph provides; results: which results are
    tensors. Raises Bypass(python_op) for an argument, or a Function, that cannot be found again from the live model.
    """
    where = f"the autograd Function {function.__qualname__}"
    position = iter(range(len(arguments)))
    described = [
        {"tensor": next(position)} if tensor else _describe(argument, model, f"argument {i} of {where}")
        for i, (argument, tensor) in enumerate(zip(arguments, is_tensor, strict=True))
    ]
    return {
        "function": _path(function, model, where),
        "arguments": described,
        "results": [i for i, tensor in enumerate(results) if tensor],
        "others": None,
        "layouts": None,
        "dirty": [],
    }


def holds_objects(call: Call) -> bool:
    """Whether an argument is an object of the live model."""
    return any("object" in value for value in call["arguments"])


def _path(value: Any, model: nn.Module, what: str) -> Any:
    path = path_to(value, model)
    if path is None:
        raise Bypass(
            Reason.PYTHON_OP,
            f"{what} is a {type(value).__module__}.{type(value).__qualname__} that nothing in the model leads to; "
            "keep it as an attribute of a module, or at the top level of a Python module",
        )
    return path


def _describe(value: Any, model: nn.Module, what: str) -> Any:
    kind = type(value)
    if value is None or kind in _PLAIN:
        return {"plain": value}
    if kind in (list, tuple):
        return {kind.__name__: [_describe(item, model, what) for item in value]}
    if kind is dict:
        return {"dict": [[_describe(key, model, what), _describe(item, model, what)] for key, item in value.items()]}
    if kind is torch.Size:
        return {"size": list(value)}
    if kind is torch.dtype:
        return {"dtype": str(value).removeprefix("torch.")}
    if kind is torch.device:
        return {"device": str(value)}
    return {"object": _path(value, model, what)}


def _resolve(value: Any, model: nn.Module) -> Any:
    ((kind, content),) = value.items()
    if kind == "plain":
        return content
    if kind in ("list", "tuple"):
        items = [_resolve(item, model) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_resolve(key, model): _resolve(item, model) for key, item in content}
    if kind == "size":
        return torch.Size(content)
    if kind == "dtype":
        found = getattr(torch, content, None)
        if not isinstance(found, torch.dtype):
            raise LookupError(f"torch has no dtype {content!r}")
        return found
    if kind == "device":
        return torch.device(content)
    return follow(content, model)


def bind(call: Call, model: nn.Module) -> Bound:
    """What the graph calls. Raises Bypass(python_op) when a path leads nowhere, or not to an autograd Function."""
    try:
        function = follow(call["function"], model)
        arguments = [None if "tensor" in value else _resolve(value, model) for value in call["arguments"]]
    except LookupError as error:
        raise Bypass(Reason.PYTHON_OP, f"an autograd Function of the cached graph cannot be called: {error}") from error
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise Bypass(Reason.PYTHON_OP, f"{show(call['function'])} of the cached graph is no autograd Function")
    return _Bound(function, arguments, call)


class _Bound:
    """Calls one Function with arguments of which only the tensors change."""

    def __init__(self, function: type[torch.autograd.Function], arguments: list[Any], call: Call) -> None:
        self._function = function
        self._arguments = arguments
        self._call = call
        self._places = [(i, value["tensor"]) for i, value in enumerate(call["arguments"]) if "tensor" in value]
        self._dirty = frozenset(call["dirty"])

    def __call__(self, inputs: list[torch.Tensor | None]) -> list[torch.Tensor]:
        arguments = list(self._arguments)
        for place, position in self._places:
            given = inputs[position]
            arguments[place] = given.clone() if given is not None and position in self._dirty else given
        versions = [(position, arguments[place], arguments[place]._version) for place, position in self._places if arguments[place] is not None]
        result = self._function.apply(*arguments)
        written = [position for position, tensor, version in versions if tensor._version != version]
        if not self._dirty.issuperset(written):
            raise UndeclaredWrite(self._call, written)
        return self._tensors(result)

    def _tensors(self, result: Any) -> list[torch.Tensor]:
        results = result if isinstance(result, tuple) else (result,)
        places = [i for i, item in enumerate(results) if isinstance(item, torch.Tensor)]
        others = [item for item in results if not isinstance(item, torch.Tensor)]
        layouts = [[str(results[i].dtype), *results[i].shape] for i in places]
        if self._call["layouts"] is None and all(item is None or type(item) in _PLAIN for item in others):
            self._call.update(others=others, layouts=layouts)
        expected = self._call["results"], self._call["others"], self._call["layouts"]
        if (places, others, layouts) != expected:
            raise Bypass(
                Reason.PYTHON_OP,
                f"the autograd Function {self._function.__qualname__} returned tensors {layouts} at {places} and {others}, "
                f"where it returned {expected[2]} at {expected[0]} and {expected[1]} before",
            )
        return [results[i] for i in places]


class UndeclaredWrite(Bypass):
    """A Function wrote to inputs that its call does not have as dirty."""

    def __init__(self, call: Call, written: list[int]) -> None:
        super().__init__(Reason.PYTHON_OP, f"{show(call['function'])} writes in place to inputs {written}, which it did not do before")
        self.call = call
        self.written = written
