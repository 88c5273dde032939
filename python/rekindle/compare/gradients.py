"""Compares gradients: all of a session's with eager's as these come, which are let go at once.

Two lists of gradients take twice the memory of the parameters, and new memory costs more time than comparing what it holds.
Eager's come last: what a session writes to memory that it has handed over shows in its own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from rekindle import _native
from rekindle.compare.doubts import Doubt, failed, measured, set_bounds
from rekindle.process.torch_internals import watched_gradient
from rekindle.reasons import Bypass

_TRIMMED = 1 << 27  # freed bytes that go back to the system at once, as eager's last gradients can be the largest


class Arriving:
    """Compares eager's gradients with ours, each as soon as a backward has computed it; keeps those that are in doubt.

    An example: ours [g0, None] for the inputs [weight, x]. Within `watched`, a backward of eager's computes that of weight, which
    is compared with g0 and becomes zeros without memory in what the backward returns; `finish` takes what it returns, and finds
    that there is none for x, either.
    """

    def __init__(self, ours: list[torch.Tensor | None], names: Sequence[str], first: int) -> None:
        """Takes ours, one an input, with names for messages; doubts count their positions on from `first`."""
        self._ours, self._names, self._first = ours, names, first
        self._doubts: list[Doubt] = []
        self._failed: dict[int, Bypass] = {}
        self._lying: dict[int, torch.Tensor] = {}  # of those that came, on the device "meta"
        self._largest = 0.0  # the norm of eager's
        self._let_go = 0  # bytes of ours that were freed since the heap was last trimmed

    @contextmanager
    def watched(self, inputs: Sequence[torch.Tensor]) -> Iterator[None]:
        """Takes the gradients of those inputs that are leaves as they come, from a backward that runs within the block."""
        positions: dict[int, list[int]] = {}
        for i, tensor in enumerate(inputs):
            if tensor.requires_grad and tensor.is_leaf and not tensor._backward_hooks:
                positions.setdefault(id(tensor), []).append(i)
        with ExitStack() as hooks:
            for own in positions.values():
                hooks.enter_context(watched_gradient(inputs[own[0]], functools.partial(self._take_all, own)))
            yield

    def finish(self, theirs: list[torch.Tensor | None], least: float) -> tuple[list[torch.Tensor | None], list[Doubt]]:
        """Takes those that are left of what a backward returned; returns how all lie, without numbers, and doubts about ours.

        least: a relative error that is no proof of a wrong graph

        Raises Bypass for the first that is wrong whatever rounding does.
        """
        for i, other in enumerate(theirs):
            if i not in self._lying:
                self._take(i, other)
        if self._failed:
            raise self._failed[min(self._failed)]
        set_bounds(self._doubts, self._largest, least)
        lying = [self._lying.get(i) for i in range(len(theirs))]
        return lying, sorted(self._doubts, key=lambda doubt: doubt.position)

    def _take_all(self, positions: list[int], theirs: torch.Tensor | None) -> torch.Tensor | None:
        """Compares one that came, and returns what a backward may keep in its place: None for itself."""
        if theirs is None or theirs.layout is not torch.strided or theirs._is_zerotensor():
            return None
        for i in positions:
            self._take(i, theirs)
        return theirs.new_zeros(()).expand(theirs.shape)

    def _take(self, i: int, theirs: torch.Tensor | None) -> None:
        ours, self._ours[i] = self._ours[i], None
        what = f"the gradient of {self._names[i]}"
        if theirs is not None:
            self._lying[i] = _without_numbers(theirs)
        try:
            if (ours is None) != (theirs is None):
                here, in_eager = ("None" if gradient is None else "there" for gradient in (ours, theirs))
                raise failed(f"{what} is {here}, in eager {in_eager}")
            if ours is not None and theirs is not None and (distance := measured(what, ours, theirs)) is not None:
                self._largest = max(self._largest, distance.scale if theirs.is_floating_point() else 0.0)
                if not distance.is_near:
                    self._doubts.append(Doubt(self._first + i, what, ours, theirs, distance))
        except Bypass as bypass:  # which `finish` raises, if it is the first
            self._failed[i] = bypass
        self._let_go += 0 if ours is None else ours.nbytes
        if self._let_go >= _TRIMMED:
            del ours, theirs
            _native.release_free_memory()
            self._let_go = 0


def _without_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor that lies as this one does and takes no memory."""
    if tensor.layout is not torch.strided:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
