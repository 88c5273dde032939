"""Takes exported ONNX models apart as data, and gives them other input shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

InputType = tuple[int, Sequence[int | str]]  # number of the dtype in ONNX, and dimensions; a text names a symbol


@dataclass(frozen=True)
class Parts:
    """Holds a model without the answers to questions about sizes, and these."""

    model: bytes  # ONNX
    inputs: list[str]  # their names; the exporter leaves out those that nothing reads
    answers: bytes | None  # ONNX of the graph whose one output was the model's last; None where it was not asked for


def taken_apart(model: bytes, with_answers: bool, ranks: Sequence[int], inputs: Mapping[str, InputType]) -> Parts:
    """Takes the answers to questions about sizes out of a model.

    model: ONNX
    inputs: types of inputs that the exporter cannot write down, by name
    with_answers: whether the last output has the answers
    ranks: of the outputs before the answers, which are a vector

    The shapes that the exporter guessed of what is computed are left out: some are open, some depend on data, and a few are wrong
    (that of `x.reshape_as(scalar)`, after an operator that ONNX has no name for).
    """
    import onnx

    proto = onnx.load_model_from_string(model)
    graph = proto.graph
    names = [value.name for value in graph.input]
    for value in graph.input:
        if value.name in inputs:
            value.type.tensor_type.elem_type, dims = inputs[value.name]
            _set_dims(value, dims)
    for value in [*graph.value_info, *graph.output]:
        value.type.tensor_type.ClearField("shape")
    for value, rank in zip(graph.output, [*ranks, 1], strict=False):
        value.type.tensor_type.shape.SetInParent()
        for _ in range(rank):
            value.type.tensor_type.shape.dim.add()
    if not with_answers:
        return Parts(proto.SerializeToString(), names, None)
    asked = onnx.ModelProto()
    asked.CopyFrom(proto)
    del asked.graph.output[:-1]
    del graph.output[-1]
    return Parts(proto.SerializeToString(), names, asked.SerializeToString())


def with_input_dims(model: bytes, dims: Mapping[str, Sequence[int | str]]) -> bytes:
    """Returns the model with these dimensions of its inputs, by name; a string names a symbol."""
    import onnx

    proto = onnx.load_model_from_string(model)
    for value in proto.graph.input:
        if value.name in dims:
            _set_dims(value, dims[value.name])
    return proto.SerializeToString()


def _set_dims(value: Any, dims: Sequence[int | str]) -> None:
    shape = value.type.tensor_type.shape
    shape.Clear()
    shape.SetInParent()
    for wanted in dims:
        dim = shape.dim.add()
        if isinstance(wanted, int):
            dim.dim_value = wanted
        else:
            dim.dim_param = wanted
