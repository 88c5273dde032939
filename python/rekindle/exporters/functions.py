"""Calls of custom autograd Functions: nodes of the torch domain that call back into the live model (see python_ops.py)."""

from __future__ import annotations

from typing import Any

import torch

from rekindle.exporters.operators import DOMAIN, layouts_of, scalar_type
from rekindle.python_ops import Call, describe_call
from rekindle.reasons import Bypass, Reason

Node = Any  # torch._C.Node
Value = Any  # torch._C.Value


class Functions:
    """Those of one export; `calls` are numbered as the nodes call them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.calls: list[Call] = []
        self._model = model

    def keep(self, graph: Any) -> None:
        """Replace the Functions of a traced graph. Raises Bypass(python_op) for one that cannot be found again."""
        for node in [node for node in graph.nodes() if node.kind() == "prim::PythonOp"]:
            self._replace(graph, node)

    def _replace(self, graph: Any, node: Node) -> None:
        function = getattr(node.pyobj(), "__self__", None)
        if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
            raise Bypass(Reason.PYTHON_OP, f"the Python operator {node.pyname()} is no autograd Function")
        results = _results(node)
        is_tensor = [kind == "d" for kind in node.cconv()]
        plain = iter(node.scalar_args())
        arguments = [None if tensor else next(plain) for tensor in is_tensor]
        tensors = [value for value in results if scalar_type(value) is not None]
        if len(tensors) != len(results) and any(value.uses() for value in results if scalar_type(value) is None):
            raise Bypass(Reason.PYTHON_OP, f"the autograd Function {function.__qualname__} returns what is no tensor")
        if not any(value.uses() for value in tensors):
            raise Bypass(
                Reason.PYTHON_OP, f"nothing reads what the autograd Function {function.__qualname__} returns, and a graph would drop it"
            )
        made = graph.create(f"{DOMAIN}::rekindle.call_host.default", len(tensors))
        made.insertBefore(node)
        inputs = list(node.inputs())
        for value in inputs:
            made.addInput(value)
        made.i_("inputs", len(inputs))
        made.i_("function", len(self.calls))
        _describe(made, tensors)
        kinds = [scalar_type(value) is not None for value in results]
        self.calls.append(describe_call(function, arguments, is_tensor, kinds, self._model))
        for old, new in zip(tensors, made.outputs(), strict=True):
            new.setType(old.type())
            old.replaceAllUsesWith(new)
        for unpack in [use.user for output in node.outputs() for use in output.uses()]:
            unpack.destroy()
        node.destroy()


def _results(node: Node) -> list[Value]:
    outputs = list(node.outputs())
    if len(outputs) == 1 and isinstance(outputs[0].type(), torch._C.TupleType):
        users = [use.user for use in outputs[0].uses()]
        if [user.kind() for user in users] != ["prim::TupleUnpack"]:
            raise Bypass(Reason.PYTHON_OP, f"the results of the autograd Function {node.pyname()} are not unpacked in the trace")
        return list(users[0].outputs())
    return outputs


def _describe(made: Node, results: list[Value]) -> None:
    made.i_("_results", len(results))
    made.is_("_differentiable", [i for i, value in enumerate(results) if value.type().requires_grad()])
    made.is_("_unused", [i for i, value in enumerate(results) if not value.uses()])
    if (layouts := layouts_of(results)) is not None:
        made.is_("_layouts", layouts)
    made.i_("_random", 1)  # nobody says what it does: it runs in its place, once
