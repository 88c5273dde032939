"""Runs the backward that only measures gradients: the one before the backward that a user asked for.

An example: an optimizer has the head of a model, and the input of the model requires a gradient. `backward_to` the head's
parameters gives these their gradients; the input's, its hooks, and the rest of the model wait for the backward that follows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

# Functions that run a backward of their own inside of a backward: torch's, and others' of the same name and kind.
_RUN_BACKWARDS = frozenset({"CheckpointFunctionBackward"})


def backward_to(
    parameters: Iterable[torch.Tensor], loss: torch.Tensor, gradient: torch.Tensor | None, others: Iterable[torch.Tensor]
) -> None:
    """Gives parameters their gradients, keeps the graph, and leaves the gradients of other leaves and of the loss as they are.

    Hooks of other leaves do not run, unless a Function runs a backward of its own. A checkpoint with `use_reentrant=True` does,
    and cannot be asked for the gradients of some leaves only.

    parameters: those of them that are frozen get nothing
    others: leaves, which such a Function may hide from the graph
    """
    wanted = [one for one in parameters if one.requires_grad and one.is_leaf]
    if not wanted:  # torch takes no inputs for all inputs
        return
    leaves, is_whole = _reached(loss)
    found = {id(one) for one in wanted}
    aside = {id(one): one for one in [*leaves, *others] if one.is_leaf and id(one) not in found}
    if loss.retains_grad:
        aside[id(loss)] = loss
    with _put_aside([*aside.values()]):
        loss.backward(gradient, retain_graph=True, inputs=None if is_whole else wanted)


def _reached(loss: torch.Tensor) -> tuple[list[torch.Tensor], bool]:
    """Returns the leaves that a backward of the loss reaches, and whether one of its Functions runs a backward of its own."""
    leaves, runs_backward = [] if loss.grad_fn is not None else [loss], False
    waiting: list[Any] = [loss.grad_fn]
    met: set[Any] = {None}
    while waiting:
        node = waiting.pop()
        if node in met:
            continue
        met.add(node)
        kind = type(node).__name__
        if kind == "AccumulateGrad":
            leaves.append(node.variable)
        runs_backward |= kind in _RUN_BACKWARDS
        waiting += [following for following, _ in node.next_functions]
    return leaves, runs_backward


@contextlib.contextmanager
def _put_aside(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Lets tensors have no gradient in the body, and the one of before after it."""
    before = [(one, one.grad) for one in tensors]
    try:
        for one in tensors:
            one.grad = None
        yield
    finally:
        for one, gradient in before:
            one.grad = gradient
