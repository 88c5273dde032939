"""Takes Python booleans for numbers: to a traced graph they are of a type that no operator takes for a number."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from rekindle.process.torch_internals import BoolType, IntType, Node, Value, scalar_type

_MARK = "is_bool"  # attribute of a constant
_MOST = 4  # booleans among the arguments of one operator


def is_boolean(value: Value) -> bool:
    """Tells whether an int of the graph was a boolean that stood for a number."""
    return value.node().kind() == "prim::Constant" and value.node().hasAttribute(_MARK)


def take_for_numbers(graph: Any) -> None:
    """Gives a schema to each operator that has none for booleans, if there is one for ints."""
    for node in _readers(graph, lambda constant: isinstance(constant.type(), BoolType)):
        if node.schema().startswith("("):
            _find_schema(graph, node)


def make_ints(graph: Any) -> None:
    """Makes 0-dim boolean constants ints where an operator computes other numbers with them: to it, these are the same."""
    for node in _readers(graph, _is_boolean_tensor):
        if any(scalar_type(output) in (None, "Bool") for output in node.outputs()):
            continue
        for i, value in enumerate(node.inputs()):
            if _is_constant(value) and _is_boolean_tensor(value):
                made = graph.create("prim::Constant")
                made.insertBefore(node)
                made.t_("value", torch.tensor(int(value.toIValue()), device="cpu"))
                made.output().inferTypeFrom(torch.tensor(0, device="cpu"))
                node.replaceInput(i, made.output())


def _is_boolean_tensor(value: Value) -> bool:
    return scalar_type(value) == "Bool" and value.type().dim() == 0


def _readers(graph: Any, chosen: Callable[[Value], bool]) -> list[Node]:
    """Returns the nodes that read constants of which `chosen` holds; half of a trace's nodes are constants of other kinds."""
    constants = (node.output() for node in graph.findAllNodes("prim::Constant"))
    users = [use.user for constant in constants if chosen(constant) for use in constant.uses()]
    return list(dict.fromkeys(users))


def _find_schema(graph: Any, node: Node) -> None:
    """Makes ints of the fewest booleans among the arguments with which an operator takes these."""
    inputs = list(node.inputs())
    places = [i for i, value in enumerate(inputs) if isinstance(value.type(), BoolType) and _is_constant(value)]
    for count in range(1, min(len(places), _MOST) + 1):
        for chosen in itertools.combinations(places, count):
            for i in chosen:
                node.replaceInput(i, _as_int(graph, node, inputs[i]))
            if not node.schema().startswith("("):
                return
            for i in chosen:
                node.replaceInput(i, inputs[i])


def _is_constant(value: Value) -> bool:
    return value.node().kind() == "prim::Constant"


def _as_int(graph: Any, node: Node, value: Value) -> Value:
    made = graph.create("prim::Constant")
    made.insertBefore(node)
    made.i_("value", int(value.toIValue()))
    made.i_(_MARK, 1)
    made.output().setType(IntType.get())
    return made.output()
