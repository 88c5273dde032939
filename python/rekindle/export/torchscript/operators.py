"""Keeps operators in the graph as they are: nodes of the torch domain (docs/ir.md), run and differentiated by PyTorch.

A traced operator is written as ONNX where the table of written_as_onnx.py names it. Every other one, whatever it is, becomes one
node: `x.cumprod(1)` is torch::aten.cumprod.default(x) with dim = 1.
"""

from __future__ import annotations

from typing import Any

import torch

from rekindle.export.torchscript.dtypes import DTYPES, NUMBERS
from rekindle.export.torchscript.operator_arguments import add_argument, is_computed
from rekindle.export.torchscript.operator_checks import check_meaning
from rekindle.export.torchscript.rounding import rounds_otherwise
from rekindle.export.torchscript.written_as_onnx import is_written_as_onnx
from rekindle.export.trace.autocast_operators import AUTOCAST
from rekindle.export.trace.data_sizes import is_sized_by_data
from rekindle.export.trace.traced_operators import (
    PUBLIC,
    operator_of,
    schema_of,
    take_place_of,
)
from rekindle.process.torch_internals import ListType, Node, NoneType, TensorType, Value, scalar_type
from rekindle.reasons import Bypass, Reason

DOMAIN = "torch"

# The tracer sees these below autograd: that nothing requires a gradient there means nothing.
_BELOW_AUTOGRAD = {"aten::_convolution"}
_NAMESPACES_OF_THE_TRACER = {"prim", "onnx", "rekindle", "attr", "quantized", "caffe2", DOMAIN}


def keep_operators(graph: Any, eager_numerics: bool = False) -> None:
    """Replaces the operators of a traced graph that are not written as ONNX. Raises Bypass for what cannot be a node.

    eager_numerics: whether those are kept, too, whose results or gradients ONNX would round otherwise
    """
    operators = [node for node in graph.nodes() if node.kind().split("::")[0] not in _NAMESPACES_OF_THE_TRACER]
    for node in operators:
        is_onnx = is_written_as_onnx(node) and not (eager_numerics and rounds_otherwise(node))
        schema = None if is_onnx else schema_of(node)
        if schema is not None and _results(node) is not None:
            _replace(graph, node, schema)
        elif node.hasAttribute(AUTOCAST):
            node.removeAttribute(AUTOCAST)
    for constant in [value.node() for value in _complex_values(graph) if value.node().kind() == "prim::Constant"]:
        _take_apart(graph, constant)
    for value in _complex_values(graph):
        value.setType(TensorType.get())  # the exporter cannot write it down


def _complex_values(graph: Any) -> list[Value]:
    values = [*graph.inputs(), *(output for node in graph.nodes() for output in node.outputs())]
    return [value for value in values if "Complex" in (scalar_type(value) or "")]


def _take_apart(graph: Any, constant: Node) -> None:
    """Makes a complex constant one of its two parts, and a node that puts them together."""
    parts = torch.view_as_real(constant.output().toIValue().resolve_conj().contiguous())
    real = graph.create("prim::Constant")
    real.insertBefore(constant)
    real.t_("value", parts)
    real.output().inferTypeFrom(parts)
    made = graph.create(f"{DOMAIN}::aten.view_as_complex.default")
    made.insertBefore(constant)
    made.addInput(real.output())
    made.output().inferTypeFrom(torch.view_as_complex(parts))
    _describe(made, made, torch.ops.aten.view_as_complex.default._schema, [made.output()])
    constant.output().replaceAllUsesWith(made.output())
    constant.destroy()


def _results(node: Node) -> list[Value] | None:
    """Returns the tensors that a node gives; None for an operator that returns something else."""
    results: list[Value] = []
    for output in node.outputs():
        if isinstance(output.type(), TensorType):
            results.append(output)
        elif isinstance(output.type(), ListType) and [use.user.kind() for use in output.uses()] == ["prim::ListUnpack"]:
            results += output.uses()[0].user.outputs()
        else:
            return None
    return results


