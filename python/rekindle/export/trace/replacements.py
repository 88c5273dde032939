"""Writes functions of torch that a trace gets wrong so that it gets them right: writes, and the order of random draws.

An example: of `x.fill_(2.)` the exporter makes a constant that requires no gradient. Here `torch.full_like(x, 2.)` is written
over x, a write that the trace sees. Norms, which write their statistics, are in replaced_norms.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from rekindle.export.trace.aliases import take_value_of
from rekindle.export.trace.item_writes import set_item
from rekindle.export.trace.open_sizes import sizes_to_follow
from rekindle.export.trace.replaced_norms import NORMS
from rekindle.process.torch_internals import IntType, traced_graph, traced_value, untraced
from rekindle.reasons import Bypass, Reason


def _copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """Runs torch.Tensor.copy_, whose form without a write has no gradient."""
    sizes = sizes_to_follow(target)
    return _overwrite(target, source.to(target.dtype).expand(sizes), lambda: target.copy_(source))


def overwrite_out(target: Any, value: Any) -> Any:
    """Writes what an argument `out` is given. Raises Bypass where it would be resized."""
    with untraced():
        if target.shape != value.shape:
            raise Bypass(Reason.UNSUPPORTED_OP, "an argument out= is resized; pass one of the result's shape")
    return _copy(target, value)


def _fill(target: Any, value: Any) -> Any:
    """Runs torch.Tensor.fill_, which the exporter takes for a constant that requires no gradient."""
    if isinstance(value, torch.Tensor):
        return _copy(target, value)
    return _overwrite(target, torch.full_like(target, value), lambda: target.fill_(value))


def _normal(target: Any, mean: float = 0, std: float = 1) -> Any:
    """Runs torch.Tensor.normal_, of which a trace makes another operator."""
    value = torch.ops.aten.normal_functional(target, mean, std)
    return _overwrite(target, value, lambda: target.copy_(value))


def _filled(tensor: Any, value: Any) -> Any:
    """Runs torch.fill, which the tracer takes for another operator."""
    return _fill(tensor.clone(), value)


def _fill_diagonal(target: Any, value: float, wrap: bool = False) -> Any:
    """Runs torch.Tensor.fill_diagonal_, which has no form without a write."""
    if target.dim() == 2 and not wrap:
        everywhere = torch.ones_like(target, dtype=torch.bool)
        mask = everywhere.tril() & everywhere.triu()
    else:
        with untraced():
            mask = torch.zeros(target.shape, dtype=torch.bool, device=target.device).fill_diagonal_(True, wrap)
    return _overwrite(target, target.masked_fill(mask, value), lambda: target.fill_diagonal_(value, wrap))


def _zero(target: Any) -> Any:
    return _fill(target, 0)


def _overwrite(target: Any, value: Any, write: Any) -> Any:
    """Makes the target `value` from now on; what it was before has a gradient still, of zeros."""
    with untraced():
        differentiable = target.requires_grad
    everywhere = torch.ones_like(target, dtype=torch.bool)
    value = torch.where(everywhere, value, target) if differentiable else value.clone()
    with untraced():
        write()
    take_value_of(target, value)
    return target


def _gradient(x: Any, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> Any:
    """Runs torch.gradient dimension by dimension where each has a number for its spacing: the tracer takes no list of these."""
    if not isinstance(spacing, (list, tuple)) or any(isinstance(item, torch.Tensor) for item in spacing):
        given = {} if dim is None else {"dim": dim}
        return torch.gradient(x, **({} if spacing is None else {"spacing": spacing}), **given, edge_order=edge_order)
    dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    if len(spacing) != len(dims):
        return torch.gradient(x, spacing=spacing, dim=list(dims), edge_order=edge_order)  # raises what eager does
    parts = zip(spacing, dims, strict=True)
    return tuple(torch.gradient(x, spacing=step, dim=each, edge_order=edge_order)[0] for step, each in parts)


def _grouped(function: Any) -> Any:
    """Wraps a convolution, whose groups the tracer takes for a constant even where they are one a sample."""

    def call(*args: Any, **kwargs: Any) -> Any:
        groups = args[_GROUPS] if len(args) > _GROUPS else kwargs.get("groups")
        result = function(*args, **kwargs)
        node = traced_value(result).node()
        if isinstance(groups, torch.Tensor) and node.kind() == "aten::_convolution":
            number = traced_graph().create("aten::Int")
            number.insertBefore(node)
            number.addInput(traced_value(groups))
            number.output().setType(IntType.get())
            node.replaceInput(_GROUPS_IN_TRACE, number.output())
        return result

    return call


_GROUPS = 6  # the position of this argument
_GROUPS_IN_TRACE = 8
_CONVOLUTIONS = (
    torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d,
)  # fmt: skip


def _in_order_of_memory(function: Any) -> Any:
    """Wraps a function that draws a number for each element, to make its order in memory explicit: a graph may have another."""

    def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        order = _order_in_memory(tensor)
        if order is None or kwargs.get("memory_format", torch.preserve_format) is not torch.preserve_format:
            return function(tensor, *args, **kwargs)
        sizes = sizes_to_follow(tensor)
        in_memory, back = [sizes[dim] for dim in order], [order.index(dim) for dim in range(len(order))]
        if function is torch.randn_like:  # it draws otherwise for what is contiguous
            return function(tensor.new_zeros(in_memory).permute(back), *args, **kwargs)
        drawn = function(tensor.permute(order).reshape(-1), *args, **kwargs)
        return drawn.reshape(in_memory).permute(back)

    return call


def _order_in_memory(tensor: Any) -> list[int] | None:
    """Returns dimensions by descending strides; None where that is their own order, or several elements share a place."""
    with untraced():
        strides = tensor.stride()
        if tensor.is_contiguous() or 0 in strides:
            return None
    return sorted(range(tensor.dim()), key=lambda dim: -strides[dim])


def _in_place(write: Any, function: Any) -> Any:
    """Wraps a write that draws a number for each element, in the same order."""
    draw = _in_order_of_memory(function)

    def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        with untraced():
            is_plain = tensor.is_contiguous()
        return write(tensor, *args, **kwargs) if is_plain else _copy(tensor, draw(tensor, *args, **kwargs))

    return call


def _contiguous(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs torch.Tensor.contiguous where it copies: to the exporter it is nothing, and what draws next depends on it."""
    with untraced():
        copies = not tensor.is_contiguous() and not args and not kwargs
    return tensor.reshape(-1).clone().reshape(sizes_to_follow(tensor)) if copies else tensor.contiguous(*args, **kwargs)


