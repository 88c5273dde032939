"""Writes ops that torch's exporter lacks, or gives another meaning, in ops that the graph has.

"Another meaning" is another dtype than eager computes in, or a case that the exporter leaves out. Types of results are those that
tracing saw. Operators that would take many ops to write are not written at all (operators.py).

An example: addcmul(x, a, b, value=2) is Add(x, Mul(Mul(a, b), 2)), with casts to the dtype of eager's result where one differs.
"""

# A public function has the name and the arguments of the ATen op it stands for.
# ruff: noqa: D103

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.onnx import symbolic_helper

from rekindle.export.torchscript.dtypes import DTYPES, NUMBERS
from rekindle.export.torchscript.symbolic_arguments import constant, is_none
from rekindle.export.trace.traced_operators import sizes_seen
from rekindle.reasons import Bypass, Reason


def _dtype(x: Any) -> torch.dtype:
    name = x.type().scalarType()
    if name is None:
        message = "a torch.jit.script function computes in a branch or a loop, which no trace sees; call the Python function"
        raise Bypass(Reason.VALUE_SPECIALIZED, message)
    return DTYPES[name]


def _traced_sizes(g: Any) -> list[int]:
    """Returns the sizes of the op's first argument; a value of the new graph may have lost them."""
    return sizes_seen(next(iter(g.original_node.inputs())))


def _result(g: Any) -> torch.dtype:
    """Returns the dtype that eager gives this op's first result."""
    return _dtype(next(iter(g.original_node.outputs())))


def _number(g: Any, value: Any, dtype: torch.dtype) -> Any:
    return g.op("Constant", value_t=torch.tensor(value, dtype=dtype, device="cpu"))


def _ints(g: Any, values: list[int]) -> Any:
    return g.op("Constant", value_t=torch.tensor(values, dtype=torch.int64, device="cpu"))


def _cast(g: Any, x: Any, dtype: torch.dtype) -> Any:
    if x.type().scalarType() is not None and _dtype(x) == dtype:
        return x
    return g.op("Cast", x, to_i=NUMBERS[dtype])


def _both(g: Any, a: Any, b: Any) -> tuple[Any, Any, torch.dtype]:
    dtype = _result(g)
    return _cast(g, a, dtype), _cast(g, b, dtype), dtype


def divide(g: Any, a: Any, b: Any) -> Any:
    a, b, _ = _both(g, a, b)
    return g.op("Div", a, b)


def addcmul(g: Any, x: Any, a: Any, b: Any, value: Any = None) -> Any:
    dtype = _result(g)
    return g.op("Add", _cast(g, x, dtype), g.op("Mul", _cast(g, a, dtype), _cast(g, b, dtype)))


def square(g: Any, x: Any) -> Any:
    return g.op("Pow", x, _number(g, 2, _result(g)))  # of x * x the gradient would be two products and their sum


def _dimensions(value: Any) -> Any:
    """Returns one dimension, or several as a list."""
    found = symbolic_helper._maybe_get_const(value, "t")
    return found.tolist() if isinstance(found, torch.Tensor) else constant(value, "is")


def _rearranged(change: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Writes a transposition, told by what `change` does to a tensor each of whose dimensions has a size of its own."""

    def rearrange(g: Any, x: Any, *arguments: Any) -> Any:
        told = torch.empty(tuple(range(1, len(_traced_sizes(g)) + 1)), device="meta")
        after = change(told, *map(_dimensions, arguments))
        order = [size - 1 for size in after.shape]
        return g.op("Transpose", x, perm_i=order) if order else g.op("Identity", x)

    return rearrange


def squeeze(g: Any, x: Any, dim: Any = None) -> Any:
    sizes = _traced_sizes(g)
    dims = range(len(sizes)) if dim is None else _dimensions(dim)
    dims = [dims] if isinstance(dims, int) else dims
    ones = sorted({i % len(sizes) for i in dims if sizes and sizes[i] == 1})
    return g.op("Squeeze", x, _ints(g, ones)) if ones else g.op("Identity", x)


# Reductions. Each computes in the dtype of its result.


def _axes(g: Any, dim: Any, keepdim: Any) -> tuple[list[Any], int]:
    """Returns the second input of an ONNX reduction (none for all axes) and its keepdims."""
    dims = [] if is_none(dim) else constant(dim, "is")
    dims = [dims] if isinstance(dims, int) else list(dims)
    keep = int(bool(keepdim is not None and constant(keepdim, "b")))
    return [_ints(g, dims)] if dims else [], keep


def _reduction(op_type: str) -> Callable[..., Any]:
    def reduce(g: Any, x: Any, *rest: Any) -> Any:
        dim, keepdim = (rest[0], rest[1]) if len(rest) > 1 else (None, None)
        axes, keep = _axes(g, dim, keepdim)
        return g.op(op_type, _cast(g, x, _result(g)), *axes, keepdims_i=keep)

    return reduce


def cumsum(g: Any, x: Any, dim: Any, dtype: Any = None) -> Any:
    return g.op("CumSum", _cast(g, x, _result(g)), _number(g, constant(dim, "i"), torch.int64))


def _softmax(op_type: str) -> Callable[..., Any]:
    def softmax(g: Any, x: Any, dim: Any, dtype: Any = None) -> Any:
        return g.op(op_type, _cast(g, x, _result(g)), axis_i=constant(dim, "i"))

    return softmax


def dropout(g: Any, x: Any, probability: Any, train: Any) -> Any:
    p = float(constant(probability, "f"))
    if not constant(train, "b") or p == 0 or 0 in _traced_sizes(g):
        return g.op("Identity", x)
    ratio, training = _number(g, p, torch.float64), g.op("Constant", value_t=torch.tensor(True, device="cpu"))
    return g.op("Dropout", x, ratio, training, outputs=2)[0]


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "aten::addcmul": addcmul,
    "aten::square": square,
    "aten::div": divide,
    "aten::mT": _rearranged(lambda x: x.mT),
    "aten::permute": _rearranged(torch.permute),
    "aten::squeeze": squeeze,
    "aten::movedim": _rearranged(torch.movedim),
    "aten::transpose": _rearranged(torch.transpose),
    "aten::swapaxes": _rearranged(torch.swapaxes),
    "aten::sum": _reduction("ReduceSum"),
    "aten::mean": _reduction("ReduceMean"),
    "aten::cumsum": cumsum,
    "aten::softmax": _softmax("Softmax"),
    "aten::log_softmax": _softmax("LogSoftmax"),
    "aten::dropout": dropout,
}
