"""Learns from calls at several sizes how the sizes of what autograd Functions return follow from those that they are given.

An example: [["float32", [[0, 1], 8]]] is the rule (functions/calls.py) of a Function whose one result is [second size of its
first tensor, 8].

A rule is what a plan is made for. Each call compares what the Function does return (functions/binding.py), so that a rule which
does not hold costs the graph, not the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rekindle.functions.calls import Rule, tensors_among
from rekindle.functions.inlining import checkpoints_inlined


@dataclass(frozen=True)
class Observed:
    """Holds the sizes of one call of a Function."""

    function: type
    given: list[tuple[int, ...]]  # sizes of the tensors that it was given
    results: list[tuple[int, ...]]  # sizes of the tensors that it returned
    dtypes: list[str]  # of these, as "float32"

    @staticmethod
    def of(function: type, given: list[torch.Tensor], results: list[torch.Tensor]) -> Observed:
        """Makes the record of a call that returned."""
        dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in results]
        return Observed(function, [tuple(x.shape) for x in given], [tuple(x.shape) for x in results], dtypes)


@contextlib.contextmanager
def observed(functions: set[type]) -> Iterator[list[Observed]]:
    """Records eager's calls of some Functions, in order, without those that a Function makes itself.

    Gives the list that grows.
    """
    found: list[Observed] = []
    depth = 0

    def watch(function: type, arguments: tuple[Any, ...], run: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            result = run(*arguments)
        finally:
            depth -= 1
        if depth == 0 and function in functions:
            results = result if isinstance(result, tuple) else (result,)
            tensors = [item for item in results if isinstance(item, torch.Tensor)]
            found.append(Observed.of(function, tensors_among(arguments), tensors or [torch.zeros((), device="cpu")]))
        return result

    with checkpoints_inlined(watch):
        yield found


def rules(at_export: list[Observed], elsewhere: list[list[Observed]]) -> list[Rule | None]:
    """Returns the rule of each call at the export, from that call and from runs at other sizes; None for one that has none.

    at_export: the calls of the export
    elsewhere: the calls of each other run; all rules are None if one run makes calls of other Functions
    """
    functions = [call.function for call in at_export]
    if any([call.function for call in run] != functions for run in elsewhere):
        return [None] * len(at_export)
    return [_rule([call, *others]) for call, *others in zip(at_export, *elsewhere, strict=True)]


def _rule(calls: list[Observed]) -> Rule | None:
    first = calls[0]
    ranks = [list(map(len, sizes)) for call in calls for sizes in (call.given, call.results)]
    if (
        ranks[::2] != ranks[:1] * len(calls)
        or ranks[1::2] != ranks[1:2] * len(calls)
        or any(x.dtypes != first.dtypes for x in calls)
    ):
        return None
    made: list[list[Any]] = []
    for i, dtype in enumerate(first.dtypes):
        sources = [_source(calls, i, dim) for dim in range(len(first.results[i]))]
        if None in sources:
            return None
        made.append([dtype, sources])
    return made


def _source(calls: list[Observed], result: int, dim: int) -> Any:
    """Returns a dimension of what is given that always has the size, as [input, dimension]; else a constant, or None.

    The same dimension goes before others, and then the first tensor.
    """
    sizes = [call.results[result][dim] for call in calls]
    places = [(i, axis) for i, given in enumerate(calls[0].given) for axis in range(len(given))]
    fitting = [
        place for place in places if all(call.given[place[0]][place[1]] == size for call, size in zip(calls, sizes, strict=True))
    ]
    if fitting:
        return list(min(fitting, key=lambda place: (place[1] != dim, place[0])))
    return sizes[0] if len(set(sizes)) == 1 else None
