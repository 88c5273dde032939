"""Corrects what torch's TorchScript exporter does otherwise than we need: for the duration of one export, in its thread.

An example: the exporter infers shapes of the whole graph, of which nothing is read. `_left_out` puts a function in the place of
that pass which does nothing. What is corrected in passes that do run is in exporter_passes.py.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from rekindle.export.torchscript.exporter_passes import (
    casting_to_bfloat16,
    noting_domains,
    unless_complex,
    with_0_dim_tensors,
    with_neutral_factors,
    without_booleans,
)
from rekindle.export.torchscript.function_nodes import Functions
from rekindle.export.torchscript.operators import DOMAIN, keep_operators
from rekindle.export.trace.refusals import refused_in_trace
from rekindle.export.trace.traced_operators import forget_sizes
from rekindle.process.process_state import in_this_thread, replaced
from rekindle.process.torch_internals import (
    ANALYSE_SCALAR_TYPES,
    ASSIGN_OUTPUT_SHAPES,
    CALL_FUNCTIONAL,
    CANONICALIZE_FUSED,
    CHECK_GRAPH,
    INFER_SHAPES,
    INPUTS,
    IS_TRACING,
    MERGE_EQUAL,
    OUTPUTS,
    PEEPHOLE,
    PREPROCESS,
    SCRIPT_IF_TRACING,
    START_BACKWARD,
    Value,
    run_symbolic_place,
    scalar_type,
)


@contextlib.contextmanager
def corrected(
    opsets: dict[str, int], functions: Functions, open_inputs: Collection[int] = (), eager_numerics: bool = False
) -> Iterator[None]:
    """Applies all corrections.

    opsets: gets the domains that the graph uses besides ONNX's own
    functions: gets the Functions that it calls
    open_inputs: positions of the inputs that have sizes of which nothing may be known
    eager_numerics: whether operators that ONNX would round otherwise stay PyTorch's
    """
    with contextlib.ExitStack() as stack:
        for owner, name, correct in _corrections(opsets, functions, open_inputs, eager_numerics):
            theirs = getattr(owner, name)
            stack.enter_context(replaced(owner, name, in_this_thread(correct(theirs), theirs)))
        yield


def _corrections(
    opsets: dict[str, int], functions: Functions, open_inputs: Collection[int], eager_numerics: bool
) -> Iterator[tuple[Any, str, Callable[[Any], Callable[..., Any]]]]:
    """Yields (module or class, name, correction).

    A correction makes of the function of torch that is there under this name the one that an export needs.
    """
    for module in (torch.nn.functional, torch.functional):
        for name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
            if hasattr(module, name):
                yield module, name, _never
    yield torch.overrides, "has_torch_function", _false_in_attention
    yield *START_BACKWARD, refused_in_trace
    yield *CALL_FUNCTIONAL, _as_if_untraced
    yield *SCRIPT_IF_TRACING, _never  # eager runs the Python function, and so does its trace
    yield *IS_TRACING, _untold_in_models
    yield *run_symbolic_place(), _typed_as_traced
    yield *CANONICALIZE_FUSED, without_booleans
    yield *INPUTS, lambda _: _inputs_by_place
    yield *OUTPUTS, lambda _: _outputs_by_place
    yield *CHECK_GRAPH, _left_out
    yield *INFER_SHAPES, _left_out  # of the whole; each node that is written has had its own
    yield *MERGE_EQUAL, _never  # our pass keeps casts apart, whose gradients are added in another dtype
    yield *PEEPHOLE, with_neutral_factors
    yield *PREPROCESS, lambda run: _with_operators(run, functions, open_inputs, eager_numerics)
    yield *ASSIGN_OUTPUT_SHAPES, unless_complex
    yield (
        *ANALYSE_SCALAR_TYPES,
        lambda run: noting_domains(casting_to_bfloat16(with_0_dim_tensors(run)), opsets),
    )


def _left_out(run: Callable[..., None]) -> Callable[..., None]:
    """Leaves out a pass that changes nothing of what is read of the model."""
    return lambda *args: None


def _inputs_by_place(node: Any) -> Iterator[Any]:
    """Lists what a node reads, in a tenth of the time that an iterator of pybind11's takes, which registers a type first."""
    return iter([node.inputsAt(i) for i in range(node.inputsSize())])


