"""Which operators a graph cannot hold: they write, are sized by data, or return no dense tensors."""

from __future__ import annotations

from typing import Any

import torch

from rekindle.exporters.traced_operators import (
    DTYPES,
    Node,
    Value,
    constant_argument,
    known_value,
    listed_values,
    operator_of,
    scalar_type,
    type_of_argument,
)
from rekindle.reasons import Bypass, Reason


def check_meaning(node: Node, schema: Any) -> None:
    """Raise Bypass for an operator that a graph cannot hold."""
    if schema.is_mutable:
        raise Bypass(
            Reason.UNSUPPORTED_OP, f"{schema.name} writes to its arguments, and has no variant that does not"
        )
    names = {argument.name for argument in schema.arguments}
    if "sparse" in names and constant_argument(node, "sparse"):
        raise Bypass(Reason.UNSUPPORTED_OP, f"{schema.name} with sparse gradients; switch them off")
    _check_sizes(node, schema)
    functional = schema.name.endswith("_functional")
    if "running_mean" in names and not functional and _updates_statistics(node, names):
        raise Bypass(
            Reason.BUFFER_MUTATED, f"{schema.name} updates its running statistics, which no graph can do yet"
        )


def _check_sizes(node: Node, schema: Any) -> None:
    """A graph is for fixed sizes: refuse what returns tensors whose sizes depend on data."""
    if schema.name == "aten::index":  # its tag is for masks
        depends = any(scalar_type(item) in ("Bool", "Byte") for item in listed_values(node))
    elif schema.name == "aten::one_hot":
        depends = constant_argument(node, "num_classes") == -1
    else:
        depends = schema.name in _SIZED_BY_DATA or f"{schema.name}.{schema.overload_name}" in _SIZED_BY_DATA
        depends |= torch.Tag.dynamic_output_shape in operator_of(schema).tags
    if not schema.name.startswith("aten::"):
        _run_on_meta(node, schema)
    if depends:
        raise Bypass(Reason.UNSUPPORTED_OP, f"the sizes of what {schema.name} returns depend on data")


def _run_on_meta(node: Node, schema: Any) -> None:
    """Of an operator that is not PyTorch's, only its own author can say that sizes do not depend on data."""
    arguments = [
        _meta_argument(value, f"argument {argument.name!r} of {schema.name}")
        for argument, value in zip(schema.arguments, node.inputs(), strict=True)
    ]
    named = {a.name: given for a, given in zip(schema.arguments, arguments, strict=True) if a.kwarg_only}
    try:
        operator_of(schema)(*arguments[: len(arguments) - len(named)], **named)
    except Exception as error:
        message = (str(error).splitlines() or [""])[0]
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
    """The schemas of the normalizations do not say that they write."""
    training = constant_argument(node, "use_input_stats" if "use_input_stats" in names else "training")
    return bool(training) and type_of_argument(node, "running_mean").kind() != "NoneType"


# Parts of these do, without a tag that says so.
_SIZED_BY_DATA = {
    f"aten::{name}"
    for name in """
        _unique _unique2 argwhere bincount linalg_lstsq masked_select nonzero nonzero_numpy repeat_interleave.self_Tensor
        tensor_split.tensor_indices_or_sections unique_consecutive unique_dim unique_dim_consecutive
    """.split()
}
