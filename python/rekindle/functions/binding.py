"""Binds the call of a custom autograd Function, which an entry names, to the live Function (functions/calls.py)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn

import rekindle.functions.quantized  # noqa: F401  (graphs name its Function)
from rekindle import _native
from rekindle.errors import PythonOpError
from rekindle.functions.calls import Call, Rule, is_made_anew, leads_to_model, resolve
from rekindle.functions.containers import Contents, writes_to
from rekindle.functions.references import follow, show
from rekindle.functions.registry import declaration_of
from rekindle.reasons import Bypass, Reason, SizedByData
from rekindle.results.call_device import on_device


def bind(named: Call | _native.FunctionCall, model: nn.Module, device: torch.device | None = None) -> Any:
    """Returns what the graph calls, a _native.PythonOp.

    call: the call as an entry names it (functions/calls.py), or as its export does
    model: the live module that its paths start from
    device: of the module's call, where an entry names the call

    Raises Bypass(python_op) when a path leads nowhere, or not to an autograd Function, and PythonOpError for a declaration that
    does not fit the call.
    """
    call = Call.copy_of(named)
    try:
        function = follow(call.function, model)
        if device is not None:
            call.arguments = on_device(call.arguments, device)
        given = [Contents() for _ in call.arguments]
        arguments = [resolve(value, model, [None] * len(call.tensors), given[i]) for i, value in enumerate(call.arguments)]
    except LookupError as error:
        raise Bypass(Reason.PYTHON_OP, f"an autograd Function of the cached graph cannot be called: {error}") from error
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise Bypass(Reason.PYTHON_OP, f"{show(call.function)} of the cached graph is no autograd Function")
    declared = declaration_of(function)
    watch = _Watch(function, call, model)
    others = [i for i, value in enumerate(call.arguments) if "tensor" not in value]
    each = [i for i in others if given[i] or is_made_anew(call.arguments[i])]
    apply = functools.partial(watch.apply, arguments, each) if each else watch.run
    return _native.PythonOp(
        apply=apply,
        arguments=tuple(arguments),
        places=[-1 if place is None else place for place in call.tensors],
        make_arguments=tuple if each else None,  # watch.apply gets the inputs of the node
        results=call.results,
        others=tuple(resolve(value, model, []) for value in call.others),
        dirty=call.dirty,
        reuses=dict(_reuse(call, function, *pair) for pair in declared.inplace_map or ()),
        watch=watch,
        infer=_inference(call, declared.infer_shape, watch),
        recomputes=bool(declared.recompute),
    )


def _inference(call: Call, infer_shape: Any, watch: _Watch) -> Any:
    if infer_shape is not None:
        return functools.partial(watch.infer, infer_shape)
    return None if call.sizes is None else functools.partial(_by_rule, call.sizes)


def _by_rule(rule: Rule, metas: list[torch.Tensor | None]) -> list[torch.Tensor]:
    """Returns meta tensors like the results for inputs like `metas`; see functions/result_sizes.py."""

    def size(source: Any) -> int:
        if isinstance(source, int):
            return source
        given = metas[source[0]]
        assert given is not None
        return given.shape[source[1]]

    return [torch.empty([size(source) for source in dims], dtype=getattr(torch, dtype), device="meta") for dtype, dims in rule]


def _reuse(call: Call, function: type, output: int, argument: int) -> tuple[int, int]:
    """Returns a pair of an inplace_map as result and input of the node; raises PythonOpError where one of them is no tensor."""
    if output not in call.results or argument not in call.tensors:
        raise PythonOpError(
            f"inplace_map of the autograd Function {function.__qualname__} says that output {output} reuses input {argument}, "
            f"but of a call with {len(call.arguments)} inputs the tensors are {call.tensors}, and of its outputs "
            f"{call.results}"
        )
    return call.results.index(output), call.tensors.index(argument)


_NO_MODEL = nn.Module()


class _Watch:
    """Tells the user what a bound call does otherwise than the graph says, and answers what the node asks for."""

    _told: ClassVar[set[type]] = set()  # Functions whose reuse was reported

    def __init__(self, function: type, call: Call, model: nn.Module) -> None:
        # A node keeps this object, and a module may keep the result of a node: what leads to the module would keep both.
        is_read = any(leads_to_model(value) for value in (*call.arguments, *call.others))
        self._function, self._call, self._model = function, call, model if is_read else _NO_MODEL
        self._name = f"the autograd Function {function.__qualname__}"
        self.run = super(torch.autograd.function._SingleLevelFunction, function).apply

    def apply(self, bound: list[Any], each: list[int], *inputs: torch.Tensor | None) -> Any:
        """Calls the Function with containers that no other call has, or that last.

        bound: the arguments, without tensors
        each: positions of those that are made anew, or that the Function may write to
        inputs: of the node

        Raises Bypass(python_op) where the Function wrote to one: the graph has no answer to what the forward does then. What
        lasts is as it was before.
        """
        arguments, given = [*bound], [Contents() for _ in each]
        for place, tensor in zip(self._call.tensors, inputs, strict=True):
            if place is not None:
                arguments[place] = tensor
        for i, one in zip(each, given, strict=True):
            value = self._call.arguments[i]
            arguments[i] = one.add_lasting(bound[i]) if "object" in value else resolve(value, self._model, inputs, one)
        try:
            result = self.run(*arguments)
            for i, one in zip(each, given, strict=True):
                if (written := one.written()) is not None:
                    raise writes_to(written, self._function, i, ", which it did not do when it was exported")
        except Exception:  # eager, which runs instead, writes there, too
            for one in given:
                one.put_back()
            raise
        return result

    def infer(self, infer_shape: Any, metas: list[torch.Tensor | None]) -> list[torch.Tensor]:
        """Returns meta tensors like the results for inputs like `metas`, as the declared infer_shape says."""
        result = infer_shape(*(resolve(value, self._model, metas) for value in self._call.arguments))
        results = result if isinstance(result, tuple) else (result,)
        found = [results[i] for i in self._call.results]
        if not all(isinstance(item, torch.Tensor) for item in found):
            raise PythonOpError(f"infer_shape of {self._name} must return tensors on the meta device, not {found}")
        return found or [torch.zeros((), device="meta")]

    def wrote(self, inputs: list[int]) -> None:
        places = [self._call.tensors[i] for i in inputs]
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

    def differs_in_gradients(self, results: list[int]) -> None:
        raise Bypass(
            Reason.PYTHON_OP,
            f"of the results of {self._name} {results} require a gradient now, which others did when it was exported",
        )

    def _differs_in_sizes(self, items: Sequence[Any]) -> bool:
        tensors = [i for i, item in enumerate(items) if isinstance(item, torch.Tensor)]
        others = [item for item in items if not isinstance(item, torch.Tensor)]
        expected = [resolve(value, self._model, []) for value in self._call.others]
        return tensors == self._call.results and [*map(type, others)] == [*map(type, expected)] and others == expected

    def reused(self, result: int, position: int) -> None:
        if self._function in self._told:
            return
        self._told.add(self._function)
        pair = {self._call.results[result]: self._call.tensors[position]}
        _native.log_warning(
            f"{self._name} returns an input's memory as output {self._call.results[result]}; a copy is made. "
            f"To save it: rekindle.register_python_op({self._function.__qualname__}, inplace_map={pair})"
        )

    def does_not_reuse(self, result: int, position: int) -> None:
        pair = {self._call.results[result]: self._call.tensors[position]}
        raise PythonOpError(
            f"inplace_map={pair} is declared for {self._name}, but in this call that output has memory of its own"
        )
