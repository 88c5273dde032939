"""Rarer operations of random programs: complex numbers, regions of autocast and no_grad, autograd Functions, checkpoints,
assignments to indices, results that share memory, half precision and dimensions of size 0.

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
from random_operations_more import _alike, _int, _places, _same, _smaller
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Tensor = torch.Tensor


def _complex(value: Tensor) -> bool:
    return value.is_complex() and value.numel() > 0


def _single(value: Tensor) -> bool:
    return value.dtype in (torch.float32, torch.float64) and value.dim() > 0 and value.numel() > 0


def _of_complex(function: Any, *draws: Any) -> Operation:
    return Operation(_one(_complex, *draws), lambda tensors, arguments: function(tensors[0], *arguments))


def _of_single(function: Any, *draws: Any) -> Operation:
    return Operation(_one(_single, *draws), lambda tensors, arguments: function(tensors[0], *arguments))


def _of_any(function: Any, *draws: Any) -> Operation:
    """Of values without elements as well."""
    suits = _one(lambda value: value.is_floating_point() and value.dim() > 0, *draws)
    return Operation(suits, lambda tensors, arguments: function(tensors[0], *arguments))


def _of_empty(function: Any) -> Operation:
    return Operation(_one(lambda x: x.is_floating_point() and x.numel() == 0), lambda tensors, _: function(tensors[0]))


def _two_results(function: Any, rank: int, *draws: Any) -> Operation:
    one = _with(function, rank, *draws)
    return Operation(one.draw, one.run, results=2)


class _Scaled(torch.autograd.Function):
    """The identity, whose gradient is scaled by a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


class _Clamped(torch.autograd.Function):
    """A clamp that lets the gradient through."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clamp(-0.4, 0.6)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Divided(torch.autograd.Function):
    """The whole part, which has no gradient, and what is left of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        whole = x.floor()
        ctx.mark_non_differentiable(whole)
        return whole, (x - whole) * 2

    @staticmethod
    def backward(_: Any, whole: Tensor, left: Tensor) -> Tensor:
        return left * 2


