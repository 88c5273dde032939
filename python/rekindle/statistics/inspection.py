"""Shows tensors of a forward, and their gradients, to whoever subscribed; in a graph, as the call of an autograd Function.

`is_subscribed` decides what a forward with `inspect_activation` computes, so the recorder notes it (recording/queries.py): there
are two graphs, with and without subscribers.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import torch

from rekindle.process.exporting import exporting
from rekindle.process.torch_internals import is_in_backward

# Whether any subscription is there.
is_subscribed = False


class Observer(Protocol):
    """Takes the tensors of one call of a subscribed module."""

    def observe(self, place: Place, phase: str, tensor: torch.Tensor, call: int | None) -> int:
        """Takes one tensor; returns how many were there before of the same name in this phase of the call.

        call: for a gradient, what was returned for its tensor
        """


class Place:
    """Names a tensor: of a module's output, by the module's path and the position among the output's tensors, or of a user."""

    __slots__ = ("name", "output")

    def __init__(self, name: str, output: int | None) -> None:
        self.name, self.output = name, output


class _Running(threading.local):
    """Holds the calls of subscribed modules that this thread is in; None for one that is not recorded.

    latest: the one that began last, which a checkpoint that runs again in a backward belongs to
    """

    def __init__(self) -> None:
        self.observers: list[Observer | None] = []
        self.latest: Observer | None = None

    def begin(self, observer: Observer | None) -> None:
        """Enters a call."""
        self.observers.append(observer)
        self.latest = observer

    def innermost(self) -> Observer | None:
        """Returns who takes what is observed now, or None."""
        if exporting.active:
            return None
        if self.observers:
            return self.observers[-1]
        return self.latest if is_in_backward() else None


running = _Running()


class Inspect(torch.autograd.Function):
    """Hands on a tensor and its gradient as they are, and shows them to the innermost subscribed module that runs."""

    inplace_map = {0: 0}  # noqa: RUF012 (a declaration: docs/python-ops.md)
    inline = False  # the operations of its forward show nothing, and lead to no gradient

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str, output: int | None) -> torch.Tensor:
        """Returns the tensor's own memory, as no view of it: what writes to it in place may follow."""
        ctx.set_materialize_grads(False)
        ctx.observer = running.innermost()
        if ctx.observer is not None:
            ctx.place = Place(name, output)
            ctx.call = ctx.observer.observe(ctx.place, "forward", tensor, None)
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, None, None]:
        """Returns the gradient itself; None where there is none."""
        if ctx.observer is not None and gradient is not None and not exporting.active:
            ctx.observer.observe(ctx.place, "backward", gradient, ctx.call)
        return gradient, None, None


def inspect_activation(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, and lets its statistics and those of its gradient be written under `name`.

    To be called in the forward of a module, which is subscribed to, wrapped or neither. Without a subscription the very tensor is
    returned. Raises TypeError for what is no name or no tensor.
    """
    if not is_subscribed:
        return tensor
    if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"inspect_activation takes a name and a tensor, not {type(name).__name__} and {type(tensor).__name__}: "
            "inspect_activation('hidden', hidden)"
        )
    return Inspect.apply(tensor, name, None)
