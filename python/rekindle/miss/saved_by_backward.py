"""Finds the tensors of a call that eager's backward reads although the forward wrote or returned them: a later write is an error.

What eager would say is found out at the export (graphs/saved_writes.py raises the same error for a graph).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from rekindle.graphs.saved_writes import SAYS
from rekindle.miss.perturbation import SecondCall
from rekindle.process.torch_internals import run_backward, set_version_counters


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
            return SAYS in str(error)
        return False

    if not call.bumped or not is_read(call.bumped):
        return []
    return [place for place in call.bumped if is_read([place])]


def saved_results(call: SecondCall, writes: Sequence[int]) -> list[int]:
    """Returns the place of the result that its own node in eager's history has saved, if it has.

    Looks at the same modules as saved_writes.
    """
    outputs = enumerate(call.outputs[: len(call.outputs) - len(writes)])
    places = [place for place, output in outputs if output.requires_grad]
    return places if len(places) == 1 and _is_saved(call.outputs[places[0]]) else []


def _is_saved(result: torch.Tensor) -> bool:
    base = result._base if result._is_view() else None
    nodes = [tensor.grad_fn for tensor in (result, base) if tensor is not None and tensor.grad_fn is not None]
    with _as_if_written((result,)):
        return any(
            _is_refused(node, name) for node in nodes for name in dir(node) if name.startswith(("_saved_", "saved_tensors"))
        )


@contextlib.contextmanager
def _as_if_written(tensors: tuple[torch.Tensor, ...]) -> Iterator[None]:
    versions = tuple(tensor._version for tensor in tensors)
    set_version_counters(tensors, tuple(version + 1 for version in versions))
    try:
        yield
    finally:
        set_version_counters(tensors, versions)


def _is_refused(node: Any, name: str) -> bool:
    try:
        getattr(node, name)
    except RuntimeError as error:
        return SAYS in str(error)
    return False
