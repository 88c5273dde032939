"""Follows writes in place to memory that several tensors of a forward see, for a graph without writes.

A tracer follows tensors, not memory: after `part = x[1:]; part.mul_(2)` it takes `x` for what it was. Here the whole memory of
such tensors becomes one value, flat and in the order of its addresses. A write makes a new flat value with the written elements
exchanged; every tensor of that memory is taken from the newest flat value when it is next used. Where sizes are open, the flat
value is in the order of the tensor that all others are views of, and their places are what the same views make of its elements'
numbers.

In the example, with x = [a, b, c], `part` has the places [1, 2]. The write makes [a, 2b, 2c] of the flat value [a, b, c], and x,
when it is used again, is what that has at the places [0, 1, 2].
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rekindle.export.trace.user_place import user_place
from rekindle.process.torch_internals import set_traced_value, traced_value, untraced
from rekindle.reasons import Bypass, Reason
from rekindle.results.layouts import elements_may_overlap
from rekindle.results.view_steps import repeated
from rekindle.results.views import root_of
from rekindle.sizes.traced_sizes import swapped

if TYPE_CHECKING:
    from rekindle.export.trace.view_records import ViewRecords

_straight_through = torch.ops.rekindle.straight_through.default  # found once: looking it up changes torch.ops
_MOST = 1 << 20  # elements of a memory; each read and write of it holds their places as a constant


@dataclass
class _Memory:
    """Holds the elements of one memory that was written.

    A write to `y.detach()` changes the values of `y`, and to autograd `y` is what it was: so `flats` has the elements once for
    each tensor that is no view, with the gradient that it and its views have.
    """

    owner: torch.Tensor  # keeps the memory from being reused
    flat: torch.Tensor  # all elements, traced, as the last writer sees them
    numbered: torch.Tensor | None  # of the owner's elements, in their shape, int64, traced; None where sizes are fixed
    version: int  # counts the writes
    seen: dict[int, tuple[weakref.ref[torch.Tensor], int]]  # by a tensor's identity: it, and the version of its traced value
    flats: dict[int, tuple[torch.Tensor, torch.Tensor]]  # by the identity of a tensor that is no view: it, and the elements

    def flat_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns all elements, with the gradient that the tensor has."""
        root = root_of(tensor)
        if id(root) in self.flats:
            return self.flats[id(root)][1]
        return self.flat.detach() if self.flat.requires_grad else self.flat

    def has_gradients_besides(self, tensor: torch.Tensor) -> bool:
        """Tells whether tensors have a gradient that are no views of what the tensor is one of."""
        return any(root is not root_of(tensor) and flat.requires_grad for root, flat in self.flats.values())

    def put(self, tensor: torch.Tensor, flat: torch.Tensor) -> None:
        """Replaces the elements by those after a write to the tensor."""
        others = [(root, old) for root, old in self.flats.values() if root is not root_of(tensor) and old.requires_grad]
        self.flats = {id(root): (root, _straight_through(flat.detach(), old)) for root, old in others}
        self.flats[id(root_of(tensor))] = root_of(tensor), flat
        self.flat = flat
        self.version += 1


