"""Reads off eager's autograd graph which backwards of one call exclude each other, and which results lie on the way of others.

A backward frees what the nodes that it runs have saved, and a further one that meets such a node is an error. Nodes that save
nothing (sums, views) may be met again. So what counts is which nodes with saved tensors lie between which results and which
inputs; session/plan/saved_groups.h keeps the books.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import get_gradient_edge

Group = list[list[int]]  # positions of results that require a gradient, positions of inputs


class AutogradGraph:
    """Holds the nodes between results and inputs.

    It has to be made before a backward of all of them that does not retain the graph.

    For `h = w.exp()` and the results `[h.sin(), h.cos()]`, `groups()` is `[[[0, 1], [0]]]`: exp has saved h, so that only one
    backward passes it. `inner()` is `[[], []]`: no result lies on the way of another.
    """

    def __init__(self, results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        self._inputs: dict[int, int] = {}  # node -> bits of the inputs that it stands for
        self._keep: list[Any] = []
        for i, tensor in enumerate(inputs):
            if tensor.requires_grad:
                node = get_gradient_edge(tensor).node
                self._keep.append(node)
                self._inputs[id(node)] = self._inputs.get(id(node), 0) | 1 << i
        self._roots = [get_gradient_edge(tensor).node for tensor in results]
        self._order = self._sorted()
        # What a Function has saved cannot be told any more afterwards; other nodes tell only then.
        self._saving = {id(node) for node in self._order if isinstance(node, BackwardCFunction) and node._raw_saved_tensors}

    def _next(self, node: Any) -> Iterator[Any]:
        if id(node) not in self._inputs:
            yield from (other for other, _ in node.next_functions if other is not None)

    def _sorted(self) -> list[Any]:
        """Returns all nodes, each before those that it leads to."""
        order: list[Any] = []
        seen: set[int] = set()
        for root in self._roots:
            stack = [(root, self._next(root))] if id(root) not in seen else []
            seen.add(id(root))
            while stack:
                node, following = stack[-1]
                other = next((other for other in following if id(other) not in seen), None)
                if other is None:
                    order.append(node)
                    stack.pop()
                else:
                    seen.add(id(other))
                    stack.append((other, self._next(other)))
        order.reverse()
        return order

    def groups(self) -> list[Group]:
        """Returns the groups that decide, after the backward; a group that is in another is left out."""
        results, inputs = dict.fromkeys(map(id, self._order), 0), dict.fromkeys(map(id, self._order), 0)
        for i, root in enumerate(self._roots):
            results[id(root)] |= 1 << i
        for node in self._order:
            for other in self._next(node):
                results[id(other)] |= results[id(node)]
        for node in reversed(self._order):
            inputs[id(node)] = self._inputs.get(id(node), 0)
            for other in self._next(node):
                inputs[id(node)] |= inputs[id(other)]
        found = {
            (results[id(node)], inputs[id(node)])
            for node in self._order
            if id(node) not in self._inputs and inputs[id(node)] and self._frees(node)
        }
        largest: list[tuple[int, int]] = []
        for mine in sorted(found, key=lambda group: (-group[0].bit_count() - group[1].bit_count(), group)):
            if not any(mine[0] | other[0] == other[0] and mine[1] | other[1] == other[1] for other in largest):
                largest.append(mine)
        return [[_positions(results), _positions(inputs)] for results, inputs in largest]

    def inner(self) -> list[list[int]]:
        """Returns, per result, the others that lie between it and the inputs, which its gradient passes."""
        own = dict.fromkeys(map(id, self._order), 0)
        for i, root in enumerate(self._roots):
            own[id(root)] |= 1 << i
        below = dict.fromkeys(own, 0)
        for node in reversed(self._order):
            for other in self._next(node):
                below[id(node)] |= own[id(other)] | below[id(other)]
        return [_positions(below[id(root)]) for root in self._roots]

    def _frees(self, node: Any) -> bool:
        """Tells whether a node that a backward has run cannot run again."""
        kind = type(node)
        if isinstance(node, BackwardCFunction):
            return id(node) in self._saving
        if kind.__name__ == "CopySlices" or (names := _saved_by(kind)) is None:
            return True
        return any(_is_freed(node, name) for name in names)


@cache
def _saved_by(kind: type) -> tuple[str, ...] | None:
    """Returns the attributes of a node's class that unpack what it has saved; None where nothing is known of it."""
    if kind.__name__ == "CppFunction":  # a node of a C++ extension
        return None
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))


def _is_freed(node: Any, name: str) -> bool:
    try:
        getattr(node, name)
    except RuntimeError:
        return True
    return False


def _positions(bits: int) -> list[int]:
    return [i for i in range(bits.bit_length()) if bits >> i & 1]
