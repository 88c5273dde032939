"""Exported ONNX models as data: taken apart, and given other input shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Parts:
    """model: ONNX bytes. inputs: their names; the exporter leaves out those that nothing reads. answers: ONNX bytes of the graph
    whose one output was the model's last; None where it was not asked for."""

    model: bytes
    inputs: list[str]
    answers: bytes | None


def taken_apart(model: bytes, with_answers: bool, forgotten: bool) -> Parts:
    """forgotten: whether the sizes of what is computed are, because some of them are open."""
    import onnx

    proto = onnx.load_model_from_string(model)
    graph = proto.graph
    names = [value.name for value in graph.input]
    if forgotten:
        _forget_sizes([*graph.value_info, *graph.output])
    if not with_answers:
        return Parts(proto.SerializeToString() if forgotten else model, names, None)
    asked = onnx.ModelProto()
    asked.CopyFrom(proto)
    del asked.graph.output[:-1]
    del graph.output[-1]
    return Parts(proto.SerializeToString(), names, asked.SerializeToString())


def _forget_sizes(values: Iterable[Any]) -> None:
    for value in values:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()


def with_input_dims(model: bytes, dims: Mapping[str, Sequence[int | str]]) -> bytes:
    """The model with these dimensions of its inputs, by name; a string names a symbol."""
    import onnx

    proto = onnx.load_model_from_string(model)
    for value in proto.graph.input:
        for dim, wanted in zip(value.type.tensor_type.shape.dim, dims.get(value.name, ()), strict=False):
            dim.Clear()
            if isinstance(wanted, int):
                dim.dim_value = wanted
            else:
                dim.dim_param = wanted
    return proto.SerializeToString()