def _as_strided(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs torch.as_strided of what lies in eager as it does in a graph. Raises Bypass for other layouts, which it would see.

    Of an argument, the graph is for its strides alone (open_sizes.py).
    """
    is_argument = traced_value(tensor).node().kind() == "prim::Param"
    with untraced():
        if not is_argument and not tensor.is_contiguous():
            raise Bypass(
                Reason.UNSUPPORTED_OP, "as_strided is called on a tensor that is not contiguous; call contiguous() first"
            )
    return torch.as_strided(tensor, *args, **kwargs)


def _view(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs torch.Tensor.view. Raises Bypass for memory seen as another dtype, of which the tracer has no operator."""
    if any(isinstance(argument, torch.dtype) for argument in (*args, *kwargs.values())):
        raise Bypass(Reason.UNSUPPORTED_OP, "view(dtype) sees a tensor's memory as another dtype, which a graph cannot")
    return tensor.view(*args, **kwargs)


# Not bernoulli, which draws in the order of its result, a contiguous one.
DRAWING = (F.dropout, F.alpha_dropout, torch.dropout, torch.alpha_dropout, torch.rand_like, torch.randn_like)
REPLACEMENTS: dict[Any, Any] = {
    **NORMS,
    torch.Tensor.copy_: _copy,
    torch.Tensor.fill_: _fill,
    torch.fill: _filled,
    torch.fill_: _fill,
    torch.Tensor.fill_diagonal_: _fill_diagonal,
    torch.Tensor.zero_: _zero,
    torch.Tensor.__setitem__: set_item,
    torch.Tensor.normal_: _normal,
    torch.zero_: _zero,
    torch.gradient: _gradient,
    torch.Tensor.contiguous: _contiguous,
    torch.Tensor.view: _view,
    torch.as_strided: _as_strided,
    torch.Tensor.as_strided: _as_strided,
    **{function: _grouped(function) for function in _CONVOLUTIONS},
    **{function: _in_order_of_memory(function) for function in DRAWING},
    torch.dropout_: _in_place(torch.dropout_, torch.dropout),
    torch.alpha_dropout_: _in_place(torch.alpha_dropout_, torch.alpha_dropout),
}
