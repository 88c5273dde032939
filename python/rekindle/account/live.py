"""Counts the bytes of tensors that are alive: parameters, gradients, buffers, inputs and the state of an optimizer.

Memory counts once, however many tensors see it. An example: if `x` has 10 floats, `[x, x[2:6], x.view(2, 5)]` has 40 bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Returns the bytes that the tensors' elements lie in; those that lie in one storage together are counted once."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    storages = []  # kept, so that no other gets the place of one
    for tensor in tensors:
        for plain in _plain(tensor):
            storage = plain.untyped_storage()
            storages.append(storage)
            spans[storage._cdata].append(_span(plain))
    return sum(_covered(each) for each in spans.values())


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the strided tensors that a tensor consists of."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _plain(getattr(tensor, name))
    elif tensor.layout is torch.strided:
        yield tensor
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    else:
        raise TypeError(f"rekindle.memory cannot count a tensor of layout {tensor.layout}; move it out of the module's state")


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns where the elements lie in their storage, [begin, end) in bytes."""
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.storage_offset() * tensor.element_size()
    return begin, begin + (reach + 1) * tensor.element_size()


def _covered(spans: list[tuple[int, int]]) -> int:
    covered = reached = 0
    for begin, end in sorted(spans):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def state_of(optimizer: Any) -> list[torch.Tensor]:
    """Lists the tensors in the state of an optimizer. Raises TypeError for what has no state by parameter."""
    state = getattr(optimizer, "state", None)
    if not isinstance(state, Mapping):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}, which has no mapping `state`; pass a torch.optim.Optimizer")
    return [*_tensors_in(state.values())]


def _tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, Mapping):
            yield from _tensors_in(value.values())
        elif isinstance(value, (list, tuple)):
            yield from _tensors_in(value)
