"""Names the operators of a trace that are written as ONNX: where the session's planned memory or its kernels pay.

An example: `torch.add` of two float32 tensors becomes ONNX's Add; of a bfloat16 tensor and 0.1 it does not, for PyTorch does not
round the number to bfloat16, and ONNX would.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from rekindle.export.torchscript.dtypes import DTYPES
from rekindle.export.trace.traced_booleans import is_boolean
from rekindle.export.trace.traced_operators import constant_argument, listed_values, schema_of, type_of_argument
from rekindle.process.torch_internals import Node, TensorType, Value, scalar_type
from rekindle.reasons import Bypass, Reason


def _always(node: Node) -> bool:
    return True


def _numbers_fit(node: Node) -> bool:
    """Tells whether numbers and tensors lose nothing in the result's dtype; PyTorch does not round one element to half."""
    dtype = scalar_type(next(node.outputs()))
    return dtype not in ("Half", "BFloat16") or all(_fits(value, dtype) for value in node.inputs())


def _alike(node: Node) -> bool:
    """Tells whether all tensors have the result's dtype, and numbers lose nothing in it."""
    dtype = scalar_type(next(node.outputs()))
    return all(scalar_type(value) == dtype for value in tensors_of(node)) and _numbers_fit(node)


def _filled_alike(node: Node) -> bool:
    """Tells whether `value` cannot be out of the result's range, which is an error: a number, or a tensor of the same dtype."""
    value = type_of_argument(node, "value")
    return not isinstance(value, TensorType) or value.scalarType() == scalar_type(next(node.outputs()))


def tensors_of(node: Node) -> list[Value]:
    """Returns the inputs of a node that are tensors; lists of tensors are none."""
    return [value for value in node.inputs() if isinstance(value.type(), TensorType)]


