"""Keeps operators in the graph as they are: nodes of the torch domain (docs/ir.md), run and differentiated by PyTorch.

A traced operator is written as ONNX where the table below names it: where the session's planned memory or its kernels pay. Every
other one, whatever it is, becomes one node: `x.cumprod(1)` is torch::aten.cumprod.default(x) with dim = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rekindle.export.torchscript.dtypes import DTYPES, NUMBERS
from rekindle.export.torchscript.operator_arguments import add_argument, is_computed
from rekindle.export.torchscript.operator_checks import check_meaning
from rekindle.export.trace.data_sizes import is_sized_by_data
from rekindle.export.trace.traced_booleans import is_boolean
from rekindle.export.trace.traced_operators import (
    PUBLIC,
    constant_argument,
    listed_values,
    operator_of,
    schema_of,
    take_place_of,
    type_of_argument,
)
from rekindle.process.torch_internals import ListType, Node, NoneType, TensorType, Value, scalar_type
from rekindle.reasons import Bypass, Reason

DOMAIN = "torch"


def _always(node: Node) -> bool:
    return True


def _numbers_fit(node: Node) -> bool:
    """Tells whether numbers and 0-dim tensors lose nothing in the result's dtype; PyTorch does not round them to half."""
    dtype = scalar_type(next(node.outputs()))
    return dtype not in ("Half", "BFloat16") or all(_fits(value, dtype) for value in node.inputs())


def _fits(value: Value, dtype: str) -> bool:
    number = value.toIValue() if value.node().kind() == "prim::Constant" else None
    if isinstance(number, torch.Tensor) and number.dim() == 0:
        number = number.item()
    if isinstance(number, (bool, int, float)):
        rounded, exact = (torch.tensor(number, dtype=one, device="cpu").double() for one in (DTYPES[dtype], torch.float64))
        return bool(rounded == exact)
    is_scalar = isinstance(value.type(), TensorType) and value.type().sizes() == []
    return not is_scalar or scalar_type(value) == dtype


def _exact_quotient(node: Node) -> bool:
    return _numbers_fit(node) and not any(argument.name == "rounding_mode" for argument in schema_of(node).arguments)


def _known_start(node: Node) -> bool:
    return schema_of(node).overload_name != "Tensor"


def _keeps_numbers(*names: str) -> Callable[[Node], bool]:
    """Returns a test whether these arguments, in ONNX attributes of 32 bits, are as precise as the operator's result."""

    def test(node: Node) -> bool:
        numbers = (constant_argument(node, name) for name in names)
        return scalar_type(next(node.inputs())) != "Double" or all(
            number is not None and torch.tensor(number, dtype=torch.float32, device="cpu").item() == number for number in numbers
        )

    return test


def _of_matrices(node: Node) -> bool:
    """Tells whether numbers fit, and what is added has dimensions: else the exporter takes it for a float32 number."""
    return _not_of_scalars(node) and _keeps_numbers("alpha", "beta")(node)


def _of_three(node: Node) -> bool:
    return len(schema_of(node).arguments) == 3


def _class_indices(node: Node) -> bool:
    return type_of_argument(node, "target").scalarType() == "Long" and _keeps_numbers("label_smoothing")(node)


def _plain_lookup(node: Node) -> bool:
    return not constant_argument(node, "scale_grad_by_freq") and not constant_argument(node, "sparse")


def _on_the_host(node: Node) -> bool:
    """Tells whether tensors are on the CPU: elsewhere PyTorch chooses a fused kernel, with draws of its own."""
    devices = (type_of_argument(node, name).device() for name in ("query", "key", "value"))  # None: not known any more
    on_host = all(device is None or device.type == "cpu" for device in devices)
    return on_host and not constant_argument(node, "enable_gqa")


def _not_of_scalars(node: Node) -> bool:
    return bool(next(node.inputs()).type().sizes())


def _in_single_or_double(node: Node) -> bool:
    """Tells whether dtype and `value` suit: in half PyTorch rounds once, several ops round often; `value` becomes float32."""
    fits = scalar_type(next(node.outputs())) in ("Float", "Double") and _keeps_numbers("value")(node)
    return _not_of_scalars(node) and fits


def _equal_ranks(node: Node) -> bool:
    """Tells whether all items have one rank: PyTorch leaves empty vectors out of any concatenation."""
    ranks = {value.type().dim() for value in listed_values(node)}
    return len(ranks) <= 1


def _of_vectors(node: Node) -> bool:
    return type_of_argument(node, "input").sizes() != []  # None: of what was written in place, where a trace keeps no sizes


