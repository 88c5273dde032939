"""Finds who else sees what a graph writes, and which of a call's arguments are the module's own tensors.

A graph computes with values; a write to memory that several tensors see changes each of them, which a graph does not do. Ranges
of addresses are compared, [begin, end) from the first element of a tensor to its last, whatever storages they are in.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from rekindle import _native


class Memory:
    """Knows the memory that one graph depends on.

    state: parameters and buffers
    contents: tensors and arrays that the graph has as constants
    arguments: those of the call that the graph was made for
    writes: positions in the state, or negative ones from the end of the arguments
    saves: whether a backward may read what the graph was given. Then a write must not count as one to another tensor, which it
        does where these are parts of one storage
    """

    def __init__(
        self, state: list[torch.Tensor], contents: list[Any], arguments: list[torch.Tensor], writes: list[int], saves: bool
    ) -> None:
        own = [*state, *(content for content in contents if isinstance(content, torch.Tensor))]
        self._positions = {id(tensor): i for i, tensor in reversed([*enumerate(own)])}
        self._own = self._own_among(arguments)
        self._written = _native.WrittenMemory(state, contents, writes, saves, _bytes_of)

    def _own_among(self, arguments: list[torch.Tensor]) -> list[tuple[int, int]]:
        positions = self._positions
        return [(i, positions[id(tensor)]) for i, tensor in enumerate(arguments) if id(tensor) in positions]

    def fits(self, arguments: list[torch.Tensor]) -> bool:
        """Tells whether the same arguments as then are tensors that the graph depends on, and the same ones."""
        for tensor in arguments:
            if id(tensor) in self._positions:
                return self._own_among(arguments) == self._own
        return not self._own

    def shared(self, arguments: list[torch.Tensor]) -> int | None:
        """Finds the first of `writes` whose bytes another tensor has, or None. Without arguments, looks at the state only."""
        return self._written.shared(arguments)


def versions_of(tensors: list[torch.Tensor]) -> list[int]:
    """Returns how often each tensor was written, -1 where PyTorch does not count it."""
    return [-1 if tensor.is_inference() else tensor._version for tensor in tensors]


def _bytes_of(content: Any) -> tuple[int, int]:
    """Returns the range of what is no tensor."""
    if not isinstance(content, numpy.ndarray) or content.size == 0:
        return 0, 0  # what no tensor is made of
    reaches = [(size - 1) * stride for size, stride in zip(content.shape, content.strides, strict=True)]
    start = content.__array_interface__["data"][0]
    return start + sum(min(reach, 0) for reach in reaches), start + sum(max(reach, 0) for reach in reaches) + content.itemsize
