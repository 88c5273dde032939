"""Names the operators written as ONNX that the session rounds otherwise than PyTorch; numerics="eager" leaves them to PyTorch.

An example: `x.rsqrt()` becomes 1 / sqrt(x), two roundings where PyTorch has one.
"""

from __future__ import annotations

from collections.abc import Callable

from rekindle.export.torchscript.written_as_onnx import tensors_of
from rekindle.process.torch_internals import Node


def _always(node: Node) -> bool:
    return True


def _is_broadcast(node: Node) -> bool:
    """Tells whether one operand may be repeated over batches of the other: its gradient is a sum."""
    sizes = [value.type().sizes() for value in tensors_of(node)]
    if None in sizes:
        return True
    batches = [each[:-2] for each in sizes]
    return batches[0] != batches[1]


# Operators of the table that the session computes, or differentiates, with sums in another order or other roundings.
_ROUNDS_OTHERWISE: dict[str, Callable[[Node], bool]] = {
    **{f"aten::{name}": _always for name in ("layer_norm", "cross_entropy_loss", "scaled_dot_product_attention")},
    **{f"aten::{name}": _always for name in ("rsqrt", "mse_loss", "pow", "repeat")},
    "aten::matmul": _is_broadcast,
}


def rounds_otherwise(node: Node) -> bool:
    """Tells whether a result or a gradient of what is written as ONNX may differ from PyTorch's by rounding."""
    test = _ROUNDS_OTHERWISE.get(node.kind())
    return test is not None and test(node)
