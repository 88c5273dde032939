"""Custom autograd Functions inside the graph: how an entry names a call of one, and how it is bound to the live one.

A call is plain JSON. Tensors come from the graph; plain values are written down; every other object, and the Function
itself, is a path from the live model or a loaded module (references.py). What is made at each call (bound methods, partial
objects, closures) is made again from its parts. An entry can thus name only what is there already.

    call  := {"function": path, "arguments": [value*], "tensors": [position of an argument or None*], "results": [position*],
               "others": [value*], "dirty": [position*], "sizes": rule or None}
    value := {"tensor": position among the node's inputs} | {"plain": None, bool, int, float or str} | {"object": path}
           | {"list" | "tuple": [value*]} | {"dict": [[value, value]*]} | {"dtype" | "device": name} | {"size": [int*]}
           | {"method": [value, path]} | {"partial": [value, value, value]}
           | {"closure": [path of the outer function, path of its code, name, value, value, [value*]]}

`tensors` says which inputs of the node are arguments of their own: only these have gradients. `results` are the positions of
the tensors among what the Function returns; `others` is the rest, which is the same whenever it runs. `dirty` inputs are
written in place. `sizes`: of the results at other sizes, see exporters/function_sizes.py; a declared infer_shape goes first.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

import rekindle.quantized  # noqa: F401  (graphs name its Function)
from rekindle import _native
from rekindle.errors import PythonOpError
from rekindle.python_op_registry import declaration_of
from rekindle.reasons import Bypass, Reason, SizedByData
from rekindle.references import code_path, follow, path_to, show

_PLAIN = (bool, int, float, str)

Call = dict[str, Any]


def tensors_among(arguments: tuple[Any, ...], model: nn.Module) -> list[torch.Tensor]:
    """Those that are arguments, in order, and then those inside of others."""
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
    """The call of `function.apply(*arguments)`, whose tensors are the node's inputs.

    Raises Bypass(python_op) for an argument, or a Function, that cannot be found again from the live model.
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
    return {
        "function": _Describer(model, tensors, where).path(function),
        "arguments": described,
        "tensors": places + [None] * (len(tensors) - len(places)),
        "results": [],
        "others": [],
        "dirty": [],
        "sizes": None,
    }


def note_results(call: Call, results: list[Any], model: nn.Module, function: type) -> None:
    """Complete the call with what it returned."""
    describer = _Describer(model, [], f"a result of the autograd Function {function.__qualname__}")
    call["results"] = [i for i, item in enumerate(results) if isinstance(item, torch.Tensor)]
    others = [item for item in results if not isinstance(item, torch.Tensor)]
    if any(next(_tensors_in(item), None) is not None for item in others):
        raise Bypass(
            Reason.PYTHON_OP,
            f"the autograd Function {function.__qualname__} returns tensors inside of a container; return them as a tuple",
        )
    call["others"] = [describer.describe(item) for item in others]


class _Describer:
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
        if value is None or kind in _PLAIN:
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


def _resolve(value: Any, model: nn.Module, tensors: list[torch.Tensor | None]) -> Any:
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "plain":
        return content
    if kind in ("list", "tuple"):
        items = [_resolve(item, model, tensors) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_resolve(key, model, tensors): _resolve(item, model, tensors) for key, item in content}
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
        func, args, keywords = (_resolve(part, model, tensors) for part in content)
        return functools.partial(func, *args, **keywords)
    if kind == "method":
        owner, function = _resolve(content[0], model, tensors), follow(content[1], model)
        if not isinstance(function, types.FunctionType):
            raise LookupError(f"{show(content[1])} is no function")
        return types.MethodType(function, owner)
    outer, code, qualname, *described = content
    owner, inner = follow(outer, model), follow(code, model)
    if not (isinstance(owner, types.FunctionType) and isinstance(inner, types.CodeType)):
        raise LookupError(f"{show(code)} is no code of a function")
    defaults, keyword_defaults = (_resolve(part, model, tensors) for part in described[:2])
    cells = [types.CellType(_resolve(cell, model, tensors)) for cell in described[2]]
    if len(cells) != len(inner.co_freevars):
        raise LookupError(f"{show(code)} has {len(inner.co_freevars)} free variables, not {len(cells)}")
    made = types.FunctionType(inner, owner.__globals__, inner.co_name, defaults, tuple(cells))
    made.__kwdefaults__, made.__qualname__ = keyword_defaults, qualname
    return made


