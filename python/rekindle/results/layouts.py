"""Describes where tensors lie in memory: for copies that lie as they do, and a graph's results that lie as eager's.

Code that asks for strides, or needs some, does the same with them. Examples, with sizes that may change (`open_sizes`):

    tensor                            layout_of                                     arrangement
    torch.empty(4, 6)                 ["order", [0, 1]]                             ""
    torch.empty(2, 3).t()             ["order", [1, 0]]                             "1 0"
    torch.empty(4, 1).expand(4, 6)    ["order", [0]]                                "0 1*"
    torch.empty(4, 6)[:, :3]          ["as computed", []]; fixed: ["strides", ...]  "0+ 1"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_LARGEST_GAPS = 8  # bytes of memory a byte of numbers; what is sparser, and not small, is copied densely
_SMALL = 64 << 20  # bytes


def copied(tensor: torch.Tensor, change: Callable[[torch.Tensor], None] = lambda dense: None) -> torch.Tensor:
    """Returns a leaf with the numbers, sizes and strides of `tensor`, in memory of its own, that requires a gradient if it does.

    Elements that share memory do so in the copy. What lies between elements is copied, too: there are kernels that read it.

    change: writes to the numbers, each once, before they are laid out
    """
    given = tensor.detach()
    if is_dense(given) or not _can_be_laid_out(given):
        dense = given.clone(memory_format=torch.preserve_format)
        change(dense)
        return dense.requires_grad_(tensor.requires_grad)
    places = torch.arange(_extent(given), device=given.device).as_strided(given.shape, given.stride()).unique()
    memory = given.as_strided((_extent(given),), (1,), given.storage_offset()).clone()
    numbers = memory[places]
    change(numbers)
    memory[places] = numbers
    return memory.as_strided(given.shape, given.stride()).detach().requires_grad_(tensor.requires_grad)


def has_memory(tensor: torch.Tensor) -> bool:
    """Tells whether all elements of a plain tensor have memory: not so where a sharding framework has freed it for now."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return True
    return tensor.untyped_storage().nbytes() >= (tensor.storage_offset() + _extent(tensor)) * tensor.element_size()


# How a result of a graph lies, as JSON: see session/plan/result_layout.h for the kinds and their numbers.
Layout = list[Any]


def layout_of(tensor: torch.Tensor, open_sizes: bool) -> Layout:
    """Describes how eager's result lies, for the graph's result to lie alike.

    open_sizes: whether a graph has to do so at other sizes too
    """
    if tensor.layout is not torch.strided:
        return ["any", []]
    order = _order_of(tensor)
    if order is not None:
        return ["order", order]
    return ["as computed", []] if open_sizes else ["strides", list(tensor.stride())]


