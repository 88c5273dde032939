"""Corrects passes of torch's exporter over a traced graph. Each function here takes such a pass and returns the one to run.

An example: to the exporter a 0-dim tensor of float64 is a Python number, and becomes float32. `with_0_dim_tensors` shows it as a
vector of one element, lets the exporter's pass run, and takes that back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rekindle.export.torchscript.dtypes import NUMBERS
from rekindle.export.torchscript.operators import DOMAIN
from rekindle.export.trace.traced_booleans import make_ints
from rekindle.process.torch_internals import scalar_type


def without_booleans(canonicalize: Callable[..., Any]) -> Callable[..., Any]:
    """Makes boolean constants ints first: the pass makes Python numbers of constants, and then fails on booleans."""

    def run(graph: Any) -> Any:
        make_ints(graph)
        return canonicalize(graph)

    return run


def with_neutral_factors(peephole: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps `x * 1` and `x - 0`, which the pass takes for `x`: to eager they are tensors of their own.

    One that is returned may be written although `x` is saved for the backward, and `w * 1` stays as it was when `w` is written.
    Where nobody can tell, Rekindle's own pass removes them (src/passes/eliminate_identity.cc).
    """

    def run(graph: Any, *args: Any) -> Any:
        for kind in _WITH_NEUTRAL_FACTORS:
            for node in graph.findAllNodes(kind):
                _hide_number(graph, node)
        result = peephole(graph, *args)
        for node in graph.findAllNodes("prim::Constant"):
            if node.hasAttribute(_HIDDEN):
                set_value = node.i_ if node.kindOf("value") == "i" else node.f_
                set_value("value", node.i(_HIDDEN))
        return result

    return run


_WITH_NEUTRAL_FACTORS = ("aten::mul", "aten::div", "aten::add", "aten::sub")
_HIDDEN = "_number"  # of a constant: what it stands for


def _hide_number(graph: Any, node: Any) -> None:
    """Puts 2 in the place of a second input that is 0 or 1; the constant says what it was."""
    value = list(node.inputs())[1]
    constant = value.node()
    kind = constant.kindOf("value") if constant.kind() == "prim::Constant" and constant.hasAttribute("value") else ""
    if kind not in ("i", "f") or getattr(constant, kind)("value") not in (0, 1):
        return
    hidden = graph.create("prim::Constant", 1)
    (hidden.i_ if kind == "i" else hidden.f_)("value", 2)
    hidden.i_(_HIDDEN, int(getattr(constant, kind)("value")))
    hidden.output().setType(value.type())
    hidden.insertBefore(node)
    node.replaceInput(1, hidden.output())


def unless_complex(assign: Callable[..., Any]) -> Callable[..., Any]:
    """Leaves out the pass where an output is complex: the exporter has no type for it."""

    def run(graph: Any, outputs: Any, *rest: Any) -> Any:
        return graph if any(output.is_complex() for output in outputs) else assign(graph, outputs, *rest)

    return run


def noting_domains(analyse: Callable[..., Any], opsets: dict[str, int]) -> Callable[..., Any]:
    """Notes the domains that the graph uses.

    The exporter warns of a domain that is announced and not used, and fails on one that is not announced.
    """

    def run(graph: Any, *args: Any) -> Any:
        domains = {node.kind().split("::")[0] for node in graph.nodes()}
        opsets.update({domain: 1 for domain in (DOMAIN, "rekindle", "com.microsoft") if domain in domains})
        return analyse(graph, *args)

    return run


def casting_to_bfloat16(analyse: Callable[..., Any]) -> Callable[..., Any]:
    """Corrects casts to bfloat16: the exporter writes torch's number of the dtype, which to ONNX is complex128.

    Nothing complex is written as ONNX, so that no other cast has that number.
    """

    def run(graph: Any, *args: Any) -> Any:
        result = analyse(graph, *args)
        for node in graph.nodes():
            if node.kind() == "onnx::Cast" and node.i("to") == NUMBERS[torch.complex128]:
                node.i_("to", NUMBERS[torch.bfloat16])
        return result

    return run


def with_0_dim_tensors(analyse: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a 0-dim tensor keep its dtype: the exporter takes it for a Python number and makes it float32.

    A vector of one element is no number to it. Graphs that mix dtypes need the difference: left alone.
    """

    def run(graph: Any, *args: Any) -> Any:
        nodes = (node for node in graph.nodes() if node.kind() != "onnx::Constant")
        values = [*graph.inputs(), *(output for node in nodes for output in node.outputs())]
        computed = [value for value in values if scalar_type(value) in _FLOATS]
        scalars = [value for value in computed if value.type().sizes() == []]
        if len({scalar_type(value) for value in computed}) != 1:
            return analyse(graph, *args)
        for value in scalars:
            value.setType(value.type().with_sizes([1]))
        result = analyse(graph, *args)
        for value in scalars:
            value.setType(value.type().with_sizes([]))
        return result

    return run


_FLOATS = ("Double", "Float", "Half", "BFloat16")
