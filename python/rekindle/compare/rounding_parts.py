"""Computes operators as PyTorch does that round on the way to numbers which then cancel: each part rounds by itself."""

from __future__ import annotations

from collections.abc import Callable

import torch


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    moved = x - x.amax(dim, True)
    return moved - moved.exp().sum(dim, True).log()


def _log_softmax_backward(grad: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype) -> torch.Tensor:
    return grad - output.exp() * grad.sum(dim, True)


# Those of which neither what they are given nor their result shows it: a probability of nearly 1, whose logarithm is nearly 0.
IN_PARTS: dict[str, Callable[..., torch.Tensor]] = {
    "aten::_log_softmax": _log_softmax,
    "aten::_log_softmax_backward_data": _log_softmax_backward,
}
