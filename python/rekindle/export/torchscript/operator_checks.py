"""Refuses operators that a graph cannot hold: they write, or nobody says what sizes they return."""

from __future__ import annotations

from typing import Any

import torch

from rekindle.errors import first_line
from rekindle.export.torchscript.dtypes import DTYPES
from rekindle.export.trace.data_sizes import is_sized_by_data
from rekindle.export.trace.traced_operators import (
    constant_argument,
    known_value,
    operator_of,
    type_of_argument,
)
from rekindle.process.torch_internals import Node, Value, scalar_type
from rekindle.reasons import Bypass, Reason


def check_meaning(node: Node, schema: Any) -> None:
    """Raises Bypass for an operator that a graph cannot hold."""
    if schema.is_mutable:
        raise Bypass(Reason.UNSUPPORTED_OP, f"{schema.name} writes to its arguments, and has no variant that does not")
    names = {argument.name for argument in schema.arguments}
    if "sparse" in names and constant_argument(node, "sparse"):
        raise Bypass(Reason.UNSUPPORTED_OP, f"{schema.name} with sparse gradients; switch them off")
    _check_sizes(node, schema)
    functional = schema.name.endswith("_functional")
    if "running_mean" in names and not functional and _updates_statistics(node, names):
        raise Bypass(Reason.BUFFER_MUTATED, f"{schema.name} updates its running statistics, which no graph can do yet")


def _check_sizes(node: Node, schema: Any) -> None:
    if not schema.name.startswith("aten::") and not is_sized_by_data(node, schema):
        _run_on_meta(node, schema)


def _run_on_meta(node: Node, schema: Any) -> None:
    """Runs an operator that is not PyTorch's on meta tensors: only its own author can say that sizes do not depend on data."""
    arguments = [
        _meta_argument(value, f"argument {argument.name!r} of {schema.name}")
        for argument, value in zip(schema.arguments, node.inputs(), strict=True)
    ]
    named = {a.name: given for a, given in zip(schema.arguments, arguments, strict=True) if a.kwarg_only}
    try:
        operator_of(schema)(*arguments[: len(arguments) - len(named)], **named)
    except Exception as error:
        message = first_line(error)
        raise Bypass(
            Reason.UNSUPPORTED_OP,
            f"{schema.name} does not run on meta tensors ({type(error).__name__}: {message}); "
            "tell what it returns with torch.library.register_fake",
        ) from error


def _meta_argument(value: Value, what: str) -> Any:
    if value.node().kind() == "prim::ListConstruct":
        return [_meta_argument(item, what) for item in value.node().inputs()]
    dtype = DTYPES.get(scalar_type(value) or "")
    if dtype is None:
        return known_value(value, what)
    return torch.empty_strided(value.type().sizes(), value.type().strides(), dtype=dtype, device="meta")


def _updates_statistics(node: Node, names: set[str]) -> bool:
    """Tells whether a normalization writes its running statistics, which its schema does not say."""
    training = constant_argument(node, "use_input_stats" if "use_input_stats" in names else "training")
    return bool(training) and type_of_argument(node, "running_mean").kind() != "NoneType"
