"""Keeps in a graph what no output depends on and eager does all the same: calls of Functions, random draws, checks of data.

An example: of `F.cross_entropy(scores, classes)`, whose result the forward drops, the loss becomes one more output, so that a
class that is not there raises in the graph as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from rekindle.export.torchscript.dtypes import DTYPES
from rekindle.export.trace.data_checks import checks_data
from rekindle.export.trace.data_sizes import name_of
from rekindle.process.torch_internals import Node, Value, set_traced_value, traced_graph, traced_value, untraced

# Of the first input these read the shape only.
_OF_SHAPES = {f"aten::{name}_like" for name in ("zeros", "ones", "full", "empty", "rand", "randn", "randint")} | {
    f"aten::{name}" for name in ("new_zeros", "new_ones", "new_full", "new_empty", "size", "numel")
}


def unread_results(effects: Sequence[tuple[list[Value], torch.Tensor]], outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns one result of each effect, and of each check of data in the trace, that no output depends on.

    effects: results of a call or a draw, and a tensor that is one of them, in the order of the trace

    As a further output it keeps the call, draw or check in the graph. Its numbers may be others than eager's.
    """
    needed: set[Any] = set()
    left = [traced_value(tensor).node() for tensor in outputs]
    found = []
    for results, kept in reversed(effects):
        _add_ancestors(left, needed)
        if not any(name_of(result.node()) in needed for result in results):
            found.append(kept.detach())
            left = [results[0].node()]
    _add_ancestors(left, needed)
    for node in reversed([*_nodes_of(traced_graph())]):
        if checks_data(node) and name_of(node) not in needed:
            found.append(_standing_for(next(node.outputs())))
            _add_ancestors([node], needed)
    return found


def _add_ancestors(left: list[Node], needed: set[Any]) -> None:
    while left:
        node = left.pop()
        if name_of(node) not in needed:
            needed.add(name_of(node))
            left += [value.node() for value in list(node.inputs())[node.kind() in _OF_SHAPES :]]


def _nodes_of(block: Any) -> Iterator[Node]:
    """Yields the operators of a trace, those of the modules' own blocks among them."""
    for node in block.nodes():
        if node.kind() != "prim::TracedModuleForward":
            yield node
            continue
        for inner in node.blocks():
            yield from _nodes_of(inner)


def _standing_for(value: Value) -> torch.Tensor:
    """Returns a tensor that the trace takes for this value, without a gradient; its numbers are any."""
    kind = value.type()
    with untraced():
        stand_in = torch.empty(kind.sizes(), dtype=DTYPES[kind.scalarType()], device=kind.device())
    set_traced_value(stand_in, value)
    return stand_in.detach()
