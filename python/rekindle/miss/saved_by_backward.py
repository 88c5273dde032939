"""Finds the tensors of a call that eager's backward reads although the forward wrote them: a later write is an error.

What eager would say is found out at the export (session/autograd/later_writes.h raises the same error for a graph).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from rekindle.errors import ran_out_of_memory
from rekindle.miss.perturbation import SecondCall
from rekindle.process.torch_internals import run_backward, set_version_counters

_SAYS = "has been modified by an inplace operation"


def saved_writes(call: SecondCall, writes: Sequence[int]) -> list[int]:
    """Finds which of the tensors that a call of eager's has written its backward reads, as places in `writes`.

    Looks at modules with one result that requires a gradient only: of others not every backward reads them. Leaves the call as it
    was.
    """
    end = len(call.outputs) - len(writes)
    roots = [output for output in call.outputs[:end] if output.requires_grad]
    leaves = tuple(tensor for tensor in call.tensors if tensor.requires_grad)
    if len(roots) != 1 or not leaves:
        return []

    def is_read(places: Sequence[int]) -> bool:
        written = tuple(call.outputs[end + place] for place in places)
        try:
            with _as_if_written(written):
                run_backward(tuple(roots), (torch.ones_like(roots[0]),), True, False, leaves, True, accumulate_grad=False)
        except RuntimeError as error:
            if ran_out_of_memory(error):
                raise
            return _SAYS in str(error)
        return False

    if not call.bumped or not is_read(call.bumped):
        return []
    return [place for place in call.bumped if is_read([place])]


@contextlib.contextmanager
def _as_if_written(tensors: tuple[torch.Tensor, ...]) -> Iterator[None]:
    versions = tuple(tensor._version for tensor in tensors)
    set_version_counters(tensors, tuple(version + 1 for version in versions))
    try:
        yield
    finally:
        set_version_counters(tensors, versions)
