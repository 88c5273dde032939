"""Finds the tensors of a call that eager's backward reads although the forward wrote them: a later write is an error.

What eager would say is found out at the export (session/autograd/saved_versions.h raises the same error for a graph).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from rekindle.errors import ran_out_of_memory
from rekindle.miss.perturbation import SecondCall
from rekindle.process.torch_internals import run_backward, set_version_counters
from rekindle.results.saved_groups import AutogradGraph, Saved

_SAYS = "has been modified by an inplace operation"


def saved_writes(call: SecondCall, used: Sequence[int], writes: Sequence[int]) -> list[Saved]:
    """Finds which of the tensors that a call of eager's has written its backward reads, by place in `writes`.

    used: positions in the call of the graph's inputs

    For a forward that returns `(x * w).sin()` after `w` was written, and `x.cos()`, it is `[(0, [0], [0])]`: a backward from the
    first result to x reads the written w. Leaves the call as it was.
    """
    end = len(call.outputs) - len(writes)
    roots = [output for output in call.outputs[:end] if output.requires_grad]
    inputs = [call.tensors[i] for i in used]
    if not roots or not any(tensor.requires_grad for tensor in inputs):
        return []
    graph = AutogradGraph(roots, inputs)
    told = graph.saved(call.outputs[end:])
    return told if graph.tells_all else told + _untold(call, roots, inputs, told, end)


def _untold(
    call: SecondCall, roots: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], told: Sequence[Saved], end: int
) -> list[Saved]:
    """Returns what nodes that do not tell what they have saved read beside `told`: eager's error says so."""
    leaves = tuple(tensor for tensor in inputs if tensor.requires_grad)
    differentiable = [i for i, tensor in enumerate(inputs) if tensor.requires_grad]

    def is_read(places: Sequence[int], by: Sequence[torch.Tensor]) -> bool:
        ones = tuple(map(torch.ones_like, by))
        try:
            with _as_if_written(tuple(call.outputs[end + place] for place in places)):
                run_backward(tuple(by), ones, True, False, leaves, True, accumulate_grad=False)
        except RuntimeError as error:
            if ran_out_of_memory(error):
                raise
            return _SAYS in str(error)
        return False

    found: list[Saved] = []
    if not call.bumped or not is_read(call.bumped, roots):
        return found
    for place in call.bumped:
        unknown = [i for i in range(len(roots)) if not any(place == known and i in results for known, results, _ in told)]
        if unknown and is_read([place], [roots[i] for i in unknown]):
            reading = [i for i in unknown if is_read([place], [roots[i]])]
            found.append((place, reading, differentiable))
    return found


@contextlib.contextmanager
def _as_if_written(tensors: tuple[torch.Tensor, ...]) -> Iterator[None]:
    versions = tuple(tensor._version for tensor in tensors)
    set_version_counters(tensors, tuple(version + 1 for version in versions))
    try:
        yield
    finally:
        set_version_counters(tensors, versions)
