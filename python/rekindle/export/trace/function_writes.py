"""What an autograd Function writes, seen operator by operator: a write that changes nothing at the export may later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from rekindle.export.trace.leaves import tensors_of
from rekindle.process.dispatch_mode import DispatchMode
from rekindle.reasons import Bypass, Reason


class Writes(DispatchMode):
    """Active around one call of a Function; `memories` are those that were there before and that it writes, by address.

    protected: addresses of memory that the live module uses; a write to it is refused before it is done.
    """

    def __init__(self, protected: set[int], what: str) -> None:
        super().__init__()
        self.memories: dict[int, torch.Tensor] = {}  # the tensor keeps the memory
        self.refused: Bypass | None = None
        self._protected, self._what = protected, what
        self._made: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = {address_of(tensor) for tensor in _strided((args, kwargs))}
        for tensor in _strided(list(_written(function._schema, args, kwargs))):
            self.note(tensor)
        result = function(*args, **kwargs)
        self._made.update((address_of(made), made) for made in _strided(result) if address_of(made) not in given)
        return result

    def note(self, tensor: torch.Tensor) -> None:
        """A tensor that is about to be written, or was found to be."""
        address = address_of(tensor)
        if address in self._made or address == 0:
            return
        if address in self._protected:
            self.refused = Bypass(Reason.STATE_MUTATED, f"{self._what} writes a parameter in place")
            raise self.refused
        self.memories.setdefault(address, tensor)


def address_of(tensor: torch.Tensor) -> int:
    """Where the tensor's memory begins."""
    return tensor.untyped_storage().data_ptr()


def _strided(values: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_of(values) if tensor.layout is torch.strided]


def _written(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """What an operator writes, by its schema."""
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[i] if i < len(args) else kwargs.get(argument.name)
