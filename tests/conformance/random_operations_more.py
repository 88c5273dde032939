"""Further operations of random programs: layers, losses, indices, other dtypes, views of views and writes through them.

Kept apart from random_operations.py so that the programs of the first seeds stay what they are.
"""

# One operation after the other reads best.
# ruff: noqa: E501

from __future__ import annotations

import random
from typing import Any

import torch
from random_operations import (
    Operation,
    _broadcasts,
    _constant,
    _dim,
    _flag,
    _indices,
    _number,
    _one,
    _pair,
    _pick,
    _seed,
    _unary,
    _with,
)
from torch.nn import functional as F

Tensor = torch.Tensor


def _integer(value: Tensor) -> bool:
    return value.dtype in (torch.int64, torch.int32) and value.numel() > 0


def _boolean(value: Tensor) -> bool:
    return value.dtype is torch.bool and value.numel() > 0


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dim() > 0 and a.numel() > 0


def _same(a: Tensor, b: Tensor) -> bool:
    return _alike(a, b) and a.dtype is b.dtype


def _smaller(a: Tensor, b: Tensor) -> bool:
    return _broadcasts(a, b) and torch.broadcast_shapes(a.shape, b.shape) == a.shape and b.is_floating_point()


def _int(low: int, high: int) -> Any:
    return lambda rng, _: rng.randint(low, high)


def _of_integers(function: Any, *draws: Any) -> Operation:
    return Operation(_one(_integer, *draws), lambda tensors, arguments: function(tensors[0], *arguments))


def _of_booleans(function: Any) -> Operation:
    return Operation(_one(_boolean), lambda tensors, _: function(tensors[0]))


def _window(rng: random.Random, value: Tensor) -> tuple[int, int, int]:
    """Dimension, size and step of windows."""
    dim = rng.randrange(value.dim())
    return dim, rng.randint(1, value.shape[dim]), rng.randint(1, 2)


def _places(value: Tensor, at: tuple[int, list[int]]) -> Tensor:
    """Indices along a dimension, in the shape of the value but for it."""
    dim, numbers = at
    sizes = [1] * value.dim()
    sizes[dim] = len(numbers)
    return torch.tensor(numbers).reshape(sizes).expand([len(numbers) if i == dim else n for i, n in enumerate(value.shape)])


def _image(x: Tensor) -> Tensor:
    """[batch, channels, length] of what has other dimensions."""
    return x.reshape(1, -1, x.shape[-1]) if x.dim() < 3 else x.flatten(0, -3)


def _convolved(x: Tensor, seed: int, channels: int) -> Tensor:
    x = _image(x)
    return F.conv1d(x, _constant(x, seed, channels, x.shape[1], 2), _constant(x, seed + 1, channels), padding=1)


def _convolved_2d(x: Tensor, seed: int, channels_last: bool) -> Tensor:
    x = _image(x).unsqueeze(1)
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    return F.conv2d(x, _constant(x, seed, 2, 1, 1, 2), padding=(0, 1))


def _put_at(target: Tensor, at: tuple[int, list[int]], number: float, adds: bool) -> Tensor:
    view = target.movedim(at[0], 0)
    places = torch.tensor(at[1])
    view.index_put_((places,), torch.full_like(view[places], number), accumulate=adds or len(set(at[1])) < len(at[1]))
    return target


def _scattered(x: Tensor, at: tuple[int, list[int]], kind: str) -> Tensor:
    places = _places(x, at)
    source = torch.cos(_constant(x, len(at[1]), *places.shape))
    if kind == "sum":
        return x.scatter_add(at[0], places, source)
    return x.scatter_reduce(at[0], places, source, kind)


def _row_swapped(x: Tensor) -> Tensor:
    x[[0, -1]] = x[[-1, 0]]
    return x


def _written_through(x: Tensor, number: float) -> Tensor:
    x.view(-1)[::2].mul_(number)
    return x


def _diagonal_written(x: Tensor, number: float) -> Tensor:
    x.diagonal(0, -2, -1).add_(number)
    return x


def _without_gradient_added(x: Tensor) -> Tensor:
    with torch.no_grad():
        mask = x.sigmoid().round()
    return x * mask


