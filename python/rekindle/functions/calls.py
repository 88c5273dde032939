"""Names the call of a custom autograd Function for an entry, and finds its arguments again in the live model.

A call is plain JSON. Tensors come from the graph; plain values are written down; every other object, and the Function itself, is
a path from the live model or a loaded module (references.py). What is made at each call (bound methods, partial objects,
closures) is made again from its parts. An entry can thus name only what is there already.

The fields of a call and the grammar of values and paths are in src/contract/contract.h and src/contract/call.h.

tensors: for each input of the node the argument that it is; None for one inside of an argument. Only arguments have gradients
results: the positions of the tensors among what the Function returns
others: the rest of what it returns, which is the same whenever it runs
dirty: the inputs of the node that are written in place
sizes: of the results at other sizes, see functions/result_sizes.py; a declared infer_shape goes first

An example: `Scale.apply(x, 2.0)` of the Python module `net`, for a matrix x, is

    {"function": [["module", "net"], ["attribute", "Scale"]], "arguments": [{"tensor": 0}, {"plain": 2.0}], "tensors": [0],
     "results": [0], "others": [], "dirty": [], "sizes": [["float32", [[0, 0], [0, 1]]]]}
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import torch
from torch import nn

from rekindle import _native
from rekindle.functions.references import Path, code_path, follow, path_to, show
from rekindle.reasons import Bypass, Reason
from rekindle.results.structure import is_scalar

# For each tensor among the results [dtype, sizes]: a number, or [input, dimension].
Rule = Sequence[Sequence[Any]]


@dataclass
class Call:
    """One call of a Function; each field is described at FunctionCall in src/contract/contract.h."""

    function: Path
    arguments: list[Any]
    tensors: list[int | None]
    results: list[int] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    dirty: list[int] = field(default_factory=list)
    sizes: Rule | None = None

    @classmethod
    def copy_of(cls, call: Self | _native.FunctionCall) -> Self:
        """The call that an export has noted, or that a contract has."""
        return cls(**{one.name: getattr(call, one.name) for one in fields(cls)})


def tensors_among(arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """Returns the tensors of a call: those that are arguments, in order, and then those inside of others."""
    own = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    inner: list[torch.Tensor] = []
    for argument in arguments:
        if not isinstance(argument, torch.Tensor):
            inner += [tensor for tensor in _tensors_in(argument) if all(tensor is not known for known in [*own, *inner])]
    return own + inner


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    for part in _parts(value):
        yield from _tensors_in(part)


def _parts(value: Any) -> list[Any]:
    kind = type(value)
    if kind in (list, tuple):
        return list(value)
    if kind is dict:
        return list(value.values())
    if kind is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    if kind is types.MethodType:
        return [value.__self__]
    if kind is types.FunctionType and "<locals>" in value.__qualname__:
        return _contents(value)
    return []


def _contents(function: types.FunctionType) -> list[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
    return [content for content in cells if content is not function]


def describe_call(function: type, arguments: tuple[Any, ...], tensors: list[torch.Tensor], model: nn.Module) -> Call:
    """Describes the call `function.apply(*arguments)`. Results, dirty inputs and sizes are empty still.

    tensors: the node's inputs, as tensors_among() gives them
    model: the module that paths start from

    Raises Bypass(python_op) for an argument, or a Function, that cannot be found again from the model.
    """
    where = f"the autograd Function {function.__qualname__}"
    own = iter(range(len(tensors)))
    described = []
    for i, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor):
            described.append({"tensor": next(own)})
        else:
            described.append(_Describer(model, tensors, f"argument {i} of {where}").describe(argument))
    places: list[int | None] = [i for i, argument in enumerate(arguments) if isinstance(argument, torch.Tensor)]
    return Call(_Describer(model, tensors, where).path(function), described, places + [None] * (len(tensors) - len(places)))


def note_results(call: Call, results: list[Any], model: nn.Module, function: type) -> None:
    """Completes the call with what it returned. Raises Bypass(python_op) for a tensor inside of a container."""
    describer = _Describer(model, [], f"a result of the autograd Function {function.__qualname__}")
    call.results = [i for i, item in enumerate(results) if isinstance(item, torch.Tensor)]
    others = [item for item in results if not isinstance(item, torch.Tensor)]
    if any(next(_tensors_in(item), None) is not None for item in others):
        raise Bypass(
            Reason.PYTHON_OP,
            f"the autograd Function {function.__qualname__} returns tensors inside of a container; return them as a tuple",
        )
    call.others = [describer.describe(item) for item in others]


def describe_plain(value: Any, what: str) -> Any:
    """Describes a value without tensors that loaded modules alone lead to; raises Bypass(python_op) for another.

    what: names, for the message, what is given the value
    """
    if next(_tensors_in(value), None) is not None:
        raise Bypass(Reason.PYTHON_OP, f"{what} is given a tensor")
    return _Describer(nn.Module(), [], f"an argument of {what}").describe(value)


class _Describer:
    """Describes the values of one call; `what` names in messages what is described."""

    def __init__(self, model: nn.Module, tensors: list[torch.Tensor], what: str) -> None:
        self._model, self._tensors, self._what = model, tensors, what

    def path(self, value: Any) -> Any:
        path = path_to(value, self._model)
        if path is None:
            raise Bypass(
                Reason.PYTHON_OP,
                f"{self._what} is a {type(value).__module__}.{type(value).__qualname__} that nothing in the model leads to; "
                "keep it as an attribute of a module, or at the top level of a Python module",
            )
        return path

    def describe(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return {"tensor": next(i for i, tensor in enumerate(self._tensors) if tensor is value)}
        if is_scalar(value):
            return {"plain": value}
        if kind in (list, tuple):
            return {kind.__name__: [self.describe(item) for item in value]}
        if kind is dict:
            return {"dict": [[self.describe(key), self.describe(item)] for key, item in value.items()]}
        if kind is torch.Size:
            return {"size": list(value)}
        if kind is torch.dtype:
            return {"dtype": str(value).removeprefix("torch.")}
        if kind is torch.device:
            return {"device": str(value)}
        return self._made_at_each_call(value) or {"object": self.path(value)}

    def _made_at_each_call(self, value: Any) -> Any:
        kind = type(value)
        if kind is functools.partial and not vars(value):
            return {"partial": [self.describe(part) for part in (value.func, value.args, value.keywords)]}
        if kind is types.MethodType:
            return {"method": [self.describe(value.__self__), self.path(value.__func__)]}
        if kind is types.FunctionType and "<locals>" in value.__qualname__ and path_to(value, self._model) is None:
            found = code_path(value)
            if found is not None and not vars(value):
                defaults = [self.describe(part) for part in (value.__defaults__, value.__kwdefaults__)]
                cells = [self.describe(content) for content in _contents(value)]
                if len(cells) == len(value.__closure__ or ()):
                    return {"closure": [*found, value.__qualname__, *defaults, cells]}
        return None


def leads_to_model(value: Any) -> bool:
    """Tells whether `resolve` may follow a path from the live model for a value of a call."""
    ((kind, content),) = value.items()
    if kind in ("list", "tuple"):
        return any(map(leads_to_model, content))
    if kind == "dict":
        return any(leads_to_model(key) or leads_to_model(item) for key, item in content)
    return kind not in ("tensor", "plain", "size", "dtype", "device")


def resolve(value: Any, model: nn.Module, tensors: list[torch.Tensor | None]) -> Any:
    """Returns what a value of a call stands for in the live model. Raises LookupError for a path that leads nowhere.

    tensors: the inputs of the node
    """
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "plain":
        return content
    if kind in ("list", "tuple"):
        items = [resolve(item, model, tensors) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {resolve(key, model, tensors): resolve(item, model, tensors) for key, item in content}
    if kind == "size":
        return torch.Size(content)
    if kind == "dtype":
        found = getattr(torch, content, None)
        if not isinstance(found, torch.dtype):
            raise LookupError(f"torch has no dtype {content!r}")
        return found
    if kind == "device":
        return torch.device(content)
    if kind in ("method", "partial", "closure"):
        return _made(kind, content, model, tensors)
    return follow(content, model)


def _made(kind: str, content: list[Any], model: nn.Module, tensors: list[torch.Tensor | None]) -> Any:
    if kind == "partial":
        func, args, keywords = (resolve(part, model, tensors) for part in content)
        return functools.partial(func, *args, **keywords)
    if kind == "method":
        owner, function = resolve(content[0], model, tensors), follow(content[1], model)
        if not isinstance(function, types.FunctionType):
            raise LookupError(f"{show(content[1])} is no function")
        return types.MethodType(function, owner)
    outer, code, qualname, *described = content
    owner, inner = follow(outer, model), follow(code, model)
    if not (isinstance(owner, types.FunctionType) and isinstance(inner, types.CodeType)):
        raise LookupError(f"{show(code)} is no code of a function")
    defaults, keyword_defaults = (resolve(part, model, tensors) for part in described[:2])
    cells = [types.CellType(resolve(cell, model, tensors)) for cell in described[2]]
    if len(cells) != len(inner.co_freevars):
        raise LookupError(f"{show(code)} has {len(inner.co_freevars)} free variables, not {len(cells)}")
    made = types.FunctionType(inner, owner.__globals__, inner.co_name, defaults, tuple(cells))
    made.__kwdefaults__, made.__qualname__ = keyword_defaults, qualname
    return made
