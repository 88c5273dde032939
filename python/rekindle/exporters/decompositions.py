"""Symbolic functions for ops that torch's exporter lacks or gives another meaning, in ops that the graph has.

"Another meaning" is eager's gradient at kinks and ties, eager's rounding of quotients, the dtype it
computes in, sums over indices that repeat. Types of results are those that tracing saw.
"""

# A public function has the name and the arguments of the ATen op it stands for.
# ruff: noqa: D103

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.onnx import symbolic_helper

from rekindle.reasons import Bypass, Reason

_DTYPES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
_ONNX = {
    torch.float64: 11,
    torch.float32: 1,
    torch.float16: 10,
    torch.bfloat16: 16,
    torch.int64: 7,
    torch.int32: 6,
    torch.int16: 5,
    torch.int8: 3,
    torch.uint8: 2,
    torch.bool: 9,
}


def _refuse(what: str) -> Bypass:
    return Bypass(Reason.UNSUPPORTED_OP, what)


def _is_none(value: Any) -> bool:
    return value is None or symbolic_helper._is_none(value)


def _get(value: Any, kind: str, what: str = "an argument") -> Any:
    """The Python value of an argument; `kind` as in torch's parse_args ("i", "f", "b", "is", "s")."""
    found = symbolic_helper._maybe_get_const(value, kind)
    if isinstance(found, torch._C.Value):
        raise Bypass(Reason.VALUE_SPECIALIZED, f"{what} is computed from a tensor; pass a Python number")
    return found


def _dtype(x: Any) -> torch.dtype:
    return _DTYPES[x.type().scalarType()]


def _sizes(x: Any) -> list[int]:
    return list(x.type().sizes())


def _result(g: Any) -> torch.dtype:
    """The dtype that eager gives this op's first result."""
    return _dtype(next(iter(g.original_node.outputs())))


def _number(g: Any, value: Any, dtype: torch.dtype) -> Any:
    return g.op("Constant", value_t=torch.tensor(value, dtype=dtype))


def _ints(g: Any, values: list[int]) -> Any:
    return g.op("Constant", value_t=torch.tensor(values, dtype=torch.int64))


def _cast(g: Any, x: Any, dtype: torch.dtype) -> Any:
    if x.type().scalarType() is not None and _dtype(x) == dtype:
        return x
    return g.op("Cast", x, to_i=_ONNX[dtype])


def _both(g: Any, a: Any, b: Any) -> tuple[Any, Any, torch.dtype]:
    dtype = _result(g)
    return _cast(g, a, dtype), _cast(g, b, dtype), dtype


def _reshape(g: Any, x: Any, sizes: list[int]) -> Any:
    return g.op("Reshape", x, _ints(g, sizes), allowzero_i=1)


def _along_channels(g: Any, x: Any, rank: int) -> Any:
    """A vector over dimension 1 in a shape that broadcasts against `rank` dimensions."""
    return _reshape(g, x, [-1] + [1] * (rank - 2))


# Quotients and roundings.


def _floor_quotient(g: Any, a: Any, b: Any) -> Any:
    a, b, dtype = _both(g, a, b)
    if dtype.is_floating_point:
        raise _refuse(
            "floor division of floats; eager corrects the quotient's rounding. Use torch.floor(a / b)"
        )
    return g.op("Div", g.op("Sub", a, g.op("Mod", a, b)), b)


def _truncated(g: Any, x: Any) -> Any:
    return g.op("Mul", g.op("Sign", x), g.op("Floor", g.op("Abs", x)))


def divide(g: Any, a: Any, b: Any, rounding: Any = None) -> Any:
    mode = None if _is_none(rounding) else _get(rounding, "s")
    if mode == "floor":
        return _floor_quotient(g, a, b)
    a, b, dtype = _both(g, a, b)
    quotient = g.op("Div", a, b)
    return _truncated(g, quotient) if mode == "trunc" and dtype.is_floating_point else quotient


def remainder(g: Any, a: Any, b: Any) -> Any:
    a, b, _ = _both(g, a, b)
    return g.op("Mod", a, b, fmod_i=0)


def trunc(g: Any, x: Any) -> Any:
    return _truncated(g, x) if _dtype(x).is_floating_point else g.op("Identity", x)


