"""Finds re-entrant checkpoints with several results whose gradients no graph has.

An example: `return softmax(scores), values * scores` in a re-entrant checkpoint. In eager it is one autograd Function: a loss of
the first result alone gives all that is read in the checkpoint a gradient, zeros for what made the values. A graph, which has the
operations themselves, would give these none. Where all that one may differentiate leads to the same, as in a model whose loss
depends on both, there is no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from rekindle.reasons import Bypass, Reason

_Edge = tuple[Any, int]  # a node of autograd's graph, and which of its results


class Joined(torch.autograd.Function):
    """Stands in autograd's graph for a checkpoint with these results."""

    @staticmethod
    def forward(ctx: Any, *results: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the results."""
        return tuple(result.clone() for result in results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the gradients."""
        return gradients


def joined(result: Any) -> Any:
    """Returns the result of a checkpoint, joined where several of its tensors may have a gradient."""
    if type(result) is not tuple:
        return result
    places = [i for i, each in enumerate(result) if isinstance(each, torch.Tensor) and _may_have_gradient(each)]
    if len(places) < 2 or not any(result[i].requires_grad for i in places):
        return result
    found = dict(zip(places, Joined.apply(*(result[i] for i in places)), strict=True))
    return tuple(found.get(i, each) for i, each in enumerate(result))


def _may_have_gradient(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def refuse_parted(outputs: Iterable[torch.Tensor]) -> None:
    """Raises Bypass(python_op) where a backward of one output would be another one than eager's. Needs the outputs' graph."""
    edges = [get_gradient_edge(output) for output in outputs if output.requires_grad]
    ends = [(edge.node, edge.output_nr) for edge in edges]
    nodes = {id(node): node for node, _ in _reached(ends) if _is_joined(node)}
    if not nodes:
        return
    passed = [_joined_passed(end) for end in ends]
    for node in nodes.values():
        inside = [_reached([edge]) for edge in node.next_functions]
        leaves = [{id(at) for at, _ in edges if not at.next_functions} for edges in inside]
        every = set().union(*leaves)
        for end, places in zip(ends, passed, strict=True):
            through = places.get(id(node))
            if through is not None and set().union(*(leaves[place] for place in through)) != every:
                raise _refused("a backward of some of the results is also one of what only the others need")
            if end[0] is node and _is_on_the_way(node.next_functions[end[1]][0], inside, end[1]):
                raise _refused("one is computed from another, whose hooks see no gradient that comes by that way")


def _joined_passed(end: _Edge) -> dict[int, set[int]]:
    """Returns which results of which joined nodes, by their ids, lead to an output."""
    passed: dict[int, set[int]] = {}
    for node, place in _reached([end]):
        if _is_joined(node):
            passed.setdefault(id(node), set()).add(place)
    return passed


def _is_on_the_way(node: Any, inside: Sequence[Sequence[_Edge]], own: int) -> bool:
    return any(at is node for place, edges in enumerate(inside) if place != own for at, _ in edges)


def _reached(starts: Sequence[_Edge]) -> list[_Edge]:
    """Returns the edges that gradients pass from these on; of a joined node, what only its other results need is not reached."""
    edges = [edge for edge in starts if edge[0] is not None]
    seen = {(id(node), place if _is_joined(node) else 0) for node, place in edges}
    for node, place in edges:  # grows
        following = [node.next_functions[place]] if _is_joined(node) else node.next_functions
        for other, other_place in following:
            key = (id(other), other_place if other is not None and _is_joined(other) else 0)
            if other is not None and key not in seen:
                seen.add(key)
                edges.append((other, other_place))
    return edges


def _is_joined(node: Any) -> bool:
    return isinstance(node, Joined._backward_cls)


def _refused(why: str) -> Bypass:
    return Bypass(
        Reason.PYTHON_OP,
        f"a re-entrant checkpoint returns several tensors: in eager, {why}; use_reentrant=False has the gradients of a graph",
    )
