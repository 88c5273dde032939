"""Raises eager's error in a backward that reads what its forward wrote, if that was written later.

A graph's backward reads what the graph has saved, which may be something else (a copy of a counter that the forward has raised,
where eager saves the counter). What eager would say is found out at the export (miss/saved_by_backward.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from rekindle.process.torch_internals import set_version_counters

SAYS = "has been modified by an inplace operation"
_own = WeakIdKeyDictionary()  # how often Rekindle has written a tensor without a change


def note_own_writes(versions: Iterable[tuple[torch.Tensor, int]]) -> None:
    """Counts what was written since these versions as no write of the user's: it has left the values as they were."""
    for tensor, version in versions:
        if tensor._version != version:
            _own[tensor] = _own.get(tensor, 0) + tensor._version - version


def uncount_writes(versions: Sequence[tuple[torch.Tensor, int]]) -> None:
    """Sets tensors back to these versions: eager's operators write them without counting it, as a batch norm its statistics."""
    if versions:
        tensors, numbers = zip(*versions, strict=True)
        set_version_counters(tensors, numbers)


def _version(tensor: torch.Tensor) -> int:
    return tensor._version - _own.get(tensor, 0) if _own else tensor._version


def refuse_later_writes(outputs: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> None:
    """Lets the backward of a graph's outputs raise RuntimeError where `written`, none of it with a history, was written since."""
    node = next((output.grad_fn for output in outputs if output.grad_fn is not None), None)
    versions = [(tensor, _version(tensor)) for tensor in written]

    def check(gradients: Any) -> None:
        for tensor, version in versions:
            if (now := _version(tensor)) != version:
                raise RuntimeError(
                    f"one of the variables needed for gradient computation {SAYS}: a tensor that "
                    f"the wrapped module has made or written is at version {now}; expected version {version} instead"
                )

    if node is not None:
        node.register_prehook(check)