def bind(call: Call, model: nn.Module) -> Any:
    """What the graph calls, a _native.PythonOp.

    Raises Bypass(python_op) when a path leads nowhere, or not to an autograd Function, and PythonOpError for a declaration
    that does not fit the call.
    """
    try:
        function = follow(call["function"], model)
        arguments = [_resolve(value, model, [None] * len(call["tensors"])) for value in call["arguments"]]
    except LookupError as error:
        raise Bypass(Reason.PYTHON_OP, f"an autograd Function of the cached graph cannot be called: {error}") from error
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise Bypass(Reason.PYTHON_OP, f"{show(call['function'])} of the cached graph is no autograd Function")
    declared = declaration_of(function)
    watch = _Watch(function, call, model)
    return _native.PythonOp(
        apply=super(torch.autograd.function._SingleLevelFunction, function).apply,
        arguments=tuple(arguments),
        places=[-1 if place is None else place for place in call["tensors"]],
        make_arguments=watch.arguments if None in call["tensors"] else None,
        results=call["results"],
        others=tuple(_resolve(value, model, []) for value in call["others"]),
        dirty=call["dirty"],
        reuses=dict(_reuse(call, function, *pair) for pair in declared.inplace_map or ()),
        watch=watch,
        infer=_inference(call, declared.infer_shape, watch),
    )


def _inference(call: Call, infer_shape: Any, watch: _Watch) -> Any:
    if infer_shape is not None:
        return functools.partial(watch.infer, infer_shape)
    return None if call["sizes"] is None else functools.partial(_by_rule, call["sizes"])


def _by_rule(rule: list[Any], metas: list[torch.Tensor | None]) -> list[torch.Tensor]:
    """Meta tensors like the results for inputs like these; see exporters/function_sizes.py."""

    def size(source: Any) -> int:
        if isinstance(source, int):
            return source
        given = metas[source[0]]
        assert given is not None
        return given.shape[source[1]]

    return [torch.empty([size(source) for source in dims], dtype=getattr(torch, dtype), device="meta") for dtype, dims in rule]


def _reuse(call: Call, function: type, output: int, argument: int) -> tuple[int, int]:
    """A pair of an inplace_map as result and input of the node."""
    if output not in call["results"] or argument not in call["tensors"]:
        raise PythonOpError(
            f"inplace_map of the autograd Function {function.__qualname__} says that output {output} reuses input {argument}, "
            f"but of a call with {len(call['arguments'])} inputs the tensors are {call['tensors']}, and of its outputs "
            f"{call['results']}"
        )
    return call["results"].index(output), call["tensors"].index(argument)


class _Watch:
    """What a bound call tells when it does something else than the graph says, and what it asks for."""

    _told: ClassVar[set[type]] = set()  # Functions whose reuse was reported

    def __init__(self, function: type, call: Call, model: nn.Module) -> None:
        self._function, self._call, self._model = function, call, model
        self._name = f"the autograd Function {function.__qualname__}"

    def arguments(self, tensors: list[torch.Tensor | None]) -> tuple[Any, ...]:
        return tuple(_resolve(value, self._model, tensors) for value in self._call["arguments"])

    def infer(self, infer_shape: Any, metas: list[torch.Tensor | None]) -> list[torch.Tensor]:
        """Meta tensors like the results for inputs like these."""
        result = infer_shape(*self.arguments(metas))
        results = result if isinstance(result, tuple) else (result,)
        found = [results[i] for i in self._call["results"]]
        if not all(isinstance(item, torch.Tensor) for item in found):
            raise PythonOpError(f"infer_shape of {self._name} must return tensors on the meta device, not {found}")
        return found or [torch.zeros((), device="meta")]

    def wrote(self, inputs: list[int]) -> None:
        places = [self._call["tensors"][i] for i in inputs]
        raise Bypass(
            Reason.PYTHON_OP, f"{self._name} writes in place to inputs {places}, which it did not do when it was exported"
        )

    def changed(self, result: Any) -> None:
        items = result if isinstance(result, tuple) else (result,)
        if self._differs_in_sizes(items):
            raise SizedByData(self._name, self._function)
        now = [(str(item.dtype), *item.shape) if isinstance(item, torch.Tensor) else item for item in items]
        raise Bypass(
            Reason.PYTHON_OP, f"{self._name} returned {now}, where the graph has tensors of other sizes, or other values"
        )

    def _differs_in_sizes(self, items: Sequence[Any]) -> bool:
        tensors = [i for i, item in enumerate(items) if isinstance(item, torch.Tensor)]
        others = [item for item in items if not isinstance(item, torch.Tensor)]
        expected = [_resolve(value, self._model, []) for value in self._call["others"]]
        return tensors == self._call["results"] and [*map(type, others)] == [*map(type, expected)] and others == expected

    def reused(self, result: int, position: int) -> None:
        if self._function in self._told:
            return
        self._told.add(self._function)
        pair = {self._call["results"][result]: self._call["tensors"][position]}
        _native.log_warning(
            f"{self._name} returns an input's memory as output {self._call['results'][result]}; a copy is made. "
            f"To save it: rekindle.register_python_op({self._function.__qualname__}, inplace_map={pair})"
        )

    def does_not_reuse(self, result: int, position: int) -> None:
        pair = {self._call["results"][result]: self._call["tensors"][position]}
        raise PythonOpError(
            f"inplace_map={pair} is declared for {self._name}, but in this call that output has memory of its own"
        )
