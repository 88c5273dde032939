"""Reads what a node of a traced graph says of its operator: schema, arguments, types."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch

from rekindle.export.trace.traced_booleans import is_boolean
from rekindle.process.torch_internals import Node, TensorType, Value, schema_named
from rekindle.reasons import Bypass, Reason


def constant_argument(node: Node, name: str) -> Any:
    """Returns the Python value of an argument; None where it is computed."""
    schema = schema_of(node)
    position = [argument.name for argument in schema.arguments].index(name)
    return list(node.inputs())[position].toIValue()


def type_of_argument(node: Node, name: str) -> Any:
    """Returns the type that tracing saw of an argument."""
    schema = schema_of(node)
    return list(node.inputs())[[argument.name for argument in schema.arguments].index(name)].type()


def listed_values(node: Node) -> list[Value]:
    """Returns the items of all list arguments."""
    return [item for value in node.inputs() if value.node().kind() == "prim::ListConstruct" for item in value.node().inputs()]


_sizes_seen: dict[str, list[int]] = {}  # by the name of a value whose type has forgotten its sizes


def forget_sizes(values: list[Value]) -> None:
    """Leaves rank and dtype to the types of these values, and nothing to those forgotten before."""
    _sizes_seen.clear()
    for value in values:
        kind = value.type()
        if isinstance(kind, TensorType) and kind.dim() is not None:
            if value.debugName().isdigit():  # passes that replace a value keep a name that it was given
                value.setDebugName(f"sized_{value.debugName()}")
            _sizes_seen[value.debugName()] = kind.sizes() or []
            value.setType(kind.with_sizes([None] * kind.dim()))


def sizes_if_seen(value: Value) -> list[int] | None:
    """Returns the sizes of the traced call; None for a value that a pass has made.

    What follows from them has to be right at all other sizes, or to be refused there.
    """
    known = value.type().sizes()
    return list(known) if known is not None else _sizes_seen.get(value.debugName())


def sizes_seen(value: Value) -> list[int]:
    """Returns the sizes as sizes_if_seen does, of a value of the trace itself."""
    found = sizes_if_seen(value)
    assert found is not None, value
    return found


def has_dimensions(value: Value) -> bool:
    """Tells whether a value is a tensor that is known to be no 0-dim one."""
    return isinstance(value.type(), TensorType) and bool(value.type().dim())


def has_open_sizes(value: Value) -> bool:
    """Tells whether sizes_seen() tells of the traced call only."""
    return value.type().sizes() is None


def schema_of(node: Node) -> Any:
    """Returns the operator's schema; None where the tracer has no operator.

    For an operator that works in place it is that of its functional variant, if any.
    """
    text = node.schema()
    return None if text.startswith("(") else _functional_schema(text)


@functools.cache
def _functional_schema(text: str) -> Any:
    """Returns the schema that schema_of does, of an operator whose own schema reads `text`."""
    name, _, overload = text.split("(")[0].partition(".")
    overload = overload.removesuffix("hacked_twin").removesuffix("_")  # the same with a list of tensors, which none of is None
    schema = schema_named(PUBLIC.get(name, name), overload)
    if schema.is_mutable and name.endswith("_"):
        with contextlib.suppress(RuntimeError):  # fill_diagonal_ and a few more have no other
            return schema_named(name[:-1], overload)
    return schema


def operator_of(schema: Any) -> Any:
    """Returns the overload under torch.ops."""
    namespace, _, name = schema.name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), name), schema.overload_name or "default")


def known_value(value: Value, what: str) -> Any:
    """Returns the Python value of a constant or a list of constants. Raises Bypass, naming `what`, when it is computed."""
    if value.node().kind() == "prim::ListConstruct":
        return [known_value(item, what) for item in value.node().inputs()]
    if value.node().kind() != "prim::Constant":
        raise Bypass(Reason.VALUE_SPECIALIZED, f"{what} is computed from a tensor; pass a Python number")
    return bool(value.toIValue()) if is_boolean(value) else value.toIValue()


# What the tracer names by its inner part, which takes more arguments at the end.
PUBLIC = {"aten::_convolution": "aten::convolution"}


def take_place_of(node: Node, made: Node, results: list[Value]) -> None:
    """Lets the outputs of `made` stand for `results`, which `node` gives, if need be through lists; `node` is gone then."""
    for old, new in zip(results, made.outputs(), strict=True):
        new.setType(old.type())
        old.replaceAllUsesWith(new)
    for unpack in [use.user for output in node.outputs() for use in output.uses()]:
        unpack.destroy()
    node.destroy()
