"""Marks operators in whose insides autocast casts, so that a session runs them as eager does.

An example: within `torch.autocast("cpu", torch.bfloat16)`, `torch.einsum("bi,io->bo", x, w)` of float32 tensors is bfloat16, as
the product in it is autocast. The trace has one einsum, and no cast. It gets the attribute `_autocast` (docs/ir.md). A linear
layer needs none: autocast knows that operator, and the trace has its casts.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from rekindle.export.trace.leaves import tensors_of
from rekindle.export.trace.traced_operators import schema_of
from rekindle.process.torch_internals import Node, has_kernel, name_of_private_device, traced_value

AUTOCAST = "_autocast"
_NUMBERS = {torch.float16: 10, torch.bfloat16: 16}  # as in ONNX
_OF_MIXED_RESULTS = ("aten::gru", "aten::gru_cell")  # a state of float32 makes their results that, whatever is inside
_UNPACKED = ("prim::ListUnpack", "prim::TupleUnpack")


def mark_autocast(given: Any, result: Any, device: torch.device) -> None:
    """Marks the traced operator of a call, if a result has autocast's dtype and not all that it was given.

    given: the call's arguments
    device: where the call's tensors are
    """
    if not torch.is_autocast_enabled(device.type):
        return
    dtype = torch.get_autocast_dtype(device.type)
    if dtype not in _NUMBERS or all(tensor.dtype is dtype for tensor in tensors_of(given)):
        return
    for tensor in tensors_of(result):
        node = traced_value(tensor).node()
        if node.kind() in _UNPACKED:
            node = next(node.inputs()).node()
        if (tensor.dtype is dtype or node.kind() in _OF_MIXED_RESULTS) and _casts_inside(node, device.type):
            node.i_(AUTOCAST, _NUMBERS[dtype])


def _casts_inside(node: Node, device: str) -> bool:
    schema = schema_of(node) if node.kind().startswith("aten::") else None
    return schema is not None and _is_unknown_to_autocast(f"{schema.name}.{schema.overload_name}".rstrip("."), device)


@functools.cache
def _is_unknown_to_autocast(operator: str, device: str) -> bool:
    """Tells whether an operator calls others, and autocast has no rule for it but may have for these."""
    backend = "PrivateUse1" if device == name_of_private_device() else device.upper()
    return has_kernel(operator, "CompositeImplicitAutograd") and not has_kernel(operator, f"Autocast{backend}")
