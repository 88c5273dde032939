"""Reads off eager's autograd graph which backwards of one call exclude each other, and what a later write would spoil.

A backward frees what the nodes that it runs have saved, and a further one that meets such a node is an error. Nodes that save
nothing (sums, views) may be met again. So what counts is which nodes with saved tensors lie between which results and which
inputs; session/plan/saved_groups.h keeps the books. A write to a tensor that such a node has saved is an error of its backward;
session/autograd/saved_versions.h raises it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import get_gradient_edge

from rekindle import _native

Saved = tuple[int, list[int], list[int]]  # a tensor's position, positions of results, positions of inputs
Group = list[list[int]]  # positions of results that require a gradient, positions of inputs


class AutogradGraph:
    """Holds the nodes between results and inputs.

    It has to be made before a backward of all of them that does not retain the graph.

    For `h = w.exp()` and the results `[h.sin(), h.cos()]`, `groups()` is `[[[0, 1], [0]]]`: exp has saved h, so that only one
    backward passes it. `inner()` is `[[], []]`: no result lies on the way of another. `saved([w, h])` is
    `[(1, [0, 1], [0])]`.
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

    @property
    def has_functions(self) -> bool:
        """Tells whether autograd Functions, of Python or of an extension, are among the nodes."""
        return any(isinstance(node, BackwardCFunction) or type(node).__name__ == "CppFunction" for node in self._order)

    @property
    def tells_all(self) -> bool:
        """Tells whether each node tells what it has saved: no write to a view does, and no node of an extension."""
        return not any(type(node).__name__ in ("CopySlices", "CppFunction") for node in self._order)

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

    def saved(self, tensors: Sequence[torch.Tensor]) -> list[Saved]:
        """Returns which of the tensors the nodes have saved, or what shares their memory and versions, before the backward.

        With each: the results and inputs that such a node lies between. What a node of a C++ extension, or of a write to a view,
        has saved is not told.
        """
        if not tensors:
            return []
        between = self._between
        values = [
            (between[id(node)], value)
            for node in self._order
            if id(node) not in self._inputs and between[id(node)][1]
            for value in _saved_of(node)
        ]
        positions: dict[int, list[int]] = {}
        for i, counter in enumerate(_native.version_counters(tensors)):
            if counter:
                positions.setdefault(counter, []).append(i)
        found: dict[int, set[tuple[int, int]]] = {}
        for (group, _), counter in zip(values, _native.version_counters([value for _, value in values]), strict=True):
            for position in positions.get(counter, ()):
                found.setdefault(position, set()).add(group)
        return [
            (position, _positions(results), _positions(inputs))
            for position in sorted(found)
            for results, inputs in _largest(found[position])
        ]

    def ways_of_saving(self, tensors: Sequence[torch.Tensor]) -> tuple[list[int], list[int]]:
        """Returns places of the tensors that nodes have saved as they are only, and of those also as a view, before the backward.

        `x @ w` saves w, `nn.Linear` a view of its weight: after `weight.data = other` its backward still reads the memory of
        before. Where a node does not tell, all are taken for the first.
        """
        if not self.tells_all:
            return list(range(len(tensors))), []
        values = [value for node in self._order if id(node) not in self._inputs for value in _saved_of(node)]
        own = set(map(id, tensors))
        themselves = {id(value) for value in values} & own
        viewed = set(_native.version_counters([value for value in values if id(value) not in own])) - {0}
        counters = _native.version_counters(tensors)
        saved = [(i, counter in viewed) for i, counter in enumerate(counters) if id(tensors[i]) in themselves]
        return [i for i, as_view in saved if not as_view], [i for i, as_view in saved if as_view]

    def groups(self) -> list[Group]:
        """Returns the groups that decide, after the backward; a group that is in another is left out."""
        between = self._between
        found = {
            between[id(node)]
            for node in self._order
            if id(node) not in self._inputs and between[id(node)][1] and self._frees(node)
        }
        return [[_positions(results), _positions(inputs)] for results, inputs in _largest(found)]

    @cached_property
    def _between(self) -> dict[int, tuple[int, int]]:
        """Returns for each node, by its id, bits of the results that lead to it and of the inputs that it leads to."""
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
        return {key: (results[key], inputs[key]) for key in results}

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


def _saved_of(node: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors that a node has saved, each with the version counter of what was saved."""
    names = ("saved_tensors",) if isinstance(node, BackwardCFunction) else _saved_by(type(node)) or ()
    for name in names:
        try:
            value = getattr(node, name)
        except RuntimeError:  # it is spoilt already
            continue
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, torch.Tensor) and not one.is_inference():
                yield one


def _largest(groups: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the groups that are in no other, as bits of results and of inputs."""
    largest: list[tuple[int, int]] = []
    for mine in sorted(groups, key=lambda group: (-group[0].bit_count() - group[1].bit_count(), group)):
        if not any(mine[0] | other[0] == other[0] and mine[1] | other[1] == other[1] for other in largest):
            largest.append(mine)
    return largest


def _positions(bits: int) -> list[int]:
    return [i for i in range(bits.bit_length()) if bits >> i & 1]