class _FirstAlone(torch.autograd.Function):
    """x * (1 + tanh(y)), as if y were a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        factor = 1 + y.tanh()
        ctx.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.saved_tensors[0], None


def _wave(x: Tensor) -> Tensor:
    return torch.tanh(x).sin() * x


def _bell(x: Tensor) -> Tensor:
    return torch.exp(-x.square()) + x


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).cos()


def _dropped(x: Tensor) -> Tensor:
    return F.dropout(x, 0.4) * 2


def _in_autocast(x: Tensor, seed: int, width: int) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        hidden = F.linear(x, _constant(x, seed, width, x.shape[-1]))
        return F.gelu(hidden) @ _constant(x, seed + 1, width, 3) + 1


def _out_of_autocast(x: Tensor, seed: int) -> Tensor:
    weight = _constant(x.float(), seed, x.shape[-1], x.shape[-1])
    with torch.autocast("cpu", torch.bfloat16):
        hidden = F.linear(x.float(), weight).softmax(-1)
        with torch.autocast("cpu", enabled=False):
            hidden = hidden.float() @ weight
        return torch.mm(hidden.flatten(0, -2) if hidden.dim() > 1 else hidden[None], weight)


def _under_no_grad(x: Tensor) -> Tensor:
    y = x * 2
    with torch.no_grad():
        scale = y.abs().amax() + 1
        mask = (y > 0).to(y.dtype)
        mask.mul_(0.5).add_(scale)
    return y * mask / scale


def _step_of(x: Tensor, a: int, b: int, number: float) -> Tensor:
    x[..., a % x.shape[-1] :: b] = number
    return x


def _rows(x: Tensor, at: list[int], y: Tensor) -> Tensor:
    x[torch.tensor(at)] = y
    return x


def _assigned(x: Tensor, key: Any, content: Any) -> Tensor:
    x[key] = content
    return x


def _augmented(x: Tensor, key: Any, number: float) -> Tensor:
    x[key] *= number
    return x


def _accumulated(x: Tensor, at: tuple[int, list[int]], seed: int) -> Tensor:
    content = _constant(x, seed, len(at[1]), *x.shape[1:])
    return x.index_put_((torch.tensor([n % x.shape[0] for n in at[1]]),), content, accumulate=True)


def _row_numbers(rng: random.Random, value: Tensor) -> list[int]:
    return rng.sample(range(value.shape[0]), rng.randint(1, value.shape[0]))


def _pair_number(rng: random.Random, value: Tensor) -> tuple[int, ...]:
    return tuple(rng.randrange(-n, n) for n in value.shape[: rng.randint(1, value.dim())])


def _ends(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.tensor([0, x.shape[0] - 1]), torch.tensor([x.shape[1] - 1, 0])


def _draw_joined(rng: random.Random, values: list[Tensor]) -> tuple[list[int], tuple[Any, ...]] | None:
    """Two values of one shape and of different dtypes."""
    i = _pick(rng, values, lambda x: x.is_floating_point() and x.dim() > 0)
    j = None if i is None else _pick(rng, values, lambda x: x.shape == values[i].shape and x.dtype is not values[i].dtype)
    return None if j is None else ([i, j], (_dim(rng, values[i]),))


def _reduced(x: Tensor, at: tuple[int, list[int]], how: str, own: bool) -> Tensor:
    index = _places(x, at)
    return x.scatter_reduce(at[0], index, x.index_select(at[0], torch.tensor(at[1])).sin() + 2, how, include_self=own)


_COMPLEX: dict[str, Operation] = {
    "fft": _of_single(lambda x, dim: torch.fft.fft(x, dim=dim, norm="ortho"), _dim), "rfft": _of_single(lambda x: torch.fft.rfft(x)), "fft and back": _of_single(lambda x: torch.fft.ifft(torch.fft.fft(x) * 2).real),
    "irfft": _of_single(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 1.5, n=x.shape[-1])), "spectrum": _of_single(lambda x: torch.view_as_real(torch.fft.rfft(x))), "fft2": _of_single(lambda x: torch.fft.fftn(x).abs()),
    "to complex": _of_single(lambda x: torch.complex(x, x.cos())), "view_as_complex": _of_single(lambda x: torch.view_as_complex(torch.stack([x, x * 2], -1))), "polar": _of_single(lambda x: torch.polar(x.abs() + 1, x)),
    "view_as_real": _of_complex(torch.view_as_real), "conj": _of_complex(torch.conj), "conj times": _of_complex(lambda z: (z.conj() * z).real), "absolute": _of_complex(torch.abs), "angle": _of_complex(lambda z: (z + 3).angle()),
    "real": _of_complex(torch.real), "imag": _of_complex(torch.imag), "rotate": _of_complex(lambda z, n: z * complex(n, 1), _number), "complex mul_": _of_complex(lambda z, n: z.mul_(n), _number), "complex exp": _of_complex(lambda z: torch.exp(z / (z.abs() + 1))),
    "complex sum": _of_complex(lambda z: z.sum()), "complex square": _of_complex(lambda z: (z @ z.mT) / 4 if z.dim() > 1 and z.shape[-1] == z.shape[-2] else z * z), "complex ifft": _of_complex(lambda z: torch.fft.ifft(z) if z.dim() else z * 2), "resolve": _of_complex(lambda z: z.conj().resolve_conj() + 1),
    "real part written": _of_complex(lambda z, n: (z.real.mul_(n), z)[1], _number), "angle of real": _of_single(torch.angle),
}  # fmt: skip

_REGIONS: dict[str, Operation] = {
    "autocast": _of_single(_in_autocast, _seed, _int(1, 5)), "autocast with a hole": _with(_out_of_autocast, 1, _seed), "region of no_grad": _unary(_under_no_grad), "straight through": _unary(lambda x: (x.round() - x).detach() + x),
    "detached scale": _unary(lambda x: x / (x.detach().abs().sum() + 1)), "detached view": _with(lambda x: x.detach().flatten().cumsum(0) * 0.5, 1), "half detached": _pair(lambda x, y: x * y.detach() + x.detach(), _same),
    "scaled gradient": _with(lambda x, n: _Scaled.apply(x, n), 0, _number), "clamped": _unary(lambda x: _Clamped.apply(x)), "divided": _two_results(lambda x: _Divided.apply(x), 0), "first alone": _pair(lambda x, y: _FirstAlone.apply(x, y), _same),
    "whole part unread": _unary(lambda x: _Divided.apply(x)[1]), "whole part alone": _unary(lambda x: _Divided.apply(x)[0] + x),
    "checkpoint": _unary(lambda x: checkpoint(_wave, x, use_reentrant=False)), "reentrant checkpoint": _unary(lambda x: checkpoint(_bell, x, use_reentrant=True)),
    "checkpoint of two": _pair(lambda x, y: checkpoint(_cosine, x, y, use_reentrant=False), _same), "checkpoint with dropout": _unary(lambda x: checkpoint(_dropped, x, use_reentrant=False)),
}  # fmt: skip

_INDICES: dict[str, Operation] = {
    "rows assigned": _with(lambda x, at, seed: _rows(x, at, _constant(x, seed, len(at), *x.shape[1:])), 1, _row_numbers, _seed), "a row assigned to rows": _with(lambda x, at, seed: _rows(x, at, _constant(x, seed, *x.shape[1:])), 1, _row_numbers, _seed),
    "rows copied": _with(lambda x, at: _rows(x, at, x[at[::-1]]), 1, _row_numbers), "element assigned": _with(_assigned, 1, _pair_number, _number), "element changed": _with(_augmented, 1, _pair_number, _number), "element read": _with(lambda x, at: x[at] * 2, 1, _pair_number),
    "mask assigned": _with(lambda x, n: _assigned(x, x > 0.2, n), 0, _number), "rows of a mask": _with(lambda x, n: _assigned(x, x.sum(-1) > 0, n), 2, _number), "ellipsis assigned": _with(lambda x, n: _assigned(x, (..., -1), n), 1, _number), "steps assigned": _with(_step_of, 1, _int(0, 3), _int(1, 3), _number),
    "two indices assigned": _with(lambda x, n: _assigned(x, _ends(x), n), 2, _number), "two indices read": _with(lambda x: x[_ends(x)], 2), "index and slice": _with(lambda x, at: x[torch.tensor(at), ..., :-1:2], 2, _row_numbers), "index and slice assigned": _with(lambda x, at, n: _assigned(x, (torch.tensor(at), slice(1, None)), n), 2, _row_numbers, _number),
    "index behind a slice": _with(lambda x, at: x[:, torch.tensor([n % x.shape[1] for n in at])], 2, _row_numbers), "index behind an ellipsis assigned": _with(lambda x, n: _assigned(x, (..., torch.tensor([0, x.shape[-1] - 1])), n), 1, _number), "index of rank two": _with(lambda x, at: x[torch.tensor([at, at[::-1]])], 1, _row_numbers),
    "list of rows": _with(lambda x, at: x[at], 1, _row_numbers), "none and slice": _with(lambda x: x[None, ..., ::2], 1), "accumulate": _with(_accumulated, 1, _indices, _seed), "all assigned": _pair(lambda x, y: _assigned(x, slice(None), y), lambda a, b: _smaller(a, b) and a.dim() > 0), "assigned through a view": _with(lambda x, n: (_assigned(x[:1].transpose(0, -1), 0, n), x)[1], 1, _number),
    "first column added": _with(lambda x, n: _augmented(x, (slice(None), 0), n), 2, _number), "by bool row": _with(lambda x, n: _assigned(x, torch.arange(x.shape[0]) % 2 == 0, n), 1, _number), "masked write by another": _pair(lambda x, y: _assigned(x, y > 0, -0.5), lambda a, b: _alike(a, b)), "masked_scatter": _pair(lambda x, y: x.masked_scatter(x > 0, y), _same),
    "selected by a mask": _with(lambda x: x[x > 0].sum() + 1, 1), "unique": _with(lambda x: torch.unique(x.detach()).sum(), 1), "scatter_reduce": _with(lambda x, at, how, own: _reduced(x, at, how, own), 1, _indices, lambda rng, _: rng.choice(["sum", "mean", "amax", "amin", "prod"]), _flag),
}  # fmt: skip

_SIZES: dict[str, Operation] = {
    "half of the rows": _of_any(lambda x: x[: x.shape[0] // 2]), "rest of the rows": _of_any(lambda x: x[x.shape[0] // 2 :] * len(x)), "mean by size": _of_any(lambda x, dim: x.sum(dim) / max(1, x.shape[dim]), _dim), "size in a view": _of_any(lambda x: x.reshape(x.shape[0], x.numel() // max(1, x.shape[0]))), "many": _of_any(lambda x: x * (1 if x.numel() > 6 else -1)),
    "empty rows": _of_any(lambda x: x[:0]), "keep one": _of_any(lambda x, dim: x.narrow(dim, 0, min(1, x.shape[dim])), _dim), "sum of nothing": _of_empty(lambda x: x.sum() + 1), "sum over a size": _of_empty(lambda x: x.sum(0) if x.dim() else x), "cat of nothing": _of_empty(lambda x: torch.cat([x, x]) * 2), "relu of nothing": _of_empty(torch.relu),
    "stack of nothing": _of_empty(lambda x: torch.stack([x, x], -1).tanh()), "pad of nothing": _of_empty(lambda x: F.pad(x, (1, 1), value=0.5)), "linear of nothing": _of_empty(lambda x: F.linear(x, _constant(x, 3, 2, x.shape[-1]))), "flattened nothing": _of_empty(lambda x: x.flatten()), "prod of nothing": _of_empty(lambda x: x.prod()),
    "cat with nothing": _of_any(lambda x: torch.cat([x, x[:0], x])), "nothing added": _of_any(lambda x: x + x[..., :0].sum()), "softmax of anything": _of_any(lambda x, dim: x.softmax(dim), _dim), "arange": _of_any(lambda x: x + torch.arange(x.shape[-1]).to(x.dtype)), "expand_as": _of_any(lambda x: x[:1].expand_as(x) if len(x) else x),
}  # fmt: skip

_DTYPES: dict[str, Operation] = {
    "to half": _unary(lambda x: x.half()), "bfloat16 again": _unary(lambda x: x.bfloat16()), "half by single": _unary(lambda x: x.half() * x), "half by number": _with(lambda x, n: x.half() * n + 1, 0, _number), "half and bfloat16": _unary(lambda x: x.half() + x.bfloat16()), "sum in single": _with(lambda x: x.bfloat16().sum(-1, dtype=torch.float32), 1),
    "half softmax": _with(lambda x: x.bfloat16().softmax(-1, dtype=torch.float32), 1), "half matmul": _with(lambda x: x.bfloat16() @ x.bfloat16().mT, 2), "scalar tensor by half": _unary(lambda x: x.half() * torch.tensor(1.5, dtype=torch.float64)),
    "cat of dtypes": Operation(_draw_joined, lambda tensors, arguments: torch.cat(tensors, *arguments)), "stack of dtypes": Operation(_draw_joined, lambda tensors, arguments: torch.stack([tensors[0], tensors[1].to(tensors[0].dtype)], *arguments)), "where of dtypes": _pair(lambda x, y: torch.where(x > 0, x, y), lambda a, b: _broadcasts(a, b) and not b.is_complex()),
    "einsum sum": _with(lambda x: torch.einsum("...ij->...i", x), 2), "einsum turned": _with(lambda x: torch.einsum("...ij->...ji", x), 2), "einsum of two": _pair(lambda x, y: torch.einsum("...ij,...kj->...ik", x, y), lambda a, b: _same(a, b) and a.dim() > 1), "einsum diagonal": _with(lambda x: torch.einsum("...ii->...i", x @ x.mT), 2),
    "cummin": _with(lambda x, dim: x.cummin(dim).values, 1, _dim), "cumsum in double": _with(lambda x, dim: x.cumsum(dim, dtype=torch.float64), 1, _dim), "cumsum_": _with(lambda x, dim: x.cumsum_(dim), 1, _dim), "running mean": _with(lambda x: x.cumsum(0) / torch.arange(1, x.shape[0] + 1).reshape(-1, *[1] * (x.dim() - 1)), 1),
}  # fmt: skip

_SHARING: dict[str, Operation] = {
    "sort of both": _two_results(lambda x, dim, down: tuple(x.sort(dim=dim, descending=down, stable=True)), 1, _dim, _flag), "topk of both": _two_results(lambda x: tuple(x.topk(1 + x.shape[-1] // 2)), 1), "max of both": _two_results(lambda x, dim: tuple(x.max(dim)), 1, _dim), "two chunks": _two_results(lambda x: (x[..., :1], x[..., 1:]), 1),
    "itself and turned": _two_results(lambda x: (x.view_as(x), x.transpose(0, -1)), 1), "itself and flat": _two_results(lambda x: (x, x.reshape(-1)), 1), "var_mean": _two_results(lambda x: torch.var_mean(x, -1, correction=0), 1), "overlapping parts": _two_results(lambda x: (x[: 1 + x.shape[0] // 2], x[x.shape[0] // 2 :]), 1), "frexp": _two_results(lambda x: tuple(torch.frexp(x.detach().float())), 0),
    "written and kept": _two_results(lambda x, n: ((y := x * 2), y.view(-1).mul_(n))[:2], 1, _number), "aminmax": _two_results(lambda x: tuple(x.aminmax()), 1), "real and imaginary": _two_results(lambda x: ((z := torch.fft.rfft(x.float())).real, z.imag), 1),
}  # fmt: skip

RARE: dict[str, Operation] = {**_COMPLEX, **_REGIONS, **_INDICES, **_SIZES, **_DTYPES, **_SHARING}
# These write to the first what they read from the second.
RARE_WRITERS = frozenset({"all assigned", "masked write by another"})
