"""Refuses writes in place that eager refuses, to views that a trace has in another form.

An example: `with torch.no_grad(): v = x.view(-1)`, then `v.add_(1)` outside of the region is an error of eager's. In the trace,
`v` is detached, and the write would pass.
"""

from __future__ import annotations

from typing import Any

import torch

from rekindle.export.trace.leaves import tensors_of
from rekindle.export.trace.user_place import user_place
from rekindle.reasons import Bypass, Reason


class ViewWrites:
    """Knows the tensors of one trace that are views to eager, and other ones to the trace."""

    def __init__(self) -> None:
        # What detach has made of views of a no_grad region, and whether these require a gradient; all are kept, for their ids.
        self._without_grad: dict[int, tuple[torch.Tensor, bool]] = {}
        self._parts: dict[int, torch.Tensor] = {}

    @property
    def some_without_grad(self) -> bool:
        """Tells whether the forward has made a view in a no_grad region."""
        return bool(self._without_grad)

    def made_without_grad(self, tensor: torch.Tensor, detached: torch.Tensor) -> None:
        """Notes what stands for a tensor that was made in a no_grad region, if that is a view."""
        if tensor._is_view():
            self._without_grad[id(detached)] = (detached, tensor.requires_grad)

    def made_parts(self, parts: list[torch.Tensor]) -> None:
        """Notes what a function returns at once, as split and chunk do, and the trace makes one by one."""
        self._parts.update((id(part), part) for part in parts)

    def refuse(self, function: Any, target: Any, given: Any) -> None:
        """Raises Bypass for a write with gradients enabled that eager refuses. given: all arguments of the call"""
        if function is torch.Tensor.detach_ and target._is_view():
            raise Bypass(Reason.UNSUPPORTED_OP, f"{user_place()} detaches a view in place, which is an error; use detach()")
        differentiates = any(tensor.requires_grad for tensor in tensors_of(given))
        if differentiates and id(target) in self._parts:
            message = f"{user_place()} writes in place to one of several views that a function returns, which is an error"
            raise Bypass(Reason.UNSUPPORTED_OP, f"{message}; write to a clone")
        _, required = self._without_grad.get(id(target), (None, None))
        if required or (required is False and differentiates):
            message = f"{user_place()} writes in place to a view that was made in a no_grad region, which is an error"
            raise Bypass(Reason.GRAD_MODE_REGION, f"{message}; write to a clone, or inside of the region")