_UNARY = {
    "elu": F.elu, "hardtanh": F.hardtanh, "hardswish": F.hardswish, "mish": F.mish, "softsign": F.softsign, "logsigmoid": F.logsigmoid,
    "selu": F.selu, "threshold": lambda x: F.threshold(x, 0.1, 0.0), "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "atan": torch.atan,
    "nan_to_num": torch.nan_to_num, "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.5), "log1p": lambda x: torch.log1p(x.abs()), "cosh": lambda x: torch.cosh(x.tanh()),
    "sinc": torch.sinc, "expm1": lambda x: torch.expm1(-x.abs()), "round": lambda x: x + torch.round(x), "frac": lambda x: torch.frac(x),
    "to int": lambda x: (x * 2).to(torch.int32), "is positive": lambda x: x > 0, "is near": lambda x: torch.isclose(x, x.round(), atol=0.2),
    "to bfloat16": lambda x: x.bfloat16(), "to float64": lambda x: x.to(torch.float64), "half product": lambda x: (x.bfloat16() * x.bfloat16()).float(),
    "ravel": torch.ravel, "times its size": lambda x: x * x.numel() / 4, "plus positions": lambda x: x + torch.arange(x.shape[-1]) if x.dim() else x,
    "times own mask": _without_gradient_added, "randn_like": lambda x: x + torch.randn_like(x), "bernoulli": lambda x: x * torch.bernoulli(torch.sigmoid(x)),
    "unread dropout": lambda x: (F.dropout(x, 0.5), x + 1)[1], "rand": lambda x: x * torch.rand(()), "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, True),
    "gumbel": lambda x: F.gumbel_softmax(x, dim=-1) if x.dim() else x, "nothing of it": lambda x: x[..., :0].sum() + x if x.dim() else x,
    "sigmoid_": torch.sigmoid_, "sub_ itself": lambda x: x.sub_(x * 0.5), "leaky_relu_": lambda x: F.leaky_relu_(x, 0.2), "dropout_": lambda x: F.dropout(x, 0.2, True, True),
    "relu inplace": lambda x: F.relu(x, inplace=True), "zero_": lambda x: x.zero_(), "fill by tensor": lambda x: x.fill_(torch.tensor(0.5)),
}  # fmt: skip