def _replace(graph: Any, node: Node, schema: Any) -> None:
    check_meaning(node, schema)
    results = _results(node)
    assert results is not None
    namespace, _, name = schema.name.partition("::")
    made = graph.create(f"{DOMAIN}::{namespace}.{name}.{schema.overload_name or 'default'}", len(results))
    made.insertBefore(node)
    made.copyMetadata(node)
    tensors = False
    computed = []
    for i, (argument, value) in enumerate(zip(schema.arguments, node.inputs(), strict=schema.name not in PUBLIC.values())):
        tensors |= add_argument(graph, made, argument, value)
        if is_computed(value):
            computed.append(i)
    if computed:
        made.is_("_computed", computed)
    if not tensors and namespace != "aten":
        raise Bypass(Reason.UNSUPPORTED_OP, f"{schema.name} computes nothing from tensors")
    if node.hasAttribute(AUTOCAST):
        made.is_(AUTOCAST, [node.i(AUTOCAST), *(NUMBERS[DTYPES[scalar_type(value)]] for value in results)])
    _describe(made, node, schema, results)
    take_place_of(node, made, results)


def _describe(made: Node, node: Node, schema: Any, results: list[Value]) -> None:
    below = node.kind() in _BELOW_AUTOGRAD and any(map(_requires_grad, made.inputs()))
    made.i_("_results", len(results))
    made.is_("_differentiable", [i for i, value in enumerate(results) if below or value.type().requires_grad()])
    made.is_("_unused", [i for i, value in enumerate(results) if not _is_used(value)])
    if is_sized_by_data(node, schema):
        made.i_("_sized_by_data", 1)
    elif (layouts := layouts_of(results)) is not None:
        made.is_("_layouts", layouts)
    if (sizes := input_sizes(made)) is not None:
        made.is_("_sizes", sizes)
    made.i_("_random", int(_may_draw(schema)))


def _requires_grad(value: Value) -> bool:
    """Tells whether a tensor depends differentiably on what needs a gradient, which the trace does not say below autograd."""
    if not isinstance(value.type(), TensorType):
        return False
    maker = value.node()
    described = maker.kind().startswith(f"{DOMAIN}::") and maker.hasAttribute("_differentiable")
    return value.type().requires_grad() or (described and value.offset() in getattr(maker, "is")("_differentiable"))


def input_sizes(made: Node) -> list[int] | None:
    """Returns the inputs' ranks and sizes in a row: of each its rank, then its sizes. None when one is not known."""
    found: list[int] = []
    for value in made.inputs():
        sizes = value.type().sizes() if isinstance(value.type(), TensorType) else None
        if isinstance(value.type(), NoneType):
            continue
        if sizes is None:
            return None
        found += [len(sizes), *sizes]
    return found


def _is_used(value: Value) -> bool:
    """Tells whether a node reads the value or it is an output; an unpacked list is used by what uses its items."""
    return any(use.user.kind() != "prim::ListUnpack" for use in value.uses())


def layouts_of(values: list[Value]) -> list[int] | None:
    """Returns for each, in a row: dtype as in ONNX, rank, sizes and strides, as eager gave them. None when one is not known."""
    layouts = [_layout(value) for value in values]
    return None if None in layouts else [number for layout in layouts for number in layout or []]


def _layout(value: Value) -> list[int] | None:
    dtype, sizes, strides = (
        NUMBERS.get(DTYPES.get(scalar_type(value) or "")),
        value.type().sizes(),
        value.type().strides(),
    )
    if dtype is None or sizes is None or strides is None:
        return None
    return [dtype, len(sizes), *sizes, *strides]


def _may_draw(schema: Any) -> bool:
    """Tells whether it may draw random numbers. Of operators that are not PyTorch's own, nobody says that they do not."""
    return not schema.name.startswith("aten::") or torch.Tag.nondeterministic_seeded in operator_of(schema).tags
