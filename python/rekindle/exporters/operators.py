"""Operators that the graph takes as they are: nodes of the torch domain (docs/ir.md), run and differentiated by PyTorch.

A traced operator is written as ONNX where the table below names it: where the session's planned memory or its kernels
pay. Every other one becomes one node with the operator's name and its arguments, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rekindle.reasons import Bypass, Reason

DOMAIN = "torch"

Node = Any  # torch._C.Node
Value = Any  # torch._C.Value


def _constant(node: Node, name: str) -> Any:
    """The Python value of an argument; None where it is computed."""
    schema = _schema(node)
    position = [argument.name for argument in schema.arguments].index(name)
    return list(node.inputs())[position].toIValue()


def _tensor_type(node: Node, name: str) -> Any:
    schema = _schema(node)
    return list(node.inputs())[[argument.name for argument in schema.arguments].index(name)].type()


def _always(node: Node) -> bool:
    return True


def _exact_quotient(node: Node) -> bool:
    return not any(argument.name == "rounding_mode" for argument in _schema(node).arguments)


def _of_one_dimension(node: Node) -> bool:
    return _schema(node).overload_name != "dims"


def _known_start(node: Node) -> bool:
    return _schema(node).overload_name != "Tensor"


def _class_indices(node: Node) -> bool:
    return bool(_tensor_type(node, "target").scalarType() == "Long")


def _plain_lookup(node: Node) -> bool:
    return not _constant(node, "scale_grad_by_freq") and not _constant(node, "sparse")


def _equal_heads(node: Node) -> bool:
    return not _constant(node, "enable_gqa")


def _of_vectors(node: Node) -> bool:
    return len(_tensor_type(node, "input").sizes()) > 0


_ALWAYS = """
    add sub rsub mul neg exp log sqrt rsqrt pow tanh sigmoid relu gelu silu erf sin cos abs reciprocal square
    where masked_fill eq ne lt le gt ge logical_not logical_and logical_or logical_xor
    matmul mm bmm addmm baddbmm mv dot
    t numpy_T mT transpose permute movedim swapaxes view reshape flatten unflatten unsqueeze expand expand_as
    view_as reshape_as contiguous clone slice select cat stack split split_with_sizes chunk unbind repeat
    broadcast_tensors mse_loss tril triu addcmul softmax log_softmax sum mean cumsum layer_norm dropout
    zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange
    to type_as detach alias lift_fresh size dim numel
"""
_WRITTEN_AS_ONNX: dict[str, Callable[[Node], bool]] = {
    **{f"aten::{name}": _always for name in _ALWAYS.split()},
    "aten::div": _exact_quotient,
    "aten::squeeze": _of_one_dimension,
    "aten::narrow": _known_start,
    "aten::linear": _of_vectors,
    "aten::embedding": _plain_lookup,
    "aten::cross_entropy_loss": _class_indices,
    "aten::scaled_dot_product_attention": _equal_heads,
}
# The tracer sees these below autograd: that nothing requires a gradient there means nothing.
_BELOW_AUTOGRAD = {"aten::_convolution"}
# Parts of these do, without a tag that says so.
_SIZED_BY_DATA = {
    f"aten::{name}"
    for name in """
        _unique _unique2 argwhere bincount linalg_lstsq masked_select nonzero nonzero_numpy repeat_interleave.self_Tensor
        tensor_split.tensor_indices_or_sections unique_consecutive unique_dim unique_dim_consecutive
    """.split()
}
# What the tracer names by its inner part, which takes more arguments at the end.
_PUBLIC = {"aten::_convolution": "aten::convolution"}
_NAMESPACES_OF_THE_TRACER = {"prim", "onnx", "rekindle", "attr", "quantized", "caffe2", DOMAIN}


def keep_operators(graph: Any) -> None:
    """Replace the operators of a traced graph that are not written as ONNX. Raises Bypass for what cannot be a node."""
    operators = [
        node for node in graph.nodes() if node.kind().split("::")[0] not in _NAMESPACES_OF_THE_TRACER
    ]
    for node in operators:
        schema = None if _is_written_as_onnx(node) else _schema(node)
        if schema is not None and _results(node) is not None:
            _replace(graph, node, schema)
    for value in [*graph.inputs(), *(output for node in graph.nodes() for output in node.outputs())]:
        if "Complex" in (_scalar_type(value) or ""):
            value.setType(torch._C.TensorType.get())  # the exporter cannot write it down


def _is_written_as_onnx(node: Node) -> bool:
    test = _WRITTEN_AS_ONNX.get(node.kind())
    return test is not None and not _has_complex(node) and test(node)


def _has_complex(node: Node) -> bool:
    """ONNX has no complex numbers worth the name, and gradient rules are for real ones."""
    values = [*node.inputs(), *node.outputs()]
    values += [
        item
        for value in values
        if value.node().kind() == "prim::ListConstruct"
        for item in value.node().inputs()
    ]
    return any("Complex" in (_scalar_type(value) or "") for value in values)


def _scalar_type(value: Value) -> str | None:
    return value.type().scalarType() if isinstance(value.type(), torch._C.TensorType) else None


def _schema(node: Node) -> Any:
    """The operator's schema, of the functional variant for an in-place one; None when the tracer has no operator here."""
    text = node.schema()
    if text.startswith("("):
        return None
    name, _, overload = text.split("(")[0].partition(".")
    schema = torch._C._get_schema(_PUBLIC.get(name, name), overload)
    if schema.is_mutable and name.endswith("_"):
        schema = torch._C._get_schema(name[:-1], overload)
    return schema