def frac(g: Any, x: Any) -> Any:
    return g.op("Sub", x, _truncated(g, x))


# Pointwise.


def _logarithm(base: float) -> Callable[..., Any]:
    def logarithm(g: Any, x: Any) -> Any:
        x = _cast(g, x, _result(g))
        return g.op("Div", g.op("Log", x), _number(g, math.log(base), _result(g)))

    return logarithm


def exp2(g: Any, x: Any) -> Any:
    return g.op("Pow", _number(g, 2, _result(g)), _cast(g, x, _result(g)))


def addcdiv(g: Any, x: Any, a: Any, b: Any, value: Any) -> Any:
    factor = _number(g, _get(value, "f"), _result(g))
    return g.op("Add", x, g.op("Mul", factor, g.op("Div", a, b)))


def hardtanh(g: Any, x: Any, low: Any, high: Any) -> Any:
    return _saturated(g, x, _get(low, "f"), _get(high, "f"))


def relu6(g: Any, x: Any) -> Any:
    return _saturated(g, x, 0.0, 6.0)


def hardsigmoid(g: Any, x: Any) -> Any:
    three, six, dtype = _number(g, 3, _dtype(x)), _number(g, 6, _dtype(x)), _dtype(x)
    line = g.op("Div", g.op("Add", x, three), six)
    inside = g.op("And", g.op("Greater", x, g.op("Neg", three)), g.op("Less", x, three))
    ends = g.op("Clip", line, _number(g, 0, dtype), _number(g, 1, dtype))
    return g.op("Where", inside, line, g.op("rekindle::StopGradient", ends))


def _saturated(g: Any, x: Any, low: float, high: float) -> Any:
    """A clamp without gradient at its ends; aten::clamp has one there."""
    least, most = (_number(g, end, _dtype(x)) for end in (low, high))
    inside = g.op("And", g.op("Greater", x, least), g.op("Less", x, most))
    return g.op("Where", inside, x, g.op("rekindle::StopGradient", g.op("Clip", x, least, most)))


def threshold(g: Any, x: Any, limit: Any, value: Any) -> Any:
    above = g.op("Greater", x, _number(g, _get(limit, "f"), _dtype(x)))
    return g.op("Where", above, x, _number(g, _get(value, "f"), _dtype(x)))


def _elu(g: Any, x: Any, alpha: float, scale: float, steepness: float) -> Any:
    dtype = _dtype(x)
    below = g.op("Elu", x if steepness == 1 else g.op("Mul", x, _number(g, steepness, dtype)))
    y = g.op(
        "Where", g.op("Greater", x, _number(g, 0, dtype)), x, g.op("Mul", below, _number(g, alpha, dtype))
    )
    return y if scale == 1 else g.op("Mul", y, _number(g, scale, dtype))


