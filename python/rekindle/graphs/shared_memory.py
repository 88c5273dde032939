"""Finds who else sees what a graph writes, and which of a call's arguments are the module's own tensors.

A graph computes with values; a write to memory that several tensors see changes each of them, which a graph does not do. Ranges
of addresses are compared, [begin, end) from the first element of a tensor to its last, whatever storages they are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch

from rekindle.results.layouts import bytes_of

_address = torch.Tensor.data_ptr


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
        self._state, self._contents, self._writes, self._saves = state, contents, writes, saves
        self._dense = [tensor for tensor in state if tensor.layout is torch.strided]
        self._positions = {id(tensor): i for i, tensor in reversed([*enumerate(state)])}
        self._own = self._own_among(arguments)
        self._addresses: list[int] | None = None  # when _fixed was last looked at
        self._fixed: list[tuple[int, int]] = []  # ranges of the state, then of the contents
        self._storages: list[int] = []  # of the state
        self._shared: int | None = None  # the first of `writes` that another of _fixed shares memory with

    def _own_among(self, arguments: list[torch.Tensor]) -> list[tuple[int, int]]:
        positions = self._positions
        return [(i, positions[id(tensor)]) for i, tensor in enumerate(arguments) if id(tensor) in positions]

    def fits(self, arguments: list[torch.Tensor]) -> bool:
        """Tells whether the same arguments as then are tensors of the module, and the same ones."""
        for tensor in arguments:
            if id(tensor) in self._positions:
                return self._own_among(arguments) == self._own
        return not self._own

    def shared(self, arguments: list[torch.Tensor]) -> int | None:
        """Finds the first of `writes` whose bytes another tensor has, or None. Without arguments, looks at the state only."""
        addresses = [*map(_address, self._dense), *(_address(one) for one in self._contents if isinstance(one, torch.Tensor))]
        if addresses != self._addresses:
            self._look_at_fixed()
            self._addresses = addresses
        if self._shared is not None:
            return self._shared
        given = [bytes_of(tensor) for tensor in arguments]
        storages = self._storages_of(arguments)
        return next((write for write in self._writes if write >= -len(given) and self._shares(write, given, storages)), None)

    def _storages_of(self, tensors: list[torch.Tensor]) -> list[int]:
        return [_storage(tensor) for tensor in tensors] if self._saves else []

    def _look_at_fixed(self) -> None:
        self._fixed = [*map(bytes_of, self._state), *map(_bytes_of, self._contents)]
        shared: set[int] = set()
        last, end = -1, 0  # the range that reaches farthest
        for (begin, its_end), i in sorted((one, i) for i, one in enumerate(self._fixed) if one[0] < one[1]):
            if begin < end:
                shared |= {last, i}
            if its_end > end:
                last, end = i, its_end
        self._storages = self._storages_of(self._state)
        met: dict[int, int] = {}
        for i, storage in enumerate(self._storages):
            if storage and storage in met:
                shared |= {met[storage], i}
            met[storage] = i
        self._shared = next((write for write in self._writes if write in shared), None)

    def _shares(self, write: int, given: Sequence[tuple[int, int]], storages: Sequence[int]) -> bool:
        mine = write + len(given)
        if storages and self._is_part(write, mine, storages):
            return True
        one = given[mine] if write < 0 else self._fixed[write]
        if any(_overlap(one, other) for i, other in enumerate(given) if write >= 0 or i != mine):
            return True
        return write < 0 and any(_overlap(one, other) for other in self._fixed)

    def _is_part(self, write: int, mine: int, storages: Sequence[int]) -> bool:
        """Tells whether another tensor is in the storage of what is written."""
        storage = storages[mine] if write < 0 else self._storages[write]
        if any(storage == other for i, other in enumerate(storages) if write >= 0 or i != mine):
            return storage != 0
        return write < 0 and storage != 0 and storage in self._storages


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _bytes_of(content: Any) -> tuple[int, int]:
    if isinstance(content, torch.Tensor):
        return bytes_of(content)
    if not isinstance(content, numpy.ndarray) or content.size == 0:
        return 0, 0  # what no tensor is made of
    reaches = [(size - 1) * stride for size, stride in zip(content.shape, content.strides, strict=True)]
    start = content.__array_interface__["data"][0]
    return start + sum(min(reach, 0) for reach in reaches), start + sum(max(reach, 0) for reach in reaches) + content.itemsize