def _outputs_by_place(node: Any) -> Iterator[Any]:
    """Lists what a node gives, as _inputs_by_place does."""
    return iter([node.outputsAt(i) for i in range(node.outputsSize())])


def _never(asks: Callable[..., bool]) -> Callable[..., bool]:
    """Answers no, so that torch's Python functions run their bodies under TraceMode, which sees each op and size.

    Otherwise the mode gets the function as a whole and is off inside, where sizes become traced tensors.
    """
    return lambda *args: False


def _false_in_attention(asks: Callable[..., bool]) -> Callable[..., bool]:
    """Answers no to a multi-head attention.

    One that is told of a mode which sees what it calls takes another way, to results that lie otherwise.
    """
    return lambda *args: sys._getframe(2).f_code is not _ATTENTION and asks(*args)  # 1: in_this_thread


_ATTENTION = torch.nn.MultiheadAttention.forward.__code__


def _untold_in_models(asks: Callable[..., bool]) -> Callable[..., bool]:
    """Answers no to the models of transformers, which then go the way that they go in eager: to caches, windows, positions.

    Other code is told of the trace, as is what makes their masks: it would ask whether all of a mask is 1, which no graph can.
    """

    def is_told() -> bool:
        name = sys._getframe(3).f_globals.get("__name__")  # 1: in_this_thread, 2: torch.jit.is_tracing
        return not str(name).startswith("transformers.models.") and asks()

    return is_told


def _as_if_untraced(function: types.FunctionType) -> types.FunctionType:
    """Lets torch.func.functional_call run in a trace.

    It refuses to, as a trace could not hold its parameters; ours has them as values. What the function itself asks is answered
    otherwise. torch.jit.is_tracing stays as it is, for forwards read it.
    """
    jit = types.SimpleNamespace(**{**vars(torch.jit), "is_tracing": lambda: False})
    names = {**function.__globals__, "torch": types.SimpleNamespace(**{**vars(torch), "jit": jit})}
    made = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _typed_as_traced(run_symbolic: Callable[..., Any]) -> Callable[..., Any]:
    """Gives what an op returns the type that tracing saw, not the one that ONNX's promotion rules would give."""

    def run(graph: Any, block: Any, node: Any, *rest: Any) -> Any:
        if node.kind().startswith(DOMAIN + "::"):
            return None  # it stays as it is
        result = run_symbolic(graph, block, node, *rest)
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        for traced, made in zip(node.outputs(), results, strict=False):
            if not isinstance(made, Value) or made.node().kind().startswith(DOMAIN + "::"):
                continue  # nothing, or an operator that has its type
            if scalar_type(traced) is not None:
                made.setType(traced.type())
        return result

    return run


def _with_operators(
    preprocess: Callable[..., Any], functions: Functions, open_inputs: Collection[int], eager_numerics: bool
) -> Callable[..., Any]:
    """Puts the nodes of the torch domain in place.

    In-place operators are gone at this point, and arguments still have their types.
    """

    def run(graph: Any) -> Any:
        _type_placeholders(graph)
        functions.keep(graph)
        keep_operators(graph, eager_numerics)
        _forget_sizes(graph, open_inputs)
        return preprocess(graph)

    return run


def _type_placeholders(graph: Any) -> None:
    """Types the new values that a trace has where a part of a value was written in place: they come without sizes."""
    for node in graph.nodes():
        if node.kind() == "onnx::Placeholder":
            node.output().setType(next(iter(node.inputs())).type())


def _forget_sizes(graph: Any, open_inputs: Collection[int]) -> None:
    """Leaves only rank and dtype to what depends on open inputs or is sized by data: what is known is written into the graph."""
    inputs = list(graph.inputs())
    opened = {inputs[i].unique() for i in open_inputs}
    changed = [inputs[i] for i in open_inputs]
    for node in graph.nodes():
        if any(value.unique() in opened for value in node.inputs()) or node.hasAttribute("_sized_by_data"):
            outputs = list(node.outputs())
            opened.update(value.unique() for value in outputs)
            changed += outputs
    forget_sizes(changed)