MORE: dict[str, Operation] = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    "cat two": _pair(lambda x, y, dim: torch.cat([x, y, x], dim), _alike, _dim), "stack two": _pair(lambda x, y, dim: torch.stack([x, y], dim), _same, _dim),
    "split and turn": _with(lambda x, dim: torch.cat(x.split(max(1, x.shape[dim] // 2), dim)[::-1], dim), 1, _dim),
    "chunks": _with(lambda x, dim: sum(part.sum() for part in x.chunk(3, dim)) + x, 1, _dim), "tensor_split": _with(lambda x, dim: x.tensor_split(2, dim)[1], 1, _dim),
    "unfold": _with(lambda x, window: x.unfold(*window), 1, _window), "as_strided": _with(lambda x: x.contiguous().as_strided((x.numel(),), (1,)), 1),
    "narrow": _with(lambda x, window: x.narrow(window[0], x.shape[window[0]] - window[1], window[1]), 1, _window),
    "movedim": _with(torch.movedim, 1, _dim, _dim), "swapaxes": _with(torch.swapaxes, 1, _dim, _dim), "tile": _with(lambda x: x.tile(2), 1),
    "repeat_interleave": _with(lambda x, dim: x.repeat_interleave(2, dim), 1, _dim), "rot90": _with(lambda x: x.rot90(1, (0, -1)), 2),
    "diag_embed": _with(torch.diag_embed, 1), "triu": _with(lambda x, k: x.triu(k), 2, _int(-1, 1)), "broadcast_to": _with(lambda x: torch.broadcast_to(x, (2, *x.shape)), 0),
    "unflatten": _with(lambda x: x.flatten().unflatten(0, (-1, x.shape[-1])), 1), "T": _with(lambda x: x.mT, 2), "last rows": _with(lambda x: x[-1:], 1), "none index": _with(lambda x: x[..., None, 0], 1),
    "scatter": _with(lambda x, at, n: x.scatter(at[0], _places(x, at), n), 1, _indices, _number), "index_fill": _with(lambda x, at, n: x.index_fill(at[0], torch.tensor(at[1]), n), 1, _indices, _number),
    "scatter_add": _with(lambda x, at: _scattered(x, at, "sum"), 1, _indices), "scatter_amax": _with(lambda x, at: _scattered(x, at, "amax"), 1, _indices), "scatter_mean": _with(lambda x, at: _scattered(x, at, "mean"), 1, _indices),
    "take_along_dim": _with(lambda x, dim: torch.take_along_dim(x, x.argsort(dim, descending=True), dim), 1, _dim),
    "index_add": _with(lambda x, at: x.index_add(at[0], torch.tensor(at[1]), x.index_select(at[0], torch.tensor(at[1])), alpha=0.5), 1, _indices),
    "two indices": _with(lambda x: x[torch.arange(x.shape[0]), torch.zeros(x.shape[0], dtype=torch.int64)], 2), "masked by a mask": _pair(lambda x, y: torch.where(y > 0.1, x, -x), _smaller),
    "topk": _with(lambda x, dim: x.topk(max(1, x.shape[dim] // 2), dim).values, 1, _dim), "sorted": _with(lambda x, dim: x.sort(dim, descending=True).values, 1, _dim), "kthvalue": _with(lambda x, dim: x.kthvalue(1, dim).values, 1, _dim),
    "median": _with(lambda x, dim: x.median(dim).values, 1, _dim), "cummax": _with(lambda x, dim: x.cummax(dim).values, 1, _dim), "cumprod": _with(lambda x, dim: x.tanh().cumprod(dim), 1, _dim),
    "logcumsumexp": _with(torch.logcumsumexp, 1, _dim), "std": _with(lambda x, dim: (x + _constant(x, 5, *x.shape)).std(dim, unbiased=False), 1, _dim), "amin": _with(lambda x, dim: x.amin(dim), 1, _dim), "one norm": _with(lambda x, dim: x.norm(1, dim), 1, _dim),
    "any": _with(lambda x, dim: (x > 0.5).any(dim), 1, _dim), "count": _with(lambda x, dim: (x > 0).sum(dim), 1, _dim), "argmin": _with(torch.argmin, 1, _dim), "argsort": _with(torch.argsort, 1, _dim), "diff": _with(lambda x, dim: x.diff(dim=dim), 1, _dim),
    "bmm": _with(lambda x: torch.bmm(_image(x), _image(x).transpose(1, 2)) / 4, 2), "einsum two": _pair(lambda x, y: torch.einsum("...i,...i->...", x, y), _same), "outer": _with(lambda x: torch.outer(x.flatten()[:4], x.flatten()[:3]), 1),
    "cosine": _pair(lambda x, y: F.cosine_similarity(x, y, -1, 1e-2), _same), "baddbmm": _with(lambda x: torch.baddbmm(_image(x), _image(x), torch.eye(x.shape[-1], dtype=x.dtype).expand(_image(x).shape[0], -1, -1), beta=0.5), 2),
    "attention": _with(lambda x, causal: F.scaled_dot_product_attention(_image(x), _image(x).sin(), _image(x), is_causal=causal), 2, _flag),
    "layer_norm with bias": _with(lambda x, seed: F.layer_norm(x + _constant(x, 3, *x.shape), x.shape[-1:], _constant(x, seed, x.shape[-1]), _constant(x, seed + 1, x.shape[-1]), 1e-2), 1, _seed),
    "group_norm": _with(lambda x: F.group_norm(_image(x), _image(x).shape[1], eps=0.1), 2), "rms_norm": _with(lambda x: F.rms_norm(x, x.shape[-1:], eps=0.1), 1),
    "batch_norm": _with(lambda x, seed: F.batch_norm(_image(x), None, None, _constant(x, seed, _image(x).shape[1]), None, True, eps=0.1), 2, _seed),
    "batch_norm by statistics": _with(lambda x, seed: F.batch_norm(_image(x), _constant(x, seed, _image(x).shape[1]), _constant(x, seed, _image(x).shape[1]).abs() + 0.5), 2, _seed), "instance_norm": _with(lambda x: F.instance_norm(_image(x), eps=0.1), 2),
    "conv1d": _with(_convolved, 1, _seed, _int(1, 3)), "conv2d": _with(_convolved_2d, 2, _seed, _flag), "conv_transpose1d": _with(lambda x, seed: F.conv_transpose1d(_image(x), _constant(x, seed, _image(x).shape[1], 2, 2)), 1, _seed),
    "max_pool1d": _with(lambda x: F.max_pool1d(_image(x), 2, 1), 1), "avg_pool1d": _with(lambda x: F.avg_pool1d(_image(x), 2, 1), 1), "adaptive": _with(lambda x: F.adaptive_avg_pool1d(_image(x), 2), 1), "interpolate": _with(lambda x: F.interpolate(_image(x), scale_factor=2), 1), "glu": _with(lambda x: F.glu(torch.cat([x, x], -1)), 1),
    "mse": _pair(F.mse_loss, _same), "smooth_l1": _pair(F.smooth_l1_loss, _same), "cross_entropy": _with(lambda x: F.cross_entropy(x, x.detach().argmin(1)), 2), "bce": _pair(lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), _same), "kl": _pair(lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="sum"), _same),
    "promote": Operation(lambda rng, values: None if (i := _pick(rng, values, lambda x: x.is_floating_point())) is None or (j := _pick(rng, values, lambda x: not x.is_floating_point() and _broadcasts(values[i], x.long()))) is None else ([i, j], ()), lambda tensors, _: tensors[0] * tensors[1] + tensors[1]),
    "int shift": _of_integers(lambda x, n: x * n - 3, _int(-2, 3)), "int divide": _of_integers(lambda x, n: x // n, _int(2, 4)), "modulo": _of_integers(lambda x, n: x % n, _int(2, 4)), "bits": _of_integers(lambda x: (x & 5) | (x << 1)), "int mean": _of_integers(lambda x: x.float().mean()),
    "int true division": _of_integers(lambda x, n: x / n, _int(2, 4)), "int sum": _of_integers(lambda x: x.sum(0)), "int max": _of_integers(lambda x: torch.maximum(x, x.flip(0) if x.dim() else x)), "int in place": _of_integers(lambda x: x.add_(1)), "is even": _of_integers(lambda x: x % 2 == 0), "to bool": _of_integers(lambda x: x.bool()),
    "not": _of_booleans(torch.logical_not), "xor": _of_booleans(lambda x: x ^ x.flip(0) if x.dim() else ~x), "bool sum": _of_booleans(lambda x: x.sum()), "bool to float": _of_booleans(lambda x: x.float() - 0.5), "bool where": _of_booleans(lambda x: torch.where(x, 1.5, -0.5)), "bool in place": _of_booleans(lambda x: x.logical_not_()),
    "index_put_": _with(_put_at, 1, _indices, _number, _flag), "index_fill_": _with(lambda x, at, n: x.index_fill_(at[0], torch.tensor(at[1]), n), 1, _indices, _number), "scatter_": _with(lambda x, at, n: x.scatter_(at[0], _places(x, at), n), 1, _indices, _number),
    "rows swapped": _with(_row_swapped, 1), "written through a view": _with(_written_through, 1, _number), "diagonal written": _with(_diagonal_written, 2, _number), "fill_diagonal_": _with(lambda x, n: x.fill_diagonal_(n), 2, _number),
    "addcmul_": _pair(lambda x, y: x.addcmul_(y.to(x.dtype), y.to(x.dtype), value=0.5), _smaller), "lerp_": _pair(lambda x, y: x.lerp_(y.to(x.dtype), 0.3), lambda a, b: _smaller(a, b) and a.shape == b.shape), "sub_": _pair(lambda x, y: x.sub_(y), _smaller), "div_": _pair(lambda x, y: x.div_(y.abs() + 1), _smaller),
    "masked_fill_ by another": _pair(lambda x, y: x.masked_fill_(y > 0, 0.5), _smaller), "a column": _pair(lambda x, y: (x[..., 0].copy_(y[..., -1]), x)[1], _same),
}  # fmt: skip
# These write to the first what they read from the second.
WRITERS = frozenset({"add_", "write over", "addcmul_", "lerp_", "sub_", "div_", "masked_fill_ by another", "a column"})
