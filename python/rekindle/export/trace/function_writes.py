"""Sees what an autograd Function writes, operator by operator: a write that changes nothing at the export may later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from rekindle.export.trace.leaves import tensors_of
from rekindle.process.dispatch_mode import DispatchMode
from rekindle.process.torch_internals import FunctionContext
from rekindle.reasons import Bypass, Reason


class Writes(DispatchMode):
    """Sees what one call of a Function writes, while it is active around the call.

    protected: addresses of memory that the live module uses; a write to it is refused before it is done
    what: names the Function in messages
    """

    def __init__(self, protected: set[int], what: str) -> None:
        super().__init__()
        self.memories: dict[int, torch.Tensor] = {}  # written, and there before, by address; the tensor keeps the memory
        self.refused: Bypass | None = None  # what was raised for a protected one
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
        """Notes a tensor that is about to be written, or was found to be. Raises Bypass for protected memory."""
        address = address_of(tensor)
        if address in self._made or address == 0:
            return
        if address in self._protected:
            self.refused = Bypass(Reason.STATE_MUTATED, f"{self._what} writes a parameter in place")
            raise self.refused
        self.memories.setdefault(address, tensor)


def kept_by_contexts(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns what a Function has kept for its backward as attributes of its context: no version tells of writes to that.

    results: what it has returned
    """
    nodes = {id(result.grad_fn): result.grad_fn for result in results}
    contexts = [node for node in nodes.values() if isinstance(node, FunctionContext)]
    return _strided([list(vars(context).values()) for context in contexts])


def address_of(tensor: torch.Tensor) -> int:
    """Returns where the tensor's memory begins."""
    return tensor.untyped_storage().data_ptr()


def _strided(values: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_of(values) if tensor.layout is torch.strided]


def _written(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """Yields what an operator writes, by its schema."""
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[i] if i < len(args) else kwargs.get(argument.name)
