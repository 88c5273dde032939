"""Puts back what a forward wrote to tensors in memory that other processes may write meanwhile, and nothing of theirs.

An example: PROGRESS was moved by `share_memory_()`, and another process counts in it while an export runs. A forward that only
reads it has not changed it: its version, which torch counts up at each write of this process, is the one of before. Where a
forward writes two rows of a table, these are put back, and the rows that are as they were are not written.
"""

from __future__ import annotations

from typing import Any

import torch

from rekindle.key.values.cells import TENSOR, Cells
from rekindle.process.shared_mappings import Mapping, can_tell, shared_mappings
from rekindle.results.layouts import bytes_of

_NUMBERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}  # by size

Parts = tuple[int, torch.Tensor]  # the version, and the bytes


class SharedTensors:
    """Knows which tensors lie in memory that other processes may write. Looks for that memory when it is first asked."""

    def __init__(self) -> None:
        self._mappings: list[Mapping] | None = None

    def cells_of(self, value: Any, cells: Cells) -> Cells:
        """Returns the cells by which a value is kept: others than `cells` for a tensor in such memory."""
        if cells is not TENSOR or value.device.type != "cpu" or value.is_inference() or value.is_conj() or value.is_neg():
            return cells
        if self._mappings is None:
            self._mappings = shared_mappings() if can_tell() else []
        begin, end = bytes_of(value)
        is_shared = value.is_shared() or any(one.begin < end and begin < one.end for one in self._mappings)
        return _SHARED if is_shared else cells


def _take(tensor: torch.Tensor) -> Parts:
    return tensor._version, TENSOR.take(tensor)


def _same(now: Parts, before: Parts) -> bool:
    return now[0] == before[0] or TENSOR.same(now[1], before[1])


def _put_back(tensor: torch.Tensor, before: Parts) -> None:
    """Writes the elements that differ."""
    size = tensor.element_size()
    differs = (TENSOR.take(tensor).view(-1, size) != before[1].view(-1, size)).any(1).reshape(tensor.shape).numpy()
    numbers = before[1].view(_NUMBERS[size]).reshape(tensor.shape).numpy()
    tensor.detach().view(_NUMBERS[size]).numpy()[differs] = numbers[differs]


_SHARED = Cells(None, _take, _put_back, same=_same)
