"""Arithmetic, comparisons, casts and activations."""

# One case a line reads best.
# ruff: noqa: E501

from __future__ import annotations

import torch
import torch.nn.functional as F
from op_cases import flags, given, op, real, whole

KINKS = [-4.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 4.0]

ARITHMETIC = [
    op("add", lambda x, y: x + y, real(2, 3), real(2, 3)),
    op("add broadcast rows", lambda x, y: x + y, real(2, 3), real(3)),
    op("add broadcast both", lambda x, y: x + y, real(2, 1, 3), real(4, 1)),
    op("add broadcast 0-dim", lambda x, y: x + y, real(2, 3), real()),
    op("add alpha", lambda x, y: torch.add(x, y, alpha=0.1), real(2, 3), real(3)),
    op("add number", lambda x: x + 0.1, real(2, 3)),
    op("add int number", lambda x: 3 + x, real(2, 3)),
    op("add itself", lambda x: x + x, real(2, 3)),
    op("sub", lambda x, y: x - y, real(2, 1), real(3)),
    op("sub alpha", lambda x, y: torch.sub(x, y, alpha=2), real(2, 1), real(3)),
    op("rsub", lambda x: 1 - x, real(2, 3)),
    op("mul", lambda x, y: x * y, real(2, 1, 3), real(4, 1)),
    op("mul number", lambda x: x * 0.1, real(4)),
    op("mul itself", lambda x: x * x, real(4)),
    op("div", lambda x, y: x / y, real(2, 3), real(3, low=0.5)),
    op("div number", lambda x: x / 3, real(4)),
    op("rdiv", lambda x: 0.3 / x, real(4, low=0.5)),
    op("div floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), real(2, 3), real(3, low=0.5)),
    op("div trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), real(2, 3), real(3, low=0.5)),
    op("floor divide", lambda x: x // 0.4, real(5, grad=False)),
    op("remainder", lambda x: x % 0.7, real(5)),
    op("fmod", lambda x: torch.fmod(x, 0.7), real(5)),
    op("neg", lambda x: -x, real(2, 3)),
    op("abs", lambda x: x.abs(), given(KINKS, grad=True)),
    op("sign", lambda x: x.sign() * x, given(KINKS, grad=True)),
    op("floor ceil round", lambda x: x.floor() + x.ceil() * x + x.round(), real(7)),
    op("trunc frac", lambda x: x.trunc() + x.frac(), real(7)),
    op("reciprocal", lambda x: x.reciprocal(), real(4, low=0.5)),
    op(
        "addcmul in half precision",
        lambda x, y: torch.addcmul(x.bfloat16(), y.bfloat16(), y.bfloat16(), value=0.3).float(),
        real(2, 3),
        real(3),
    ),
    op("addcmul 0-dim", lambda x, y, z: torch.addcmul(x, y, z, value=0.3), real(), real(), real()),
    op("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), real(2, 3), real(3), real(2, 1)),
    op("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z), real(2, 3), real(3), real(2, 1, low=0.5)),
    op("lerp", lambda x, y: torch.lerp(x, y, 0.3), real(2, 3), real(2, 3)),
    op("lerp tensor", lambda x, y, w: torch.lerp(x, y, w), real(2, 3), real(2, 3), real(3)),
    op("in place on a result", lambda x, y: (x * 2).add_(y).mul_(3), real(2, 3), real(3)),
    op("0-dim tensors", lambda x, y: x * y + x, real(), real()),
    op("size one", lambda x, y: x * y, real(1), real(1, 1)),
    op("zero rows", lambda x, y: x * y + 1, real(0, 3), real(3)),
]

POWERS = [
    op("square", lambda x: x**2, real(5)),
    op("torch.square", lambda x: x.square(), real(5)),
    op("cube", lambda x: x**3, real(5)),
    op("power 1", lambda x: x**1, real(5)),
    op("power 0", lambda x: x**0, given([0.0, 1.0, -2.0], grad=True)),
    op("power 0.5", lambda x: x**0.5, real(5, low=0.1)),
    op("power -1", lambda x: x**-1, real(5, low=0.3)),
    op("power -0.5", lambda x: x.pow(-0.5), real(5, low=0.3)),
    op("power 2.5", lambda x: x.pow(2.5), real(5, low=0.3)),
    op("power of zero", lambda x: x**2 + x**3, given([0.0, -1.0], grad=True)),
    op("power tensor", lambda x, y: x**y, real(2, 3, low=0.3), real(3)),
    op("power tensor at zero", lambda x, y: x**y, given([0.0, 0.0, 2.0], grad=True), given([0.0, 2.0, 0.0], grad=True)),
    op("number to a power", lambda x: 2**x, real(5)),
    op("power of ints", lambda i, x: (i**2) * x, whole(4), real(4)),
    op("sqrt", lambda x: x.sqrt(), real(5, low=0.1)),
    op("rsqrt", lambda x: x.rsqrt(), real(5, low=0.1)),
    op("exp", lambda x: x.exp(), real(5)),
    op("exp2", lambda x: x.exp2(), real(5)),
    op("expm1", lambda x: x.expm1(), real(5)),
    op("log", lambda x: x.log(), real(5, low=0.1)),
    op("log of zero", lambda x: x.log(), given([0.0, 1.0], grad=True)),
    op("log1p", lambda x: x.log1p(), real(5, low=0.1)),
    op("log2", lambda x: x.log2(), real(5, low=0.1)),
    op("log10", lambda x: x.log10(), real(5, low=0.1)),
    op("erf", lambda x: x.erf(), real(5)),
    op("sin cos", lambda x: x.sin() * x.cos(), real(5)),
    op("tan", lambda x: x.tan(), real(5)),
    op("atan", lambda x: x.atan(), real(5)),
]

INTEGERS = [
    op("int add", lambda i, j, x: (i + j) * x, whole(2, 3), whole(3), real(3)),
    op("int output", lambda i, x: (i * 2 - 1, x * 2), whole(2, 3), real(3)),
    op("int plus float", lambda i, x: i + x, whole(2, 3), real(3)),
    op("int times number", lambda i, x: i * 0.5 + x, whole(2, 3), real(3)),
    op("int division", lambda i, x: (i / 2) * x, whole(3), real(3)),
    op("int floor division", lambda i, x: (i // 2, i % 3, x * 1), whole(7, low=-6), real(1)),
    op("int trunc division", lambda i, x: (torch.div(i, 2, rounding_mode="trunc"), x * 1), whole(7, low=-6), real(1)),
    op("int32", lambda i, x: (i + 1, i.to(x.dtype) * x), whole(3, dtype=torch.int32), real(3)),
    op("int32 plus int64", lambda i, j, x: (i + j, x * 1), whole(3, dtype=torch.int32), whole(3), real(3)),
    op("uint8 wraps", lambda i, x: (i * 100, x * 1), whole(3, dtype=torch.uint8), real(1)),
    op("int sum", lambda i, x: (i.sum(), i.sum(0), x * 1), whole(2, 3), real(1)),
    op("bool sum", lambda b, x: (b.sum(), x * b.sum(-1, keepdim=True)), flags(2, 3), real(2, 3)),
    op("bool logic", lambda a, b, x: (a & b, a | b, a ^ b, ~a, x * 1), flags(2, 3), flags(3), real(1)),
    op("bool times float", lambda b, x: b * x, flags(2, 3), real(3)),
    op("bool plus bool", lambda b, c, x: (b + c, x * 1), flags(4), flags(4), real(1)),
    op("logical_not", lambda x: torch.logical_not(x > 0) * x, real(4)),
    op("logical_and of floats", lambda x: torch.logical_and(x, x > 0) * x, real(4)),
    op("any all", lambda b, x: (b.any(), b.all(-1), x * 1), flags(2, 3), real(1)),
    op("bitwise of ints", lambda i, x: (i & 3, i | 4, i ^ 1, x * 1), whole(4), real(1)),
    op("shifts", lambda i, x: (i << 1, i >> 1, x * 1), whole(4), real(1)),
]

COMPARISONS = [
    op("where", lambda x, y: torch.where(x > y, x, y), real(2, 3), real(3)),
    op("where numbers", lambda x: torch.where(x > 0, x, 0.0), real(5)),
    op("where one number", lambda b, x: torch.where(b, 1.5, x), flags(2, 3), real(3)),
    op("where bool input", lambda b, x, y: torch.where(b, x, y), flags(2, 3), real(3), real(2, 1)),
    op("where ints", lambda i, x: (torch.where(i > 2, i, -1), x * 1), whole(5), real(1)),
    op("comparisons", lambda x, y: (x > y, x >= y, x < y, x <= y, x == y, x != y, x * 1), real(2, 3), real(3)),
    op("compare ints with number", lambda i, x: (i >= 2, i == 1, i != 1, x * 1), whole(5), real(1)),
    op("masked_fill", lambda b, x: x.masked_fill(b, -1e9), flags(3), real(2, 3)),
    op(
        "masked_fill inf softmax",
        lambda b, x: x.masked_fill(b, float("-inf")).softmax(-1),
        given([False, True, False], torch.bool),
        real(2, 3),
    ),
    op("clamp", lambda x: x.clamp(-1, 1), given(KINKS, grad=True)),
    op("clamp min", lambda x: x.clamp(min=0.5), given(KINKS, grad=True)),
    op("clamp max", lambda x: x.clamp(max=0.5), given(KINKS, grad=True)),
    op("clamp tensors", lambda x, a, b: x.clamp(a, b), real(2, 3), given(-0.5, grad=True), given(0.5, grad=True)),
    op("clamp broadcast bounds", lambda x, a: x.clamp(min=a), real(2, 3), real(3)),
    op("clamp ints", lambda i, x: (i.clamp(1, 3), x * 1), whole(6), real(1)),
    op("clamp wrong way", lambda x: x.clamp(1, -1), given(KINKS, grad=True)),
    op("maximum minimum", lambda x, y: torch.maximum(x, y) + torch.minimum(x, y) * x, real(2, 3), real(3)),
    op("maximum at ties", lambda x, y: torch.maximum(x, y), given([1.0, 2.0], grad=True), given([1.0, 3.0], grad=True)),
    op("minimum of itself", lambda x: torch.minimum(x, x), real(3)),
    op("torch.max of two", lambda x, y: torch.max(x, y), real(2, 3), real(3)),
    op("isnan", lambda x: torch.where(x.isnan(), 0.0, x), given([1.0, float("nan")], grad=True)),
    op("isinf", lambda x: x.isinf() * 1.0 + x.sin(), real(3)),
    op("nan_to_num", lambda x: x.nan_to_num(), given([1.0, float("nan"), float("inf")], grad=True)),
    op("nan through", lambda x, y: (x * y).exp(), given([1.0, float("nan")], grad=True), real(2)),
]

CASTS = [
    op("to float32", lambda x: x.to(torch.float32) * 2, real(4)),
    op("to float64", lambda x: x.double() * 2, real(4)),
    op("down and up", lambda x: x.float().double().sin(), real(4)),
    op("to half", lambda x: x.half().to(x.dtype) * x, real(4)),
    op("to bfloat16", lambda x: x.bfloat16().float(), real(4)),
    op("to int", lambda x: (x.to(torch.int64), x * 1), real(5)),
    op("int to float", lambda i, x: i.to(x.dtype) * x, whole(4), real(4)),
    op("to bool", lambda x: (x.bool(), x * 1), given([0.0, 0.5, -1.0], grad=True)),
    op("bool to float", lambda x: (x > 0).to(x.dtype) * x, real(4)),
    op("type_as", lambda i, x: i.type_as(x) * x, whole(4), real(4)),
    op("to same dtype", lambda x: x.to(x.dtype) * 2, real(4)),
    op("mixed dtypes", lambda x, y: x * y, real(3), given([1.0, 2.0, 3.0], torch.float64, True)),
    op("float times 0-dim double", lambda x, y: x * y, real(3), given(0.1, torch.float64)),
]

ACTIVATIONS = [
    op(name, function, given(KINKS, grad=True))
    for name, function in {
        "relu": torch.relu,
        "relu6": F.relu6,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "gelu": F.gelu,
        "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
        "gelu by hand": lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0)))),
        "silu": F.silu,
        "mish": F.mish,
        "softplus": F.softplus,
        "softplus beta": lambda x: F.softplus(x, beta=2.0),
        "softplus far": lambda x: F.softplus(x * 20),
        "softsign": F.softsign,
        "leaky_relu": F.leaky_relu,
        "leaky_relu slope": lambda x: F.leaky_relu(x, 0.2),
        "leaky_relu negative slope": lambda x: F.leaky_relu(x, -0.2),
        "elu": F.elu,
        "elu alpha": lambda x: F.elu(x, alpha=0.3),
        "selu": F.selu,
        "celu": F.celu,
        "hardswish": F.hardswish,
        "hardtanh": F.hardtanh,
        "logsigmoid": F.logsigmoid,
        "threshold": lambda x: F.threshold(x, 0.1, 20.0),
        "softshrink": F.softshrink,
        "tanhshrink": F.tanhshrink,
        "glu": lambda x: F.glu(x[:8]),
    }.items()
]

# Eager's float64 gradient has the precision of float32 there: it multiplies by 1.0f / 6.0f.
ACTIVATIONS.append(op("hardsigmoid", F.hardsigmoid, given(KINKS, grad=True), dtypes=(torch.float32,)))

CASES = [*ARITHMETIC, *POWERS, *INTEGERS, *COMPARISONS, *CASTS, *ACTIVATIONS]
