"""Finds those of some tensors that others of them were computed from, as autograd has noted it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rekindle.process.torch_internals import disabled_torch_function


def ancestors(tensors: Sequence[torch.Tensor]) -> set[int]:
    """Returns the identities of the tensors from which others among them were computed.

    An example: of a loss and the logits that it is of, that of the logits. May be called while a forward is traced.
    """
    with disabled_torch_function():  # which would refuse the question about `grad_fn`
        return _ancestors(tensors)


def _ancestors(tensors: Sequence[torch.Tensor]) -> set[int]:
    made = {id(one): one for one in tensors if one.grad_fn is not None}
    if len(made) < 2:
        return set()
    places = {(one.grad_fn, one.output_nr): identity for identity, one in made.items()}
    first = min(node._sequence_nr() for node, _ in places)
    waiting: list[Any] = [node for node, _ in places]
    met, found = set(waiting), set()
    while waiting:
        for edge in waiting.pop().next_functions:
            node = edge[0]
            if edge in places:
                found.add(places[edge])
            # A thread numbers what it makes: what is older than the oldest of the tensors comes of none of them.
            if node is not None and node not in met and node._sequence_nr() >= first:
                met.add(node)
                waiting.append(node)
    return found
