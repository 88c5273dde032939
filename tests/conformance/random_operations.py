"""Operations that random programs are made of (programs.py): how each is drawn, and what it does.

An operation is drawn for some of the values so far: `draw` returns their positions and the plain arguments, or None when the
values do not suit it; `run(tensors, arguments)` applies it. It may write to a value it is given: then it returns that value.
Of an operation with several `results`, `run` returns a tuple of so many.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

Draw = Callable[[random.Random, list[torch.Tensor]], "tuple[list[int], tuple[Any, ...]] | None"]
Run = Callable[[list[torch.Tensor], tuple[Any, ...]], "torch.Tensor | tuple[torch.Tensor, ...]"]


@dataclass(frozen=True)
class Operation:
    """One kind of step of a program; see above."""

    draw: Draw
    run: Run
    results: int = 1


def _pick(rng: random.Random, values: list[torch.Tensor], suits: Callable[[torch.Tensor], bool]) -> int | None:
    """A value that suits, rather a late one, so that programs are deep."""
    found = [i for i, value in enumerate(values) if suits(value)]
    if not found:
        return None
    return found[-1 - min(int(rng.expovariate(0.5)), len(found) - 1)]


def _floating(value: torch.Tensor) -> bool:
    return value.is_floating_point()


def _ranked(rank: int) -> Callable[[torch.Tensor], bool]:
    return lambda value: value.is_floating_point() and value.dim() >= rank and value.numel() > 0


def _one(suits: Callable[[torch.Tensor], bool], *draws: Callable[[random.Random, torch.Tensor], Any]) -> Draw:
    def draw(rng: random.Random, values: list[torch.Tensor]) -> tuple[list[int], tuple[Any, ...]] | None:
        i = _pick(rng, values, suits)
        return None if i is None else ([i], tuple(each(rng, values[i]) for each in draws))

    return draw


def _two(suits: Callable[[torch.Tensor, torch.Tensor], bool], *draws: Callable[[random.Random, torch.Tensor], Any]) -> Draw:
    def draw(rng: random.Random, values: list[torch.Tensor]) -> tuple[list[int], tuple[Any, ...]] | None:
        i = _pick(rng, values, _floating)
        if i is None:
            return None
        j = _pick(rng, values, lambda other: suits(values[i], other))
        return None if j is None else ([i, j], tuple(each(rng, values[i]) for each in draws))

    return draw


def _broadcasts(a: torch.Tensor, b: torch.Tensor) -> bool:
    try:
        torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        return False
    return b.dtype is not torch.bool


def _writes_into(a: torch.Tensor, b: torch.Tensor) -> bool:
    return _broadcasts(a, b) and torch.broadcast_shapes(a.shape, b.shape) == a.shape and b.is_floating_point()


def _multiplies(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dim() > 1 and b.dim() > 1 and b.dtype is a.dtype and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]


def _dim(rng: random.Random, value: torch.Tensor) -> int:
    return rng.randrange(-value.dim(), value.dim())


def _dims(rng: random.Random, value: torch.Tensor) -> list[int]:
    return sorted(rng.sample(range(value.dim()), rng.randint(1, value.dim())))


def _order(rng: random.Random, value: torch.Tensor) -> list[int]:
    return rng.sample(range(value.dim()), value.dim())


def _flag(rng: random.Random, _: torch.Tensor) -> bool:
    return rng.random() < 0.5


def _number(rng: random.Random, _: torch.Tensor) -> float:
    return rng.choice([0.5, -1.5, 2.0, 3, -1, 0.25])


def _seed(rng: random.Random, _: torch.Tensor) -> int:
    return rng.randrange(1 << 16)


def _shape(rng: random.Random, value: torch.Tensor) -> list[int]:
    """Other sizes of as many elements."""
    sizes, rest = [], value.numel()
    while rest > 1 and len(sizes) < 3:
        divisors = [d for d in range(2, rest + 1) if rest % d == 0]
        sizes.append(rng.choice(divisors))
        rest //= sizes[-1]
    sizes = [*sizes, rest] if rest > 1 else sizes
    if rng.random() < 0.3:
        sizes.insert(rng.randint(0, len(sizes)), 1)
    if sizes and rng.random() < 0.3:
        sizes[rng.randrange(len(sizes))] = -1
    return sizes


def _slices(rng: random.Random, value: torch.Tensor) -> list[tuple[int, int | None, int | None, int]]:
    """(dimension, start, end, step) that leave something."""
    dim = rng.randrange(value.dim())
    size = value.shape[dim]
    start = rng.randrange(size)
    return [(dim, rng.choice([start, start - size]), rng.choice([None, rng.randint(start + 1, size)]), rng.choice([1, 1, 2]))]


def _part(value: torch.Tensor, slices: list[tuple[int, int | None, int | None, int]]) -> torch.Tensor:
    index: list[Any] = [slice(None)] * value.dim()
    for dim, start, end, step in slices:
        index[dim] = slice(start, end, step)
    return value[tuple(index)]


def _indices(rng: random.Random, value: torch.Tensor) -> tuple[int, list[int]]:
    dim = rng.randrange(value.dim())
    return dim, [rng.randrange(value.shape[dim]) for _ in range(rng.randint(1, 4))]


def _constant(value: torch.Tensor, seed: int, *sizes: int) -> torch.Tensor:
    """A weight that only the seed decides: numbers in [-1, 1] without a random generator."""
    count = torch.arange(1.0, 1.0 + max(1, int(torch.Size(sizes).numel())), dtype=torch.float64)
    return torch.sin(count * (seed % 97 + 1)).reshape(sizes or ()).to(value.dtype)


def _put(target: torch.Tensor, slices: Any, content: Any) -> torch.Tensor:
    part = _part(target, slices)
    part.copy_(content) if isinstance(content, torch.Tensor) else part.fill_(content)
    return target


def _added(target: torch.Tensor, slices: Any, factor: float) -> torch.Tensor:
    _part(target, slices).mul_(factor).add_(1)
    return target


def _without_gradient(value: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.tanh(value) * 2


def _where(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.where(value > 0, value, other)


def _unary(function: Callable[[torch.Tensor], torch.Tensor], rank: int = 0) -> Operation:
    return Operation(_one(_ranked(rank)), lambda tensors, _: function(tensors[0]))


def _with(function: Callable[..., torch.Tensor], rank: int, *draws: Callable[[random.Random, torch.Tensor], Any]) -> Operation:
    return Operation(_one(_ranked(rank), *draws), lambda tensors, arguments: function(tensors[0], *arguments))


def _pair(function: Callable[..., torch.Tensor], suits: Any = _broadcasts, *draws: Any) -> Operation:
    return Operation(_two(suits, *draws), lambda tensors, arguments: function(*tensors, *arguments))


_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sin": torch.sin, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu, "gelu": F.gelu, "silu": F.silu,
    "neg": torch.neg, "abs": torch.abs, "square": torch.square, "exp": lambda x: torch.exp(-x.abs()),
    "log": lambda x: torch.log(x.abs() + 1), "sqrt": lambda x: torch.sqrt(x.abs() + 0.1), "softplus": F.softplus,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1), "clamp": lambda x: x.clamp(-0.5, 0.7), "clone": torch.clone,
    "detach": lambda x: x.detach() + 1, "no_grad": _without_gradient, "erf": torch.erf, "sign": torch.sign,
    "ones_like": lambda x: torch.ones_like(x) * x, "double": lambda x: x.double(), "float": lambda x: x.float(),
    "bfloat16": lambda x: x.bfloat16().to(x.dtype), "long": lambda x: (x * 3).long(), "type_as": lambda x: (x > 0).type_as(x),
    "contiguous": lambda x: x.contiguous(), "dropout": lambda x: F.dropout(x, 0.3), "rand_like": lambda x: x + torch.rand_like(x),
    "logical": lambda x: ((x > 0) & (x < 1)).to(x.dtype), "reciprocal": lambda x: 1 / (x.abs() + 1),
    "item sum": lambda x: x - x.sum(),
}  # fmt: skip

OPERATIONS: dict[str, Operation] = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    "scale": _with(lambda x, n: x * n, 0, _number),
    "shift": _with(lambda x, n: n - x, 0, _number),
    "floor_divide": _with(lambda x, n: x - torch.floor(x / n), 0, _number),
    "pow": _with(lambda x, n: (x.abs() + 0.1) ** n, 0, _number),
    "add": _pair(torch.add), "sub": _pair(torch.sub), "mul": _pair(torch.mul),
    "div": _pair(lambda x, y: x / (y.abs() + 1)),
    "maximum": _pair(torch.maximum), "minimum": _pair(torch.minimum), "where": _pair(_where),
    "atan2": _pair(lambda x, y: torch.atan2(x, y + 3)),
    "lerp": _pair(lambda x, y, n: torch.lerp(x, y.to(x.dtype), n), _broadcasts, _number),
    "addcmul": _pair(lambda x, y: torch.addcmul(x, x, y.to(x.dtype), value=0.5), _writes_into),
    "matmul": _pair(torch.matmul, _multiplies),
    "gram": _with(lambda x: x @ x.transpose(-1, -2) / x.shape[-1], 2),
    "linear": _with(
        lambda x, n, seed: F.linear(x, _constant(x, seed, n, x.shape[-1])), 1, lambda rng, _: rng.randint(1, 6), _seed
    ),
    "reshape": _with(lambda x, sizes: x.reshape(sizes), 0, _shape),
    "flatten": _with(lambda x: x.flatten(), 1),
    "transpose": _with(lambda x, a, b: x.transpose(a, b), 1, _dim, _dim),
    "permute": _with(lambda x, order: x.permute(order), 1, _order),
    "unsqueeze": _with(lambda x, n: x.unsqueeze(n), 0, lambda rng, x: rng.randrange(-x.dim() - 1, x.dim() + 1)),
    "squeeze": _unary(torch.squeeze),
    "expand": _with(lambda x, n: x.unsqueeze(0).expand(n, *x.shape), 0, lambda rng, _: rng.randint(1, 3)),
    "slice": _with(_part, 1, _slices),
    "select": _with(lambda x, at: x.select(at[0], at[1][0]), 1, _indices),
    "flip": _with(torch.flip, 1, _dims),
    "roll": _with(lambda x, dim: x.roll(1, dim), 1, _dim),
    "repeat": _with(lambda x: x.repeat(*([1] * (x.dim() - 1)), 2), 1),
    "chunk": _with(lambda x, dim: x.chunk(2, dim)[0], 1, _dim),
    "split": _with(lambda x, dim: x.split(max(1, x.shape[dim] // 2), dim)[-1], 1, _dim),
    "unbind": _with(lambda x, dim: x.unbind(dim)[0], 1, _dim),
    "diagonal": _with(lambda x: x.diagonal(0, -2, -1), 2),
    "tril": _with(torch.tril, 2),
    "pad": _with(lambda x: F.pad(x, (1, 2)), 1),
    "sum": _with(lambda x, dims, keep: x.sum(dims, keepdim=keep), 1, _dims, _flag),
    "mean": _with(lambda x, dims, keep: x.mean(dims, keepdim=keep), 1, _dims, _flag),
    "amax": _with(lambda x, dims, keep: x.amax(dims, keepdim=keep), 1, _dims, _flag),
    "max": _with(lambda x, dim: x.max(dim).values, 1, _dim),
    "logsumexp": _with(lambda x, dims: x.logsumexp(dims), 1, _dims),
    "var": _with(lambda x, dims: x.var(dims, unbiased=False), 1, _dims),
    "norm": _with(lambda x, dim: (x + 3).norm(dim=dim), 1, _dim),
    "prod": _with(lambda x, dim: torch.tanh(x).prod(dim), 1, _dim),
    "softmax": _with(torch.softmax, 1, _dim),
    "log_softmax": _with(torch.log_softmax, 1, _dim),
    "cumsum": _with(torch.cumsum, 1, _dim),
    "argmax": _with(torch.argmax, 1, _dim),
    "sort": _with(lambda x, dim: x.sort(dim).values, 1, _dim),
    "layer_norm": _with(lambda x, seed: F.layer_norm(x, x.shape[-1:], _constant(x, seed, x.shape[-1])), 1, _seed),
    "index_select": _with(lambda x, at: x.index_select(at[0], torch.tensor(at[1])), 1, _indices),
    "index": _with(lambda x, at: x.movedim(at[0], 0)[torch.tensor(at[1])], 1, _indices),
    "gather": _with(lambda x: torch.gather(x, -1, x.argsort(-1)), 1),
    "masked_fill": _with(lambda x, n: x.masked_fill(x > 0.3, n), 0, _number),
    "cat": _with(lambda x, dim: torch.cat([x, x * 2], dim), 1, _dim),
    "stack": _with(lambda x, dim: torch.stack([x, -x], dim), 1, _dim),
    "einsum": _with(lambda x: torch.einsum("...i,...j->...ij", x, x), 1),
    "embedding": Operation(
        _one(lambda x: x.dtype is torch.int64 and x.numel() > 0, _seed),
        lambda tensors, arguments: F.embedding(tensors[0] % 5, _constant(torch.zeros(()), *arguments, 5, 3)),
    ),
    "int to float": Operation(_one(lambda x: x.dtype is torch.int64), lambda tensors, _: tensors[0].float() * 0.5),
    "one_hot": Operation(
        _one(lambda x: x.dtype is torch.int64 and x.dim() < 3), lambda tensors, _: F.one_hot(tensors[0] % 4, 4).float()
    ),
    "add_": _pair(lambda x, y: x.add_(y), _writes_into),
    "mul_": _with(lambda x, n: x.mul_(n), 0, _number),
    "relu_": _unary(torch.relu_),
    "tanh_": _unary(torch.tanh_),
    "clamp_": _unary(lambda x: x.clamp_(-1, 1)),
    "write a part": _with(_put, 1, _slices, _number),
    "change a part": _with(_added, 1, _slices, _number),
    "masked_fill_": _with(lambda x, n: x.masked_fill_(x > 0.5, n), 0, _number),
    "transpose and add_": _with(lambda x, n: x.transpose(0, -1).add_(n), 1, _number),
    "write over": _pair(lambda x, y: x.copy_(y), _writes_into),
}  # fmt: skip
RANDOM = frozenset({"dropout", "rand_like"})