def _several_parts(node: Node) -> bool:
    uses = [use.user for output in node.outputs() for use in output.uses()]
    return bool(uses) and all(use.kind() == "prim::ListUnpack" and len([*use.outputs()]) > 1 for use in uses)


def _equal_chunks(node: Node) -> bool:
    return _equal_parts(node, "chunks")


def _equal_splits(node: Node) -> bool:
    return _equal_parts(node, "split_size")


def _equal_parts(node: Node, argument: str) -> bool:
    sizes = type_of_argument(node, "self").sizes()
    divisor = constant_argument(node, argument)
    return _several_parts(node) and sizes is not None and sizes[constant_argument(node, "dim")] % divisor == 0


_ALWAYS = """
    neg exp log sqrt rsqrt pow tanh sigmoid relu gelu silu erf sin cos abs reciprocal square
    masked_fill eq ne lt le gt ge logical_not logical_and logical_or logical_xor
    matmul mm bmm mv dot
    t numpy_T mT transpose permute movedim swapaxes view reshape flatten unflatten unsqueeze squeeze expand expand_as
    view_as reshape_as contiguous clone slice select stack repeat
    broadcast_tensors tril triu softmax log_softmax sum mean cumsum dropout
    zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange
    to type_as detach alias lift_fresh size dim numel
"""
_WRITTEN_AS_ONNX: dict[str, Callable[[Node], bool]] = {
    **{f"aten::{name}": _always for name in _ALWAYS.split()},
    **{f"aten::{name}": _numbers_fit for name in ("add", "sub", "rsub", "mul")},
    **{f"aten::{name}": _several_parts for name in ("split_with_sizes", "unbind")},
    "aten::chunk": _equal_chunks,
    "aten::split": _equal_splits,
    "aten::mse_loss": _not_of_scalars,
    "aten::addcmul": _in_single_or_double,
    **{f"aten::{name}": _of_matrices for name in ("addmm", "baddbmm")},
    "aten::layer_norm": _keeps_numbers("eps"),
    "aten::cat": _equal_ranks,
    "aten::div": _exact_quotient,
    "aten::where": _of_three,
    "aten::narrow": _known_start,
    "aten::linear": _of_vectors,
    "aten::embedding": _plain_lookup,
    "aten::cross_entropy_loss": _class_indices,
    "aten::scaled_dot_product_attention": _on_the_host,
}
# The tracer sees these below autograd: that nothing requires a gradient there means nothing.
_BELOW_AUTOGRAD = {"aten::_convolution"}
_NAMESPACES_OF_THE_TRACER = {"prim", "onnx", "rekindle", "attr", "quantized", "caffe2", DOMAIN}


def keep_operators(graph: Any) -> None:
    """Replaces the operators of a traced graph that are not written as ONNX. Raises Bypass for what cannot be a node."""
    operators = [node for node in graph.nodes() if node.kind().split("::")[0] not in _NAMESPACES_OF_THE_TRACER]
    for node in operators:
        schema = None if _is_written_as_onnx(node) else schema_of(node)
        if schema is not None and _results(node) is not None:
            _replace(graph, node, schema)
    for node in list(graph.nodes()):
        if node.kind() == "prim::Constant" and "Complex" in (scalar_type(node.output()) or ""):
            _take_apart(graph, node)
    for value in [*graph.inputs(), *(output for node in graph.nodes() for output in node.outputs())]:
        if "Complex" in (scalar_type(value) or ""):
            value.setType(TensorType.get())  # the exporter cannot write it down


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


def _is_written_as_onnx(node: Node) -> bool:
    test = _WRITTEN_AS_ONNX.get(node.kind())
    plain = not _has_complex(node) and not any(map(is_boolean, node.inputs()))
    return test is not None and plain and test(node)


def _has_complex(node: Node) -> bool:
    """Tells whether a value is complex: ONNX has no complex numbers worth the name, and gradient rules are for real ones."""
    values = [*node.inputs(), *node.outputs()]
    values += [item for value in values if value.node().kind() == "prim::ListConstruct" for item in value.node().inputs()]
    return any("Complex" in (scalar_type(value) or "") for value in values)


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
    _describe(made, node, schema, results)
    take_place_of(node, made, results)


def _describe(made: Node, node: Node, schema: Any, results: list[Value]) -> None:
    inputs = [value.type().requires_grad() for value in made.inputs() if isinstance(value.type(), TensorType)]
    below = node.kind() in _BELOW_AUTOGRAD and any(inputs)
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
