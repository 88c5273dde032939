"""Buffers and arguments that a forward writes and its backward reads: a later write to one makes eager's backward an error.

A graph's backward does not read them, but what the graph has saved of them; what eager would say is found out at the export.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import _engine_run_backward
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from rekindle.perturbation import SecondCall

_SAYS = "has been modified by an inplace operation"
_own = WeakIdKeyDictionary()  # how often Rekindle has written a tensor without a change


def saved_writes(call: SecondCall, writes: Sequence[int]) -> list[int]:
    """Which of the tensors that a call of eager's has written its backward reads, as places in `writes`.

    Of modules with one result that requires a gradient: of others not every backward reads them. Leaves the call as it was.
    """
    end = len(call.outputs) - len(writes)
    roots = [output for output in call.outputs[:end] if output.requires_grad]
    leaves = tuple(tensor for tensor in call.tensors if tensor.requires_grad)
    if len(roots) != 1 or not leaves:
        return []

    def is_read(places: Sequence[int]) -> bool:
        written = tuple(call.outputs[end + place] for place in places)
        versions = tuple(tensor._version for tensor in written)
        torch._C._autograd._unsafe_set_version_counter(written, tuple(version + 1 for version in versions))
        try:
            _engine_run_backward(tuple(roots), (torch.ones_like(roots[0]),), True, False, leaves, True, accumulate_grad=False)
        except RuntimeError as error:
            return _SAYS in str(error)
        finally:
            torch._C._autograd._unsafe_set_version_counter(written, versions)
        return False

    if not call.bumped or not is_read(call.bumped):
        return []
    return [place for place in call.bumped if is_read([place])]


def note_own_writes(versions: Iterable[tuple[torch.Tensor, int]]) -> None:
    """Let what was written since these versions be no write of the user's: it has left the values as they were."""
    for tensor, version in versions:
        if tensor._version != version:
            _own[tensor] = _own.get(tensor, 0) + tensor._version - version


def _version(tensor: torch.Tensor) -> int:
    return tensor._version - _own.get(tensor, 0)


def refuse_later_writes(outputs: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> None:
    """Let the backward of a graph's outputs raise where these tensors were written since."""
    node = next((output.grad_fn for output in outputs if output.grad_fn is not None), None)
    versions = [(tensor, _version(tensor)) for tensor in written]

    def check(gradients: Any) -> None:
        for tensor, version in versions:
            if (now := _version(tensor)) != version:
                raise RuntimeError(
                    f"one of the variables needed for gradient computation {_SAYS}: a tensor of shape {list(tensor.shape)}, "
                    f"which the wrapped module has written, is at version {now}; expected version {version} instead"
                )

    if node is not None:
        node.register_prehook(check)
