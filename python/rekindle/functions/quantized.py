"""Writes products with bitsandbytes' weights of 4 bits into graphs: as one node of onnxruntime's MatMulBnb4 each.

This file is loaded with every graph, because graphs name Statistics. It knows bitsandbytes' classes by what they have, and does
not import it.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from rekindle import _native  # noqa: F401  (defines the operator)

_matmul_bnb4 = torch.ops.rekindle.matmul_bnb4.default  # found once: looking it up changes torch.ops
_QUANT_TYPES = {"fp4": 0, "nf4": 1}  # as MatMulBnb4 numbers them


class Statistics(torch.autograd.Function):
    """Reads the tensors of a QuantState as they are now: a graph has a call that reads them from the live state in every step."""

    @staticmethod
    def forward(ctx: Any, state: Any) -> Any:
        """Returns the absolute maximum of each block: float32, [blocks].

        Where these are quantized in turn, it returns uint8 codes, the table of their values, the maxima of blocks of codes, and
        the number to add.
        """
        if not state.nested:
            return state.absmax
        return state.absmax, state.state2.code, state.state2.absmax, state.offset

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> None:
        """Returns None: statistics are not trained."""
        return None


def matmul_4bit(x: Any, packed: Any, out: Any = None, bias: Any = None, state: Any = None) -> Any:
    """Exports bitsandbytes.autograd._functions.MatMul4Bit: x [..., K] times a weight [N, K] that is `packed`, plus `bias`.

    Returns NotImplemented for what the node does not say: an empty x, an output to write to, a layout of other processors.
    """
    if out is not None or x.numel() == 0 or state is None or getattr(state, "packing_format_for_cpu", False):
        return NotImplemented
    if state.quant_type not in _QUANT_TYPES or state.blocksize % 2 != 0 or x.shape[-1] != state.shape[1]:
        return NotImplemented
    n, k = state.shape
    product = _matmul_bnb4(
        x,
        packed.view(-1),
        _absmax(state, math.ceil(n * k / state.blocksize)),
        k,
        n,
        state.blocksize,
        _QUANT_TYPES[state.quant_type],
    )
    return product if bias is None else product + bias.to(product.dtype)


def _absmax(state: Any, blocks: int) -> torch.Tensor:
    """Returns the absolute maximum of each block: float32, [blocks]."""
    if not state.nested:
        return Statistics.apply(state)
    codes, table, absmax, offset = Statistics.apply(state)
    scales = absmax[:, None].expand(-1, state.state2.blocksize).reshape(-1)[:blocks]  # the last block may be shorter
    return table[codes.view(-1).long()] * scales + offset