def same_strides(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Tells whether tensors of one shape lie alike. Strides of dimensions of size 1, and of empty tensors, mean nothing."""
    pairs = zip(tensor.shape, tensor.stride(), other.stride(), strict=True)
    return tensor.numel() == 0 or all(size == 1 or stride == theirs for size, stride, theirs in pairs)


def _order_of(tensor: torch.Tensor) -> list[int] | None:
    """Returns the dimensions from the outermost, without those of stride 0; None when there are gaps between the elements."""
    dims = [dim for dim, stride in enumerate(tensor.stride()) if stride != 0]
    row_major_first = (dims, sorted(dims, key=lambda dim: (-tensor.stride(dim), tensor.shape[dim] == 1)))
    return next((order for order in row_major_first if _lies_in(tensor, order)), None)


def _lies_in(tensor: torch.Tensor, order: Sequence[int]) -> bool:
    stride = 1
    for dim in reversed(order):
        if tensor.stride(dim) != stride:
            return False
        stride *= max(tensor.shape[dim], 1)
    return True


def arrangement(tensor: torch.Tensor) -> str | None:
    """Describes how the elements lie, whatever the sizes are; None for ways that this cannot tell.

    The text is empty if the tensor is contiguous. Else it lists the dimensions larger than 1 from the outermost, with `+` where
    there are gaps between a dimension's items, `*` where these are one and the same.
    """
    if tensor.is_contiguous():
        return ""
    found = _arranged(tensor)
    return (
        None if found is None else " ".join(f"{dim}{'*' if gap is None else '+' if gap else ''}" for dim, gap in reversed(found))
    )


def _arranged(tensor: torch.Tensor) -> list[tuple[int, int | None]] | None:
    """Lists the dimensions larger than 1 from the innermost, with the elements skipped after each of their items.

    That number is None for one that is expanded. Returns None if items overlap.
    """
    large = [dim for dim, size in enumerate(tensor.shape) if size > 1]
    found: list[tuple[int, int | None]] = [(dim, None) for dim in large if tensor.stride(dim) == 0]
    end = 1
    for dim in sorted((dim for dim in large if tensor.stride(dim) > 0), key=tensor.stride):
        gap = tensor.stride(dim) - end
        if gap < 0:
            return None
        found.append((dim, gap))
        end = tensor.stride(dim) * tensor.shape[dim]
    return found


def arranged_like(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns a copy without a gradient that lies as `other`, which has an arrangement and may have other sizes.

    Where `other` expands a dimension, the first item is taken.
    """
    arranged = _arranged(other)
    if other.is_contiguous() or arranged is None:
        return tensor.detach().contiguous()
    numbers, strides, end = tensor.detach(), [1] * tensor.dim(), 1
    for dim, gap in arranged:
        if gap is None:
            numbers, strides[dim] = numbers.narrow(dim, 0, 1), 0
        else:
            strides[dim] = end + gap
            end = strides[dim] * tensor.shape[dim]
    memory = torch.zeros(end, dtype=tensor.dtype, device=tensor.device)
    memory.as_strided(numbers.shape, strides).copy_(numbers)
    return memory.as_strided(tensor.shape, strides)


def overlap(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Tells whether the memory of two tensors, from the first element of each to the last, has bytes in common."""
    start, end = bytes_of(tensor)
    other_start, other_end = bytes_of(other)
    return start < other_end and other_start < end


def sharing(positions: Sequence[int], tensors: Sequence[torch.Tensor]) -> dict[int, int]:
    """Finds, for each of the positions, the first other tensor that a write to it may change, also by position.

    An object that is there twice is two.
    """
    every, found = [bytes_of(tensor) for tensor in tensors] if positions else [], {}
    for position in positions:
        start, end = every[position]
        others = (i for i, other in enumerate(every) if i != position and start < other[1] and other[0] < end)
        if (first := next(others, None)) is not None:
            found[position] = first
    return found


def bytes_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the addresses of the first byte and after the last one; (0, 0) for what has no memory."""
    if tensor.layout is not torch.strided or tensor.numel() == 0 or tensor.data_ptr() == 0:
        return 0, 0
    return tensor.data_ptr(), tensor.data_ptr() + _extent(tensor) * tensor.element_size()


def _extent(tensor: torch.Tensor) -> int:
    """Counts the elements of memory from the first to the last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def elements_may_overlap(tensor: torch.Tensor) -> bool:
    """Tells whether two elements may have one place in memory, as those of an expanded tensor have."""
    reached = 0  # the last place of the dimensions before
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1):
        if stride <= reached:
            return True
        reached += stride * (size - 1)
    return False


def is_dense(tensor: torch.Tensor) -> bool:
    """Tells whether the elements lie in memory without gaps, each in a place of its own."""
    if tensor.numel() == 0:
        return True
    end = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != end:
            return False
        end *= size
    return True


def _can_be_laid_out(tensor: torch.Tensor) -> bool:
    extent = _extent(tensor)
    near = extent <= _LARGEST_GAPS * tensor.numel() or extent * tensor.element_size() <= _SMALL
    return near and not tensor.is_conj() and not tensor.is_neg()


def is_within(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    """Tells whether the memory between the first and the last element of the base has all elements of a tensor."""
    begin, end = _bounds(tensor)
    first, last = _bounds(base)
    return begin == end or (first <= begin and end <= last)


def _bounds(tensor: torch.Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    return begin, begin + _extent(tensor) * tensor.element_size() if tensor.numel() else begin
