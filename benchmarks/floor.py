"""Measures the floor of a training step: its matrix products, convolutions and attention kernels alone.

They are recorded from one forward and backward in eager, and called again on the same tensors: same shapes, strides and dtypes,
same sharing of memory. What is left out is all that a compiler could fuse or drop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

# What PyTorch's counter of floating-point operations does not know of: the CPU's kernels, and products by vectors.
_MORE = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_fused_attention_overrideable_backward",
    "addbmm",
    "addmv",
    "dot",
    "linear",
    "linear_backward",
    "mkldnn_rnn_layer",
    "mkldnn_rnn_layer_backward",
    "mv",
)
PRODUCTS = frozenset(flop_registry) | {getattr(torch.ops.aten, name) for name in _MORE}


class ProductCalls(TorchDispatchMode):
    """Records the calls of products made in its block, with their tensors.

    calls: (operator, arguments, keyword arguments), in order
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator, and keeps the call if it is a product."""
        kwargs = kwargs or {}
        if operator.overloadpacket in PRODUCTS:
            self.calls.append((operator, args, kwargs))
        return operator(*args, **kwargs)

    def replay(self) -> None:
        """Makes the calls again, without autograd; their results are dropped."""
        with torch.no_grad():
            for operator, args, kwargs in self.calls:
                operator(*args, **kwargs)


def record(forward: Callable[[], torch.Tensor]) -> tuple[ProductCalls, ProductCalls]:
    """Runs `forward`, which returns the loss, and its backward; returns the calls of each."""
    ahead, back = ProductCalls(), ProductCalls()
    with ahead:
        loss = forward()
    with back:
        loss.backward()
    return ahead, back