_RANGES = {"Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32}


def _compared_alike(node: Node) -> bool:
    """Tells whether ONNX compares the same numbers: PyTorch rounds them to a tensor's half, and wraps them to its integers.

    Where no tensor has dimensions, or dtypes differ, the exporter makes single precision of all.
    """
    tensors = tensors_of(node)
    if len({scalar_type(value) for value in tensors}) > 1 or all(value.type().sizes() == [] for value in tensors):
        return False
    for value in tensors:
        dtype = scalar_type(value) if value.type().sizes() != [] else None
        if dtype in ("Half", "BFloat16") and not all(_fits(other, dtype) for other in node.inputs()):
            return False
        if dtype in _RANGES and not all(_in_range(other, dtype) for other in node.inputs()):
            return False
    return True


def _in_range(value: Value, dtype: str) -> bool:
    number = value.toIValue() if value.node().kind() == "prim::Constant" else None
    if isinstance(number, torch.Tensor) and number.dim() == 0:
        number = number.item()
    if isinstance(number, (bool, int, float)):
        limits = torch.iinfo(_RANGES[dtype])
        return limits.min <= number <= limits.max
    is_scalar = not isinstance(value.type(), TensorType) or value.type().sizes() == []
    return not is_scalar or scalar_type(value) == dtype


def _fits(value: Value, dtype: str) -> bool:
    number = value.toIValue() if value.node().kind() == "prim::Constant" else None
    if isinstance(number, torch.Tensor) and number.dim() == 0:
        number = number.item()
    if isinstance(number, (bool, int, float)):
        rounded, exact = (torch.tensor(number, dtype=one, device="cpu").double() for one in (DTYPES[dtype], torch.float64))
        return bool(rounded == exact)
    return not isinstance(value.type(), TensorType) or scalar_type(value) == dtype


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


def _of_batches(node: Node) -> bool:
    """Tells what _of_matrices does; also that beta is not 0, and that no half is rounded before alpha multiplies it."""
    alpha, beta = (constant_argument(node, name) for name in ("alpha", "beta"))
    scaled_alike = alpha == 1 or scalar_type(next(node.outputs())) in ("Float", "Double")
    return _of_matrices(node) and scaled_alike and beta not in (None, 0)


def _single_or_double(node: Node) -> bool:
    """Tells whether the dtype is none of half, in which PyTorch rounds once where several ops, or gradients, round often."""
    return scalar_type(next(node.outputs())) in ("Float", "Double")


def _of_elements(node: Node) -> bool:
    """Tells whether no dimension is known to be 0, by which the exporter would divide."""
    return 0 not in (type_of_argument(node, "self").sizes() or ())


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


def _plain_sum(node: Node) -> bool:
    """Tells whether nothing is multiplied by alpha, which PyTorch does in the result's dtype, and before a gradient is summed."""
    return constant_argument(node, "alpha") == 1 and _numbers_fit(node)


def _plain_products(node: Node) -> bool:
    """Tells whether dtype and `value` suit: in half PyTorch rounds once; in gradients it multiplies by `value` first."""
    return _not_of_scalars(node) and _single_or_double(node) and constant_argument(node, "value") == 1


def _equal_ranks(node: Node) -> bool:
    """Tells whether all items have one rank: PyTorch leaves empty vectors out of any concatenation."""
    ranks = {value.type().dim() for value in listed_values(node)}
    return len(ranks) <= 1


def _of_one_dtype(node: Node) -> bool:
    """Tells whether all items have one dtype: the exporter promotes others, and knows none for an integer and a half."""
    return len({scalar_type(value) for value in listed_values(node)}) <= 1


def _is_view(node: Node) -> bool:
    """Tells whether the operator may return memory of its first argument, as the schema `view(Tensor(a) self, …)` says."""
    schema = schema_of(node) if node.kind().startswith("aten::") else None
    alias = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
    return alias is not None and not alias.is_write


def _of_computed(node: Node) -> bool:
    """Tells whether the copy is of no input or result: the user may write to these before the backward, which needs the copy."""
    value = next(node.inputs())
    while _is_view(value.node()):
        value = next(value.node().inputs())
    is_users = value.node().kind() == "prim::Param" or any(use.user.kind() == "prim::Return" for use in value.uses())
    is_saved = scalar_type(next(node.outputs())) in ("Half", "BFloat16", "Float", "Double")
    return not (is_users and is_saved)


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


_OF_ONE = "neg exp log sqrt pow tanh sigmoid silu relu gelu sin cos abs reciprocal square"
_ALWAYS = """
    logical_not logical_and logical_or logical_xor
    matmul mm bmm mv dot
    t numpy_T mT transpose permute movedim swapaxes view reshape unflatten unsqueeze squeeze expand expand_as broadcast_to
    view_as reshape_as contiguous meshgrid slice select stack repeat
    tril triu softmax log_softmax sum mean dropout
    zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange
    to type_as detach alias lift_fresh size dim numel
"""
_WRITTEN_AS_ONNX: dict[str, Callable[[Node], bool]] = {
    **{f"aten::{name}": _always for name in _ALWAYS.split()},
    **{f"aten::{name}": _alike for name in _OF_ONE.split()},
    **{f"aten::{name}": _plain_sum for name in ("add", "sub", "rsub")},
    "aten::mul": _numbers_fit,
    "aten::cumsum": _alike,
    "aten::masked_fill": _filled_alike,
    **{f"aten::{name}": _several_parts for name in ("split_with_sizes", "unbind")},
    "aten::chunk": _equal_chunks,
    "aten::split": _equal_splits,
    "aten::mse_loss": _not_of_scalars,
    "aten::addcmul": _plain_products,
    **{f"aten::{name}": _compared_alike for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"aten::{name}": _single_or_double for name in ("erf", "rsqrt")},
    "aten::clone": _of_computed,
    "aten::flatten": _of_elements,
    "aten::broadcast_tensors": _of_one_dtype,
    "aten::addmm": _of_matrices,
    "aten::baddbmm": _of_batches,
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


def is_written_as_onnx(node: Node) -> bool:
    """Tells whether a traced operator is written as ONNX; otherwise it stays an operator of PyTorch's.

    Raises Bypass where the exporter has changed what a write in place computes.
    """
    test = _WRITTEN_AS_ONNX.get(node.kind())
    if node.kind() == "aten::type_as" and scalar_type(next(node.outputs())) is None:
        _check_rounded(node)
    plain = not _has_complex(node) and not any(map(is_boolean, node.inputs()))
    return test is not None and plain and test(node)


def _check_rounded(node: Node) -> None:
    """Raises Bypass where the exporter rounds an operand that has another dtype than what is written in place.

    Numbers become what PyTorch makes of them, too; other than for halves, see computed_apart of in_place.py.
    """
    operand, target = node.inputs()
    dtypes = [DTYPES[dtype] for value in (operand, target) if (dtype := scalar_type(value)) is not None]
    widened = len(dtypes) == 2 and torch.promote_types(*dtypes) == dtypes[1]
    if not widened and not operand.node().kind().endswith("::Constant"):
        message = "an operator writes in place what it computes in another dtype; write its result with copy_"
        raise Bypass(Reason.UNSUPPORTED_OP, message)


def _has_complex(node: Node) -> bool:
    """Tells whether a value is complex: ONNX has no complex numbers worth the name, and gradient rules are for real ones."""
    values = [*node.inputs(), *node.outputs()]
    values += [item for value in values if value.node().kind() == "prim::ListConstruct" for item in value.node().inputs()]
    return any("Complex" in (scalar_type(value) or "") for value in values)
