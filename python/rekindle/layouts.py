"""Copies of tensors that lie in memory as the tensors do: code that asks for strides, or needs some, does the same with them."""

from __future__ import annotations

from collections.abc import Callable

import torch

_LARGEST_GAPS = 8  # bytes of memory a byte of numbers; what is sparser is copied densely


def copied(tensor: torch.Tensor, change: Callable[[torch.Tensor], None] = lambda dense: None) -> torch.Tensor:
    """A leaf with the numbers, sizes and strides of `tensor`, in memory of its own, that requires a gradient if it does.

    change: writes to the distinct numbers, before they are laid out. Dimensions that `expand` has made stay expanded. Strides that make elements overlap
    otherwise, or lie far apart, become dense.
    """
    distinct = tensor.detach()
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            distinct = distinct.narrow(dim, 0, 1)
    dense = distinct.clone(memory_format=torch.preserve_format)
    change(dense)
    if dense.stride() != distinct.stride() and _lies_apart(distinct):
        memory = torch.zeros(_extent(distinct), dtype=dense.dtype, device=dense.device)
        dense = memory.as_strided(distinct.shape, distinct.stride()).copy_(dense)
    return dense.expand(tensor.shape).detach().requires_grad_(tensor.requires_grad)


def share_memory(tensor: torch.Tensor, others: list[torch.Tensor]) -> bool:
    """Whether writing to `tensor` may change one of the others, other than itself."""
    memory = tensor.untyped_storage().data_ptr()
    return any(other is not tensor and other.numel() > 0 and other.untyped_storage().data_ptr() == memory for other in others)


def _extent(tensor: torch.Tensor) -> int:
    """Elements of memory from the first to the last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie in memory without gaps, each in a place of its own."""
    return tensor.numel() == 0 or (_extent(tensor) == tensor.numel() and _lies_apart(tensor))


def _lies_apart(tensor: torch.Tensor) -> bool:
    """Whether each element has a place of its own, and the places are not too far apart."""
    if tensor.numel() == 0 or _extent(tensor) > _LARGEST_GAPS * tensor.numel() + 64:
        return False
    end = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < end:
            return False
        end += (size - 1) * stride
    return True