def elu(g: Any, x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return _elu(g, x, _get(alpha, "f"), _get(scale, "f"), _get(input_scale, "f"))


def selu(g: Any, x: Any) -> Any:
    return _elu(g, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


def celu(g: Any, x: Any, alpha: Any) -> Any:
    return _elu(g, x, _get(alpha, "f"), 1.0, 1.0 / _get(alpha, "f"))


def prelu(g: Any, x: Any, weight: Any) -> Any:
    rank = len(_sizes(x))
    slope = _along_channels(g, weight, rank) if math.prod(_sizes(weight)) > 1 else weight
    return g.op("Where", g.op("Greater", x, _number(g, 0, _dtype(x))), x, g.op("Mul", slope, x))


# Moves and lookups.


def matrix_transpose(g: Any, x: Any) -> Any:
    rank = len(_sizes(x))
    return g.op("Transpose", x, perm_i=[*range(rank - 2), rank - 1, rank - 2])


def outer(g: Any, a: Any, b: Any) -> Any:
    a, b, _ = _both(g, a, b)
    return g.op("Mul", g.op("Unsqueeze", a, _ints(g, [1])), b)


def tile(g: Any, x: Any, repeats: Any) -> Any:
    counts, sizes = list(_get(repeats, "is")), _sizes(x)
    rank = max(len(counts), len(sizes))
    wide = x if rank == len(sizes) else _reshape(g, x, [1] * (rank - len(sizes)) + sizes)
    return g.op("Tile", wide, _ints(g, [1] * (rank - len(counts)) + counts))


def index_add(g: Any, x: Any, dim: Any, index: Any, source: Any, alpha: Any = None) -> Any:
    axis, sizes = _get(dim, "i") % max(1, len(_sizes(x))), _sizes(source)
    if not _is_none(alpha) and _get(alpha, "f") != 1:
        source = g.op("Mul", source, _number(g, _get(alpha, "f"), _dtype(source)))
    shape = [-1 if i == axis else 1 for i in range(len(sizes))]
    places = g.op("Expand", _reshape(g, index, shape), _ints(g, sizes))
    return g.op("ScatterElements", x, places, source, axis_i=axis, reduction_s="add")


def one_hot(g: Any, x: Any, classes: Any) -> Any:
    count = _get(classes, "i")
    if count < 0:
        raise Bypass(Reason.VALUE_SPECIALIZED, "one_hot counts the classes in its input; pass num_classes")
    hits = g.op("Equal", g.op("Unsqueeze", x, _ints(g, [-1])), _ints(g, list(range(count))))
    return _cast(g, hits, torch.int64)


# Reductions. Each computes in the dtype of its result.


def _axes(g: Any, dim: Any, keepdim: Any) -> tuple[list[Any], int]:
    """The second input of an ONNX reduction (none for all axes) and its keepdims."""
    dims = [] if dim is None or _is_none(dim) else _get(dim, "is")
    dims = [dims] if isinstance(dims, int) else list(dims)
    keep = int(bool(keepdim is not None and _get(keepdim, "b")))
    return [_ints(g, dims)] if dims else [], keep


def _reduction(op_type: str) -> Callable[..., Any]:
    def reduce(g: Any, x: Any, *rest: Any) -> Any:
        dim, keepdim = (rest[0], rest[1]) if len(rest) > 1 else (None, None)
        axes, keep = _axes(g, dim, keepdim)
        return g.op(op_type, _cast(g, x, _result(g)), *axes, keepdims_i=keep)

    return reduce


def cumsum(g: Any, x: Any, dim: Any, dtype: Any = None) -> Any:
    return g.op("CumSum", _cast(g, x, _result(g)), _number(g, _get(dim, "i"), torch.int64))


def _softmax(op_type: str) -> Callable[..., Any]:
    def softmax(g: Any, x: Any, dim: Any, dtype: Any = None) -> Any:
        return g.op(op_type, _cast(g, x, _result(g)), axis_i=_get(dim, "i"))

    return softmax


def _extremum(reduce: str, elementwise: str, position: str) -> Callable[..., Any]:
    """max and min: of all, of two tensors, or along a dimension, with eager's gradient to one position."""

    def extremum(g: Any, x: Any, other: Any = None, keepdim: Any = None) -> Any:
        if other is None:
            return g.op(reduce, x, keepdims_i=0)
        if keepdim is None:
            a, b, _ = _both(g, x, other)
            return g.op(elementwise, a, b)
        axis, keep = _get(other, "i"), _get(keepdim, "b")
        if not _sizes(x):
            raise _refuse("max or min along a dimension of a 0-dim tensor")
        indices = g.op(position, x, axis_i=axis, keepdims_i=1)
        values = g.op("GatherElements", x, indices, axis_i=axis)
        if keep:
            return values, indices
        return tuple(g.op("Squeeze", each, _ints(g, [axis])) for each in (values, indices))

    return extremum


def _variance(g: Any, x: Any, rest: tuple[Any, ...]) -> tuple[Any, Any]:
    """(variance, mean) for var(x, unbiased) and var(x, dim, unbiased or correction, keepdim)."""
    dim, correction, keepdim = rest if len(rest) == 3 else (None, *rest, None)
    correct = 1.0 if correction is None or _is_none(correction) else float(_get(correction, "f"))
    axes, keep = _axes(g, dim, keepdim)
    sizes = _sizes(x)
    dims = _get(dim, "is") if axes else range(len(sizes))
    count = math.prod(sizes[i] for i in dims)
    if count - correct <= 0:
        raise _refuse(f"a variance of {count} elements with correction {correct:g}")
    mean = g.op("ReduceMean", x, *axes, keepdims_i=1)
    away = g.op("Sub", x, mean)
    total = g.op("ReduceSum", g.op("Mul", away, away), *axes, keepdims_i=keep)
    variance = g.op("Div", total, _number(g, count - correct, _dtype(x)))
    return variance, g.op("ReduceMean", x, *axes, keepdims_i=keep)


def var(g: Any, x: Any, *rest: Any) -> Any:
    return _variance(g, x, rest)[0]


def var_mean(g: Any, x: Any, *rest: Any) -> Any:
    return _variance(g, x, rest)


def _root(g: Any, variance: Any, dtype: torch.dtype) -> Any:
    """The square root, without gradient at zero."""
    zero = _number(g, 0, dtype)
    flat = g.op("Equal", variance, zero)
    return g.op("Where", flat, zero, g.op("Sqrt", g.op("Where", flat, _number(g, 1, dtype), variance)))


def std(g: Any, x: Any, *rest: Any) -> Any:
    return _root(g, _variance(g, x, rest)[0], _dtype(x))


def std_mean(g: Any, x: Any, *rest: Any) -> Any:
    variance, mean = _variance(g, x, rest)
    return _root(g, variance, _dtype(x)), mean


# Normalizations.


def _scaled(g: Any, y: Any, weight: Any, bias: Any, rank: int) -> Any:
    if not _is_none(weight):
        y = g.op("Mul", y, _along_channels(g, weight, rank))
    return y if _is_none(bias) else g.op("Add", y, _along_channels(g, bias, rank))


def group_norm(g: Any, x: Any, groups: Any, weight: Any, bias: Any, eps: Any, cudnn: Any) -> Any:
    sizes, count = _sizes(x), _get(groups, "i")
    width = math.prod(sizes[1:]) // count
    rows = _reshape(g, x, [sizes[0], count, width])
    ones = g.op("Constant", value_t=torch.ones(width, dtype=_dtype(x)))
    y = _reshape(g, g.op("LayerNormalization", rows, ones, axis_i=-1, epsilon_f=_get(eps, "f")), sizes)
    return _scaled(g, y, weight, bias, len(sizes))


def batch_norm(
    g: Any,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: Any,
    momentum: Any,
    eps: Any,
    cudnn: Any,
) -> Any:
    if _get(training, "b"):
        if _is_none(mean):
            raise _refuse("batch norm that normalizes with the batch's own statistics")
        raise Bypass(Reason.BUFFER_MUTATED, "batch norm in training mode updates its running statistics")
    rank, dtype = len(_sizes(x)), _dtype(x)
    inverse = g.op("Reciprocal", g.op("Sqrt", g.op("Add", variance, _number(g, _get(eps, "f"), dtype))))
    away = g.op("Sub", x, _along_channels(g, mean, rank))
    return _scaled(g, g.op("Mul", away, _along_channels(g, inverse, rank)), weight, bias, rank)


def rms_norm(g: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
    dtype = _dtype(x)
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    epsilon = torch.finfo(wide).eps if _is_none(eps) else _get(eps, "f")
    axes = _ints(g, list(range(-len(_get(shape, "is")), 0)))
    y = _cast(g, x, wide)
    mean = g.op("ReduceMean", g.op("Mul", y, y), axes, keepdims_i=1)
    root = g.op("Sqrt", g.op("Add", mean, _number(g, epsilon, wide)))
    y = _cast(g, g.op("Mul", y, g.op("Reciprocal", root)), dtype)
    return y if _is_none(weight) else g.op("Mul", y, weight)


def dropout(g: Any, x: Any, probability: Any, train: Any) -> Any:
    p = float(_get(probability, "f"))
    if not _get(train, "b") or p == 0 or 0 in _sizes(x):
        return g.op("Identity", x)
    ratio, training = _number(g, p, torch.float64), g.op("Constant", value_t=torch.tensor(True))
    return g.op("Dropout", x, ratio, training, outputs=2)[0]


# Losses.


def _reduced(g: Any, loss: Any, reduction: Any) -> Any:
    kind = _get(reduction, "i")
    return loss if kind == 0 else g.op(("", "ReduceMean", "ReduceSum")[kind], loss, keepdims_i=0)


def l1_loss(g: Any, x: Any, y: Any, reduction: Any) -> Any:
    return _reduced(g, g.op("Abs", g.op("Sub", x, y)), reduction)


def smooth_l1_loss(g: Any, x: Any, y: Any, reduction: Any, beta: Any) -> Any:
    width, dtype = _get(beta, "f"), _result(g)
    if width == 0:
        return l1_loss(g, x, y, reduction)
    away = g.op("Abs", g.op("Sub", x, y))
    near = g.op("Div", g.op("Mul", _number(g, 0.5, dtype), g.op("Mul", away, away)), _number(g, width, dtype))
    far = g.op("Sub", away, _number(g, 0.5 * width, dtype))
    return _reduced(g, g.op("Where", g.op("Less", away, _number(g, width, dtype)), near, far), reduction)


def huber_loss(g: Any, x: Any, y: Any, reduction: Any, delta: Any) -> Any:
    width, dtype = _get(delta, "f"), _result(g)
    away = g.op("Abs", g.op("Sub", x, y))
    near = g.op("Mul", _number(g, 0.5, dtype), g.op("Mul", away, away))
    far = g.op("Mul", _number(g, width, dtype), g.op("Sub", away, _number(g, 0.5 * width, dtype)))
    small = g.op("LessOrEqual", away, _number(g, width, dtype))
    return _reduced(g, g.op("Where", small, near, far), reduction)


def nll_loss(g: Any, x: Any, target: Any, weight: Any, reduction: Any, ignore_index: Any) -> Any:
    dtype, kind = _dtype(x), _get(reduction, "i")
    if len(_sizes(x)) < 2:
        raise _refuse("nll_loss of one row; give it a batch dimension")
    one, zero = _ints(g, [1]), _number(g, 0, dtype)
    ignored = g.op("Equal", target, _number(g, _get(ignore_index, "i"), torch.int64))
    safe = g.op("Where", ignored, _number(g, 0, torch.int64), target)
    picked = g.op("Squeeze", g.op("GatherElements", x, g.op("Unsqueeze", safe, one), axis_i=1), one)
    weights = _cast(g, g.op("Not", ignored), dtype)
    if not _is_none(weight):
        weights = g.op("Mul", weights, g.op("Gather", weight, safe, axis_i=0))
    loss = g.op("Where", ignored, zero, g.op("Neg", g.op("Mul", picked, weights)))
    if kind == 0:
        return loss
    total = g.op("ReduceSum", loss, keepdims_i=0)
    return total if kind == 2 else g.op("Div", total, g.op("ReduceSum", weights, keepdims_i=0))


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "aten::div": divide,
    "aten::floor_divide": _floor_quotient,
    "aten::remainder": remainder,
    "aten::trunc": trunc,
    "aten::frac": frac,
    "aten::log2": _logarithm(2.0),
    "aten::log10": _logarithm(10.0),
    "aten::exp2": exp2,
    "aten::addcdiv": addcdiv,
    "aten::hardtanh": hardtanh,
    "aten::relu6": relu6,
    "aten::hardsigmoid": hardsigmoid,
    "aten::threshold": threshold,
    "aten::elu": elu,
    "aten::selu": selu,
    "aten::celu": celu,
    "aten::prelu": prelu,
    "aten::mT": matrix_transpose,
    "aten::adjoint": matrix_transpose,
    "aten::outer": outer,
    "aten::tile": tile,
    "aten::index_add": index_add,
    "aten::one_hot": one_hot,
    "aten::sum": _reduction("ReduceSum"),
    "aten::mean": _reduction("ReduceMean"),
    "aten::cumsum": cumsum,
    "aten::softmax": _softmax("Softmax"),
    "aten::log_softmax": _softmax("LogSoftmax"),
    "aten::max": _extremum("ReduceMax", "Max", "ArgMax"),
    "aten::min": _extremum("ReduceMin", "Min", "ArgMin"),
    "aten::var": var,
    "aten::var_mean": var_mean,
    "aten::std": std,
    "aten::std_mean": std_mean,
    "aten::group_norm": group_norm,
    "aten::batch_norm": batch_norm,
    "aten::rms_norm": rms_norm,
    "aten::dropout": dropout,
    "aten::l1_loss": l1_loss,
    "aten::smooth_l1_loss": smooth_l1_loss,
    "aten::huber_loss": huber_loss,
    "aten::nll_loss": nll_loss,
    "aten::nll_loss_nd": nll_loss,
    "aten::nll_loss2d": nll_loss,
}