class Aliases:
    """Knows the tensors that one traced forward has met, by the memory that they see. Used inside a trace."""

    def __init__(self, grad: bool, views: ViewRecords | None, given: list[torch.Tensor]) -> None:
        """Starts with no memory written.

        grad: the grad mode of the forward, whatever regions it has
        views: those made so far; None where sizes are fixed
        given: arguments, parameters and buffers
        """
        self._grad = grad
        self._views = views
        self._known: dict[int, dict[int, weakref.ref[torch.Tensor]]] = {}
        self._written: dict[int, _Memory] = {}
        self._data: list[torch.Tensor] = []  # what `.data` gave
        self._given = [tensor for tensor in given if tensor.layout is torch.strided]
        self._stale: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}  # whose traced value is not what they hold, and why
        self._unseen: dict[int, tuple[torch.Tensor, str]] = {}  # memory that was written and that no operator had met, and why

    def gave_data(self, data: torch.Tensor) -> None:
        """Notes what `.data` of a tensor gave: what a backward has kept of the tensor is written with it, unseen."""
        self._data.append(data)

    def wrote_unseen(self, written: list[torch.Tensor], results: list[torch.Tensor], why: str) -> None:
        """Notes tensors whose memory was written without the trace; called outside of it. What `results` hold is known to it.

        Whoever reads that memory later raises Bypass, for the trace takes it for what it was.
        """
        known_results = {id(result) for result in results}
        for tensor in written:
            address = tensor.untyped_storage().data_ptr()
            seen = [*self._living(address), *(one for one in self._given if one.untyped_storage().data_ptr() == address)]
            if not seen:
                self._unseen[address] = tensor, why
            self._stale.update((id(one), (weakref.ref(one), why)) for one in seen if id(one) not in known_results)
            if address in self._written and not known_results.isdisjoint(map(id, seen)):
                raise Bypass(Reason.PYTHON_OP, why)

    def _check_known(self, tensor: torch.Tensor, address: int) -> None:
        stale = self._stale.get(id(tensor))
        if stale is not None and stale[0]() is tensor:
            raise Bypass(Reason.PYTHON_OP, stale[1])
        if address in self._unseen:
            raise Bypass(Reason.PYTHON_OP, self._unseen[address][1])

    def meet(self, tensor: torch.Tensor) -> None:
        """Brings a tensor's traced value up to date. Called for every tensor that goes into an operator or comes out of one."""
        with untraced():
            if tensor.layout is not torch.strided or tensor.numel() == 0:
                return
            address = tensor.untyped_storage().data_ptr()
            known = self._known.setdefault(address, {})
            if id(tensor) not in known or known[id(tensor)]() is not tensor:
                known[id(tensor)] = weakref.ref(tensor)
            self._check_known(tensor, address)
        memory = self._written.get(address)
        if memory is not None:
            self._bring_up_to_date(memory, tensor)

    def shared(self, tensor: torch.Tensor) -> bool:
        """Tells whether a write to the tensor may be seen through another one."""
        with untraced():
            if tensor.layout is not torch.strided or tensor.numel() == 0:
                return False
            address = tensor.untyped_storage().data_ptr()
            return tensor._is_view() or address in self._written or any(other is not tensor for other in self._living(address))

    def write(self, tensor: torch.Tensor, change: Callable[[torch.Tensor], Any]) -> Any:
        """Does `change`, which writes to the tensor that it is given, to `tensor` and to all that share its memory.

        Returns what `change` returns. Raises Bypass for what no graph can do.
        """
        memory = self._memory_of(tensor)
        if memory.has_gradients_besides(tensor) and any(data is root_of(tensor) for data in self._data):
            message = f"{user_place()} writes to .data of a tensor that has a gradient; write to a clone, or to detach()"
            raise Bypass(Reason.UNSUPPORTED_OP, message)
        places = self._places(memory, tensor).reshape(-1)
        copy = tensor.clone()
        result = change(copy)
        flat = memory.flat_of(tensor).scatter(0, places, copy.reshape(-1))
        with torch.set_grad_enabled(self._grad):  # what others have may be used after this region
            memory.put(tensor, flat)
        with untraced():
            if copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                raise Bypass(
                    Reason.UNSUPPORTED_OP, "a tensor that shares its memory is given another shape in place; make a new one"
                )
            tensor.copy_(copy)
        take_value_of(tensor, copy)
        memory.seen[id(tensor)] = (weakref.ref(tensor), memory.version)
        return tensor if result is copy else result

    def _living(self, address: int) -> list[torch.Tensor]:
        return [tensor for ref in self._known.get(address, {}).values() if (tensor := ref()) is not None]

    def _memory_of(self, tensor: torch.Tensor) -> _Memory:
        with untraced():
            if elements_may_overlap(tensor):
                raise Bypass(Reason.UNSUPPORTED_OP, "a tensor whose elements share memory is written in place; write to a clone")
            address = tensor.untyped_storage().data_ptr()
            if address in self._written:
                return self._written[address]
            living = self._living(address)
            size = tensor.untyped_storage().nbytes() // tensor.element_size()
            candidates = [tensor, *living, *([] if tensor._base is None else [tensor._base])]
            if self._views is not None:
                candidates = [one for one in [self._views.root(tensor)] if one is not None]
            whole = next((one for one in candidates if _fills(one, size, tensor.dtype)), None)
            if whole is None or size > _MOST:
                raise Bypass(
                    Reason.UNSUPPORTED_OP,
                    f"a write in place to a part of {size} elements that other tensors see cannot be followed; write to a clone",
                )
        with torch.set_grad_enabled(self._grad):
            numbers = None if self._views is None else numbered(whole)
            flat = self._flat(whole)
            memory = _Memory(whole, flat, numbers, 0, {}, {id(root_of(whole)): (root_of(whole), flat)})
            for root in self._others_with_gradients(whole, [*living, tensor]):
                memory.flats[id(root)] = root, self._flat(root)
        for one in [*living, whole]:
            memory.seen[id(one)] = (weakref.ref(one), 0)
        self._written[address] = memory
        return memory

    def _flat(self, whole: torch.Tensor) -> torch.Tensor:
        """Returns the elements of a tensor that fills its memory.

        They are in the order of addresses or, where sizes are open, in the tensor's own.
        """
        if self._views is not None:
            return whole.reshape(-1).clone()
        with untraced():
            order = sorted(range(whole.dim()), key=lambda dim: -whole.stride(dim))
        return whole.permute(order).reshape(-1).clone()

    def _others_with_gradients(self, whole: torch.Tensor, living: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns what tensors that have a gradient are views of, other than what `whole` is one of."""
        if not self._grad:
            return []
        with untraced():
            roots = {id(root_of(one)): root_of(one) for one in [whole, *living] if one.requires_grad}
            others = [root for root in roots.values() if root is not root_of(whole)]
            if any((root.shape, root.stride()) != (whole.shape, whole.stride()) for root in others):
                message = f"{user_place()} writes to memory that several tensors with gradients share; write to a clone"
                raise Bypass(Reason.UNSUPPORTED_OP, message)
        return others

    def renew(self, tensor: torch.Tensor) -> None:
        """Brings the traced value of any tensor up to date, one included that no operator has been seen to give."""
        with untraced():
            is_plain = tensor.layout is torch.strided and tensor.numel() > 0
            if is_plain:
                self._check_known(tensor, tensor.untyped_storage().data_ptr())
            memory = self._written.get(tensor.untyped_storage().data_ptr()) if is_plain else None
        if memory is not None:
            self._take_from(memory, tensor)

    def _bring_up_to_date(self, memory: _Memory, tensor: torch.Tensor) -> None:
        known, version = memory.seen.get(id(tensor), (None, -1))
        if known is not None and known() is tensor and version == memory.version:
            return
        memory.seen[id(tensor)] = (weakref.ref(tensor), memory.version)
        if known is not None and known() is tensor:  # else just made, from a tensor that was up to date
            self._take_from(memory, tensor)

    def _take_from(self, memory: _Memory, tensor: torch.Tensor) -> None:
        places = self._places(memory, tensor)
        with torch.set_grad_enabled(self._grad):  # it may be used after this region as well
            take_value_of(tensor, memory.flat_of(tensor).index_select(0, places.reshape(-1)).reshape_as(places))

    def _places(self, memory: _Memory, tensor: torch.Tensor) -> torch.Tensor:
        """Returns where the tensor's elements are in the flat value: int64, in its shape."""
        with untraced():
            if tensor.dtype is not memory.flat.dtype:
                raise Bypass(Reason.UNSUPPORTED_OP, "memory that is written in place is seen as two dtypes; write to a clone")
            if memory.numbered is None or self._views is None:
                numbers = torch.arange(memory.flat.numel(), device=tensor.device)
                return numbers.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).clone()
            steps = self._views.steps(tensor, memory.owner)
        if steps is None:
            message = "a write in place to memory that several tensors see cannot be followed at other sizes; write to a clone"
            raise Bypass(Reason.UNSUPPORTED_OP, message)
        return repeated(steps, memory.numbered, lambda value: swapped(value, lambda size: size.traced))


def numbered(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the numbers of the tensor's elements in their order, in its shape: int64, traced."""
    numel = functools.reduce(operator.mul, tensor.shape, 1)  # a trace has these for tensors
    return torch.arange(numel, device=tensor.device).reshape(tuple(tensor.shape))


def _fills(tensor: torch.Tensor, size: int, dtype: torch.dtype) -> bool:
    """Tells whether a tensor sees each of `size` elements once."""
    if tensor.dtype is not dtype or tensor.numel() != size or tensor.storage_offset() != 0:
        return False
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def take_value_of(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Makes `tensor`, to the tracer, from now on what `other` is."""
    set_traced_value(tensor, traced_value(other))
