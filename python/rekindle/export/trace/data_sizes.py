"""Finds tensors whose sizes depend on data: which operators make them, and what of a trace depends on their sizes."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch

from rekindle.export.trace.leaves import tensors_of
from rekindle.export.trace.traced_operators import constant_argument, listed_values, operator_of, schema_of
from rekindle.process.torch_internals import Node, scalar_type, schema_named, traced_value


def is_sized_by_data(node: Node, schema: Any) -> bool:
    """Tells whether an operator of a trace returns tensors whose sizes do not follow from its inputs' sizes."""
    if schema.name == "aten::index":  # its tag is for masks
        return any(scalar_type(item) in ("Bool", "Byte") for item in listed_values(node))
    if schema.name == "aten::linalg_lstsq":  # its residuals are there or not; runs tell if that changes
        return False
    if schema.name == "aten::one_hot":
        return bool(constant_argument(node, "num_classes") == -1)
    if schema.name == "aten::where":
        return len(schema.arguments) == 1
    if schema.name == "aten::repeat_interleave" and constant_argument(node, "output_size") is not None:
        return False
    named = schema.name in _SIZED_BY_DATA or f"{schema.name}.{schema.overload_name}" in _SIZED_BY_DATA
    return named or _is_tagged(schema.name, schema.overload_name)


@functools.cache
def _is_tagged(name: str, overload: str) -> bool:
    return torch.Tag.dynamic_output_shape in operator_of(schema_named(name, overload)).tags


def name_of(node: Node) -> Any:
    """Returns what tells nodes of one graph apart: each time it is asked for, a node is another Python object."""
    outputs = list(node.outputs())
    return outputs[0].unique() if outputs else id(node)


class DataSizes:
    """Knows the operators of one trace that are sized by data."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()  # nodes that were looked at
        self._sized: set[Any] = set()

    def made(self, result: Any) -> bool:
        """Tells whether what has just been traced has an operator that is sized by data. Called for the result of each call."""
        left = [_node_of(tensor) for tensor in tensors_of(result)]
        before = len(self._sized)
        while left:
            node = left.pop()
            if node.kind() == "prim::Param" or name_of(node) in self._seen:
                continue
            self._seen.add(name_of(node))
            if node.kind().split("::")[0] not in _NAMESPACES_OF_THE_TRACER:
                schema = schema_of(node)
                if schema is not None and is_sized_by_data(node, schema):
                    self._sized.add(name_of(node))
            left += [value.node() for value in node.inputs()]
        return len(self._sized) > before

    def note(self, results: Iterable[torch.Tensor]) -> None:
        """Notes the results of an autograd Function that is sized by data."""
        self._sized.update(name_of(_node_of(tensor)) for tensor in results)

    def reach(self, tensor: torch.Tensor) -> bool:
        """Tells whether a traced tensor is computed from one that is sized by data. Asked inside the trace."""
        if not self._sized:
            return False
        left, seen = [_node_of(tensor)], set()
        while left:
            node = left.pop()
            if node.kind() == "prim::Param" or name_of(node) in seen:
                continue
            if name_of(node) in self._sized:
                return True
            seen.add(name_of(node))
            left += [value.node() for value in node.inputs()]
        return False

    @property
    def any(self) -> bool:
        """Tells whether there is one."""
        return bool(self._sized)


def _node_of(tensor: torch.Tensor) -> Node:
    return traced_value(tensor).node()


_NAMESPACES_OF_THE_TRACER = {"prim", "onnx", "rekindle", "attr"}
# Parts of these do, without a tag that says so.
_SIZED_BY_DATA = {
    f"aten::{name}"
    for name in """
        _pack_padded_sequence _pad_packed_sequence _unique _unique2 argwhere bincount masked_select nonzero nonzero_numpy
        repeat_interleave.Tensor repeat_interleave.self_Tensor tensor_split.tensor_indices_or_sections unique_consecutive
        unique_dim unique_dim_consecutive
    """.split()
}