def _results(node: Node) -> list[Value] | None:
    """The tensors it returns; None for an operator that returns something else."""
    results: list[Value] = []
    for output in node.outputs():
        if isinstance(output.type(), torch._C.TensorType):
            results.append(output)
        elif isinstance(output.type(), torch._C.ListType) and [use.user.kind() for use in output.uses()] == [
            "prim::ListUnpack"
        ]:
            results += output.uses()[0].user.outputs()
        else:
            return None
    return results


def _replace(graph: Any, node: Node, schema: Any) -> None:
    _check_meaning(node, schema)
    results = _results(node)
    assert results is not None
    namespace, _, name = schema.name.partition("::")
    made = graph.create(f"{DOMAIN}::{namespace}.{name}.{schema.overload_name or 'default'}", len(results))
    made.insertBefore(node)
    tensors = False
    for argument, value in zip(schema.arguments, node.inputs(), strict=schema.name not in _PUBLIC.values()):
        tensors |= _add_argument(graph, made, argument, value)
    if not tensors and namespace != "aten":
        raise Bypass(Reason.UNSUPPORTED_OP, f"{schema.name} computes nothing from tensors")
    _describe(made, node, schema, results)
    for old, new in zip(results, made.outputs(), strict=True):
        new.setType(old.type())
        old.replaceAllUsesWith(new)
    for unpack in [use.user for output in node.outputs() for use in output.uses()]:
        unpack.destroy()
    node.destroy()


def _check_meaning(node: Node, schema: Any) -> None:
    if schema.is_mutable:
        raise Bypass(
            Reason.UNSUPPORTED_OP, f"{schema.name} writes to its arguments, and has no variant that does not"
        )
    names = {argument.name for argument in schema.arguments}
    if "sparse" in names and _constant(node, "sparse"):
        raise Bypass(Reason.UNSUPPORTED_OP, f"{schema.name} with sparse gradients; switch them off")
    _check_sizes(node, schema)
    functional = schema.name.endswith("_functional")
    if "running_mean" in names and not functional and _updates_statistics(node, names):
        raise Bypass(
            Reason.BUFFER_MUTATED, f"{schema.name} updates its running statistics, which no graph can do yet"
        )


def _check_sizes(node: Node, schema: Any) -> None:
    """A graph is for fixed sizes: refuse what returns tensors whose sizes depend on data."""
    if schema.name == "aten::index":  # its tag is for masks
        depends = any(_scalar_type(item) in ("Bool", "Byte") for item in _listed(node))
    elif schema.name == "aten::one_hot":
        depends = _constant(node, "num_classes") == -1
    else:
        depends = schema.name in _SIZED_BY_DATA or f"{schema.name}.{schema.overload_name}" in _SIZED_BY_DATA
        depends |= torch.Tag.dynamic_output_shape in _operator(schema).tags
    if depends:
        raise Bypass(Reason.UNSUPPORTED_OP, f"the sizes of what {schema.name} returns depend on data")


def _listed(node: Node) -> list[Value]:
    return [
        item
        for value in node.inputs()
        if value.node().kind() == "prim::ListConstruct"
        for item in value.node().inputs()
    ]


def _updates_statistics(node: Node, names: set[str]) -> bool:
    """The schemas of the normalizations do not say that they write."""
    training = _constant(node, "use_input_stats" if "use_input_stats" in names else "training")
    return bool(training) and _tensor_type(node, "running_mean").kind() != "NoneType"


def _describe(made: Node, node: Node, schema: Any, results: list[Value]) -> None:
    inputs = [
        value.type().requires_grad()
        for value in made.inputs()
        if isinstance(value.type(), torch._C.TensorType)
    ]
    below = node.kind() in _BELOW_AUTOGRAD and any(inputs)
    made.i_("_results", len(results))
    made.is_(
        "_differentiable", [i for i, value in enumerate(results) if below or value.type().requires_grad()]
    )
    made.is_("_unused", [i for i, value in enumerate(results) if not _is_used(value)])
    layouts = [_layout(value) for value in results]
    if None not in layouts:
        made.is_("_layouts", [number for layout in layouts for number in layout or []])
    made.i_("_random", int(_may_draw(schema)))


