"""Names the call of a custom autograd Function for an entry, and finds its arguments again in the live model.

A call is plain JSON. Tensors come from the graph; plain values are written down; every other object, and the Function itself, is
a path from the live model or a loaded module (references.py). What is made at each call (bound methods, partial objects,
closures, lists and dicts that do not last) is made again from its parts for each call. An entry can thus name only what is there
already.

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
from rekindle.functions.containers import Contents, Lasting, cells_of, inner_parts
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
    for part in inner_parts(value):
        yield from _tensors_in(part)


def describe_call(
    function: type, arguments: tuple[Any, ...], tensors: list[torch.Tensor], model: nn.Module, lasting: Lasting
) -> tuple[Call, list[Contents]]:
    """Describes the call `function.apply(*arguments)`. Results, dirty inputs and sizes are empty still.

    tensors: the node's inputs, as tensors_among() gives them
    model: the module that paths start from
    lasting: knows the containers that have paths

    Returns the call and, for each argument, what is made anew for each call of the graph. Raises Bypass(python_op) for an
    argument, or a Function, that cannot be found again from the model.
    """
    where = f"the autograd Function {function.__qualname__}"
    own = iter(range(len(tensors)))
    described, made = [], []
    for i, argument in enumerate(arguments):
        made.append(Contents())
        if isinstance(argument, torch.Tensor):
            described.append({"tensor": next(own)})
        else:
            described.append(_Describer(model, tensors, f"argument {i} of {where}", lasting, made[i]).describe(argument))
    places: list[int | None] = [i for i, argument in enumerate(arguments) if isinstance(argument, torch.Tensor)]
    call = Call(_Describer(model, tensors, where).path(function), described, places + [None] * (len(tensors) - len(places)))
    return call, made


def note_results(call: Call, results: list[Any], model: nn.Module, function: type) -> None:
    """Completes the call with what it returned. Raises Bypass(python_op) for a tensor inside of a container, or returned twice.

    The trace could not tell which of its results a tensor that comes twice is, and another call may return two.
    """
    describer = _Describer(model, [], f"a result of the autograd Function {function.__qualname__}")
    call.results = [i for i, item in enumerate(results) if isinstance(item, torch.Tensor)]
    others = [item for item in results if not isinstance(item, torch.Tensor)]
    if any(next(_tensors_in(item), None) is not None for item in others):
        raise Bypass(
            Reason.PYTHON_OP,
            f"the autograd Function {function.__qualname__} returns tensors inside of a container; return them as a tuple",
        )
    if len({id(results[i]) for i in call.results}) < len(call.results):
        raise Bypass(
            Reason.PYTHON_OP,
            f"the autograd Function {function.__qualname__} returns one tensor as two results; return a view of it",
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
    """Describes the values of one call.

    what: names in messages what is described
    lasting: knows the containers that have paths; without it all are made anew
    made: gets the containers that are described by what they hold
    """

    def __init__(
        self,
        model: nn.Module,
        tensors: list[torch.Tensor],
        what: str,
        lasting: Lasting | None = None,
        made: Contents | None = None,
    ) -> None:
        self._model, self._tensors, self._what = model, tensors, what
        self._lasting, self._made = lasting, Contents() if made is None else made

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
        if kind in (list, dict) and (path := self._path_of_lasting(value)) is not None:
            return {"object": path}
        if kind in (list, tuple):
            return {kind.__name__: [self.describe(item) for item in self._made.add(value)]}
        if kind is dict:
            return {"dict": [[self.describe(key), self.describe(item)] for key, item in self._made.add(value).items()]}
        if kind is torch.Size:
            return {"size": list(value)}
        if kind is torch.dtype:
            return {"dtype": str(value).removeprefix("torch.")}
        if kind is torch.device:
            return {"device": str(value)}
        return self._made_at_each_call(value) or {"object": self.path(value)}

    def _path_of_lasting(self, container: Any) -> Any:
        """Returns None for a container with tensors as well: the forward may have computed them, and the graph has them."""
        if self._lasting is None or next(_tensors_in(container), None) is not None:
            return None
        return self._lasting.path(container)

    def _made_at_each_call(self, value: Any) -> Any:
        kind = type(value)
        if kind is functools.partial and not vars(value):
            return {"partial": [self.describe(part) for part in _parts_of(self._made.add(value))]}
        if kind is types.MethodType:
            return {"method": [self.describe(value.__self__), self.path(value.__func__)]}
        if kind is types.FunctionType and "<locals>" in value.__qualname__ and path_to(value, self._model) is None:
            found = code_path(value)
            if found is not None and not vars(value):
                defaults = [self.describe(part) for part in (value.__defaults__, value.__kwdefaults__)]
                cells = [self.describe(self._made.add(cell).cell_contents) for cell in cells_of(self._made.add(value))]
                if len(cells) == len(value.__closure__ or ()):
                    return {"closure": [*found, value.__qualname__, *defaults, cells]}
        return None


def _parts_of(partial: functools.partial[Any]) -> tuple[Any, ...]:
    return partial.func, partial.args, partial.keywords


def leads_to_model(value: Any) -> bool:
    """Tells whether `resolve` may follow a path from the live model for a value of a call."""
    ((kind, content),) = value.items()
    if kind in ("list", "tuple"):
        return any(map(leads_to_model, content))
    if kind == "dict":
        return any(leads_to_model(key) or leads_to_model(item) for key, item in content)
    return kind not in ("tensor", "plain", "size", "dtype", "device")


def is_made_anew(value: Any) -> bool:
    """Tells whether a value of a call, other than a tensor of its own, is another at each call: resolve() has to make it."""
    ((kind, content),) = value.items()
    if kind == "tuple":
        return any(map(is_made_anew, content))
    return is_made_anew(content[0]) if kind == "method" else kind in ("tensor", "list", "dict", "partial", "closure")


def resolve(value: Any, model: nn.Module, tensors: Sequence[torch.Tensor | None], given: Contents | None = None) -> Any:
    """Returns what a value of a call stands for in the live model. Raises LookupError for a path that leads nowhere.

    tensors: the inputs of the node
    given: remembers what is made, and what the paths lead to
    """
    return _Resolver(model, tensors, Contents() if given is None else given).resolve(value)


class _Resolver:
    def __init__(self, model: nn.Module, tensors: Sequence[torch.Tensor | None], given: Contents) -> None:
        self._model, self._tensors, self._given = model, tensors, given

    def resolve(self, value: Any) -> Any:
        ((kind, content),) = value.items()
        if kind == "tensor":
            return self._tensors[content]
        if kind == "plain":
            return content
        if kind == "tuple":
            return tuple(map(self.resolve, content))
        if kind == "list":
            return self._given.add([*map(self.resolve, content)])
        if kind == "dict":
            return self._given.add({self.resolve(key): self.resolve(item) for key, item in content})
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
            return self._made(kind, content)
        return self._given.add_lasting(follow(content, self._model))

    def _made(self, kind: str, content: list[Any]) -> Any:
        if kind == "partial":
            func, args, keywords = map(self.resolve, content)
            return self._given.add(functools.partial(func, *args, **keywords))
        if kind == "method":
            owner, function = self.resolve(content[0]), follow(content[1], self._model)
            if not isinstance(function, types.FunctionType):
                raise LookupError(f"{show(content[1])} is no function")
            return types.MethodType(function, owner)
        outer, code, qualname, *described = content
        owner, inner = follow(outer, self._model), follow(code, self._model)
        if not (isinstance(owner, types.FunctionType) and isinstance(inner, types.CodeType)):
            raise LookupError(f"{show(code)} is no code of a function")
        defaults, keyword_defaults = map(self.resolve, described[:2])
        cells = [self._given.add(types.CellType(self.resolve(cell))) for cell in described[2]]
        if len(cells) != len(inner.co_freevars):
            raise LookupError(f"{show(code)} has {len(inner.co_freevars)} free variables, not {len(cells)}")
        made = types.FunctionType(inner, owner.__globals__, inner.co_name, defaults, tuple(cells))
        made.__kwdefaults__, made.__qualname__ = keyword_defaults, qualname
        return self._given.add(made)
