"""Adds the arguments of a traced operator to a node of the torch domain, as inputs and attributes.

An example: aten::roll(x, [2], [0]) gets the input x and the attributes `shifts` and `dims`. Where the shift is computed from an
open size, `shifts` is a second input instead, an int64 vector.
"""

from __future__ import annotations

from typing import Any

import torch

from rekindle.export.torchscript.dtypes import DTYPES
from rekindle.export.trace.traced_operators import has_dimensions, known_value
from rekindle.process.torch_internals import (
    BoolType,
    DeviceObjType,
    FloatType,
    IntType,
    ListType,
    Node,
    NumberType,
    OptionalType,
    StringType,
    TensorType,
    Value,
    scalar_type,
)
from rekindle.reasons import Bypass, Reason


def add_argument(graph: Any, made: Node, argument: Any, value: Value) -> bool:
    """Adds one argument as inputs or as an attribute; returns whether it brought a tensor."""
    kind = argument.type
    if isinstance(kind, OptionalType):
        kind = kind.getElementType()
    if isinstance(kind, TensorType):
        made.addInput(_as_tensor(graph, made, value))
        return True
    if isinstance(kind, ListType) and _element_is_tensor(kind):
        return _add_tensors(graph, made, argument.name, value)
    if is_computed(value):
        made.addInput(_computed(graph, made, kind, value))
        return False
    _add_attribute(made, argument.name, kind, known_value(value, f"argument {argument.name!r} of {made.kind()}"))
    return False


def is_computed(value: Value) -> bool:
    """Tells whether a number, or one of a list, is computed in the graph.

    It is computed from sizes, for TraceMode lets nothing else become a number.
    """
    node = value.node()
    if node.kind() == "prim::ListConstruct":
        return not isinstance(_element_type(value), TensorType) and any(map(is_computed, node.inputs()))
    return node.kind() != "prim::Constant" and isinstance(value.type(), (IntType, NumberType))


def _element_type(value: Value) -> Any:
    element = value.type().getElementType()
    return element.getElementType() if isinstance(element, OptionalType) else element


def _computed(graph: Any, made: Node, kind: Any, value: Value) -> Value:
    """Returns the tensor that has the numbers of an argument: 0-dim for one, a vector for a list."""
    if value.node().kind() != "prim::ListConstruct":
        if not isinstance(kind, (IntType, NumberType)):
            raise Bypass(Reason.VALUE_SPECIALIZED, f"an argument of {made.kind()} of type {kind} is computed from a size")
        return _as_number(graph, made, value)
    if not isinstance(kind, ListType) or not isinstance(kind.getElementType(), IntType):
        raise Bypass(Reason.VALUE_SPECIALIZED, f"an argument of {made.kind()} of type {kind} is computed from a size")
    items = graph.create("prim::ListConstruct")
    items.insertBefore(made)
    for item in value.node().inputs():
        items.addInput(
            _as_number(graph, items, item) if is_computed(item) else _integer(graph, items, known_value(item, "a size"))
        )
    items.output().setType(ListType(TensorType.get()))
    stacked = graph.create("aten::stack")
    stacked.insertBefore(made)
    stacked.addInput(items.output())
    stacked.addInput(_constant_int(graph, stacked, 0))
    stacked.output().inferTypeFrom(torch.empty(len(list(items.inputs())), dtype=torch.int64, device="cpu"))
    return stacked.output()


def _as_number(graph: Any, made: Node, value: Value) -> Value:
    """Returns the 0-dim tensor of a number that is computed."""
    if value.node().kind() in _TO_NUMBER:
        return next(iter(value.node().inputs()))
    node = graph.create("prim::NumToTensor")
    node.insertBefore(made)
    node.addInput(value)
    node.output().inferTypeFrom(torch.tensor(0, device="cpu"))
    return node.output()


def _integer(graph: Any, made: Node, number: int) -> Value:
    constant = torch.tensor(number, dtype=torch.int64, device="cpu")
    node = graph.create("prim::Constant")
    node.insertBefore(made)
    node.t_("value", constant)
    node.output().inferTypeFrom(constant)
    return node.output()


def _constant_int(graph: Any, made: Node, number: int) -> Value:
    node = graph.create("prim::Constant")
    node.insertBefore(made)
    node.i_("value", number)
    node.output().setType(IntType.get())
    return node.output()


def _element_is_tensor(kind: Any) -> bool:
    element = kind.getElementType()
    if isinstance(element, OptionalType):
        element = element.getElementType()
    return isinstance(element, TensorType)


def _add_tensors(graph: Any, made: Node, name: str, value: Value) -> bool:
    if value.node().kind() == "prim::Constant" and value.toIValue() is None:
        return False
    if value.node().kind() != "prim::ListConstruct":
        raise Bypass(
            Reason.UNSUPPORTED_OP,
            f"argument {name!r} of {made.kind()} is a list that is no list of tensors in the trace",
        )
    items = list(value.node().inputs())
    for item in items:
        made.addInput(_as_tensor(graph, made, item))
    made.i_(name, len(items))
    return bool(items)


def _as_tensor(graph: Any, made: Node, value: Value) -> Value:
    """Makes a tensor of a number that stands for one, of a dtype that keeps the operator's result what it is.

    It is of double precision beside a tensor of half that has dimensions, for PyTorch does not round such a number to half.
    """
    number = value.toIValue() if value.node().kind() == "prim::Constant" else None
    if not isinstance(number, (bool, int, float, complex)):
        return value
    dtypes = [DTYPES.get(scalar_type(item) or "") for item in made.inputs()]
    beside = next((dtype for dtype in dtypes if dtype is not None), torch.get_default_dtype())
    dtype = torch.result_type(torch.empty(1, dtype=beside, device="cpu"), number)
    if dtype in (torch.float16, torch.bfloat16) and any(has_dimensions(item) for item in made.inputs()):
        dtype = torch.float64
    constant = torch.tensor(number, dtype=dtype, device="cpu")
    node = graph.create("prim::Constant")
    node.insertBefore(made)
    node.t_("value", constant)
    node.output().inferTypeFrom(constant)
    return node.output()


def _add_attribute(made: Node, name: str, kind: Any, value: Any) -> None:
    """Adds an attribute. Numbers that are no ints are tensors: an ONNX attribute has 32 bits only."""
    if value is None:
        return
    many = isinstance(kind, ListType)
    if many:
        kind = kind.getElementType()
    if isinstance(kind, (IntType, BoolType)):
        made.is_(name, [int(item) for item in value]) if many else made.i_(name, int(value))
    elif isinstance(kind, FloatType):
        made.t_(name, torch.tensor(value, dtype=torch.float64, device="cpu"))
    elif isinstance(kind, NumberType) and not many:
        parts = [value.real, value.imag] if isinstance(value, complex) else value
        made.t_(name, torch.tensor(parts, dtype=_NUMBERS[type(value)], device="cpu"))
    elif isinstance(kind, (StringType, DeviceObjType)) and not many:
        made.s_(name, str(value))
    else:
        raise Bypass(Reason.UNSUPPORTED_OP, f"argument {name!r} of {made.kind()} is of type {kind}")


_TO_NUMBER = {"aten::Int", "aten::IntImplicit", "aten::ScalarImplicit"}
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.float64}
