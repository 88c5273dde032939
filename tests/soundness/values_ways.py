"""Contexts in which eager computes the same in another way: in double precision inside of operators, with other roundings.

An example: `with wide(): torch.tensor([3e38, 3e38, -3e38]).sum()` is 3e38, and inf without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rekindle.compare.rounding_operators import is_view, makes_new_numbers, sums
from rekindle.process.dispatch_mode import DispatchMode
from rekindle.process.torch_internals import is_in_backward
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

_WITH_FACTOR = (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor, torch.ops.aten.rsub.Tensor)
_SUMS_OF_TWO = (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor)


class _Normalized(torch.autograd.Function):
    """Normalizes rows. What is infinite spreads in its gradient as it does in the kernel of Rekindle, not as in PyTorch's."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dims: tuple[int, ...], eps: float) -> torch.Tensor:
        scale = (x.var(dims, correction=0, keepdim=True) + eps).rsqrt()
        y = (x - x.mean(dims, keepdim=True)) * scale
        ctx.dims = dims
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        y, scale = ctx.saved_tensors
        along = (dy * y).mean(ctx.dims, keepdim=True)
        return scale * (dy - dy.mean(ctx.dims, keepdim=True) - y * along), None, None


def _layer_norm(x: torch.Tensor, sizes: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> torch.Tensor:
    y: torch.Tensor = _Normalized.apply(x.double(), tuple(range(-len(sizes), 0)), eps)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).to(x.dtype)


def _cross_entropy(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Computes a cross entropy, whose gradient is 0 where a probability is smaller than the numbers of x's dtype."""
    wider = x.double()
    unlikely = wider.detach().softmax(min(1, x.dim() - 1)) < torch.finfo(x.dtype).tiny
    if wider.requires_grad:
        wider = wider * 1  # a double is its own
        wider.register_hook(lambda gradient: gradient.masked_fill(unlikely, 0))
    return F.cross_entropy(wider, *tree_map(_widened, args), **tree_map(_widened, kwargs)).to(x.dtype)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Attends, and leaves the rows out of the gradient that see nothing: their scores are all -inf."""
    y = F.scaled_dot_product_attention(q, k, v, *args, **kwargs)
    seen = F.scaled_dot_product_attention(q.detach(), k.detach(), torch.ones_like(v), *args, **kwargs) != 0
    return torch.where(seen, y, y.detach())


class _WideKernels(TorchFunctionMode):
    """Computes as Rekindle does what it has kernels of its own for: these round once, where PyTorch's operators round often."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {F.cross_entropy: _cross_entropy, F.layer_norm: _layer_norm, F.scaled_dot_product_attention: _attention}
        return known.get(function, function)(*args, **(kwargs or {}))


class _WideSums(DispatchMode):
    """Computes operators that sum numbers in double precision, and rounds the result."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if is_view(function) or not makes_new_numbers(function, args) or not sums(function):
            return result
        try:
            wider = function(*tree_map(_widened, args), **tree_map(_widened, kwargs))
        except RuntimeError:  # of what does not take doubles
            return result
        return tree_map(_rounded, result, wider)


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _rounded(result: Any, wider: Any) -> Any:
    if isinstance(result, torch.Tensor) and result.is_floating_point() and result.shape == wider.shape:
        result.copy_(wider)
    return result


@contextmanager
def wide() -> Iterator[None]:
    """Lets sums, normalizations and cross entropies be computed in double precision."""
    with _WideKernels(), _WideSums():
        yield


class Apart(DispatchMode):
    """Rounds the product of a sum with a factor: PyTorch does for some elements and not for others, by their place in memory."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if function not in _WITH_FACTOR or not result.is_floating_point():
            return result
        scaled = 0 if function is torch.ops.aten.rsub.Tensor else 1
        product = args[scaled].to(result.dtype) * kwargs.get("alpha", 1)
        return result.copy_(args[1] - product if scaled == 0 else function(args[0], product))


class Gathered(DispatchMode):
    """Adds up the gradients of one value in double precision: in which order eager adds three or more is no part of a program."""

    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by id: a result, which stays alive, and it in double

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_in_backward() or kwargs or function not in _SUMS_OF_TWO or not args[0].is_floating_point():
            return function(*args, **(kwargs or {}))
        first, second = (self._sums[id(x)][1] if id(x) in self._sums else x.double() for x in args)
        total = first + second
        result = function(*args)
        self._sums[id(result)] = result, total
        return result.copy_(total)