def _is_used(value: Value) -> bool:
    """By a node or as an output; an unpacked list is used by what uses its items."""
    return any(use.user.kind() != "prim::ListUnpack" for use in value.uses())


def _layout(value: Value) -> list[int] | None:
    """Dtype as in ONNX, rank, sizes and strides, as eager gave them."""
    dtype, sizes, strides = (
        _NUMBER_OF_DTYPE.get(_scalar_type(value) or ""),
        value.type().sizes(),
        value.type().strides(),
    )
    if dtype is None or sizes is None or strides is None:
        return None
    return [dtype, len(sizes), *sizes, *strides]


def _may_draw(schema: Any) -> bool:
    """Whether it may draw random numbers. Of operators that are not PyTorch's own, nobody says that they do not."""
    return not schema.name.startswith("aten::") or torch.Tag.nondeterministic_seeded in _operator(schema).tags


def _operator(schema: Any) -> Any:
    namespace, _, name = schema.name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), name), schema.overload_name or "default")


def _add_argument(graph: Any, made: Node, argument: Any, value: Value) -> bool:
    """Add one argument as inputs or as an attribute; whether it brought a tensor."""
    kind = argument.type
    if isinstance(kind, torch._C.OptionalType):
        kind = kind.getElementType()
    if isinstance(kind, torch._C.TensorType):
        made.addInput(_as_tensor(graph, made, value))
        return True
    if isinstance(kind, torch._C.ListType) and _element_is_tensor(kind):
        return _add_tensors(graph, made, argument.name, value)
    _add_attribute(made, argument.name, kind, _known(value, f"argument {argument.name!r} of {made.kind()}"))
    return False


def _element_is_tensor(kind: Any) -> bool:
    element = kind.getElementType()
    if isinstance(element, torch._C.OptionalType):
        element = element.getElementType()
    return isinstance(element, torch._C.TensorType)


def _add_tensors(graph: Any, made: Node, name: str, value: Value) -> bool:
    if value.node().kind() == "prim::Constant" and value.toIValue() is None:
        return False
    if value.node().kind() != "prim::ListConstruct":
        raise Bypass(
            Reason.UNSUPPORTED_OP,
            f"argument {name!r} of {made.kind()} is a list that is no list of tensors in the trace",
        )
    items = list(value.node().inputs())
    for item in items:
        made.addInput(_as_tensor(graph, made, item))
    made.i_(name, len(items))
    return bool(items)


def _as_tensor(graph: Any, made: Node, value: Value) -> Value:
    """A number that stands for a tensor becomes one, of the dtype that keeps the operator's result what it is."""
    number = value.toIValue() if value.node().kind() == "prim::Constant" else None
    if not isinstance(number, (bool, int, float, complex)):
        return value
    dtypes = [_DTYPES.get(_scalar_type(item) or "") for item in made.inputs()]
    beside = next((dtype for dtype in dtypes if dtype is not None), torch.get_default_dtype())
    constant = torch.tensor(number, dtype=torch.result_type(torch.empty(1, dtype=beside), number))
    node = graph.create("prim::Constant")
    node.insertBefore(made)
    node.t_("value", constant)
    node.output().inferTypeFrom(constant)
    return node.output()


def _known(value: Value, what: str) -> Any:
    if value.node().kind() == "prim::ListConstruct":
        return [_known(item, what) for item in value.node().inputs()]
    if value.node().kind() != "prim::Constant":
        raise Bypass(Reason.VALUE_SPECIALIZED, f"{what} is computed from a tensor; pass a Python number")
    return value.toIValue()


def _add_attribute(made: Node, name: str, kind: Any, value: Any) -> None:
    """Numbers that are no ints are tensors: an ONNX attribute has 32 bits only."""
    if value is None:
        return
    many = isinstance(kind, torch._C.ListType)
    if many:
        kind = kind.getElementType()
    if isinstance(kind, (torch._C.IntType, torch._C.BoolType)):
        made.is_(name, [int(item) for item in value]) if many else made.i_(name, int(value))
    elif isinstance(kind, torch._C.FloatType):
        made.t_(name, torch.tensor(value, dtype=torch.float64))
    elif isinstance(kind, torch._C.NumberType) and not many:
        made.t_(name, torch.tensor(value, dtype=_NUMBERS[type(value)]))
    elif isinstance(kind, (torch._C.StringType, torch._C.DeviceObjType)) and not many:
        made.s_(name, str(value))
    else:
        raise Bypass(Reason.UNSUPPORTED_OP, f"argument {name!r} of {made.kind()} is of type {kind}")


_NUMBER_OF_DTYPE = {
    "Float": 1, "Byte": 2, "Char": 3, "Short": 5, "Int": 6, "Long": 7, "Bool": 9, "Half": 10, "Double": 11,
    "ComplexFloat": 14, "ComplexDouble": 15, "BFloat16": 16,
}  # fmt: skip
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_DTYPES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
}
