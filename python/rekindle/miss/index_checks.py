"""Keeps trials from ending the process: on an accelerator, an index outside of a tensor cannot be survived as on the CPU.

An example: `weight[labels]` is tried with a weight of 3 rows and labels up to 9. On the CPU the operator raises IndexError, and
the trial tells nothing. A CUDA kernel asserts: each later call of the process fails, training with it. Here the labels are looked
at before the kernel runs, and IndexError is raised in its place.

What is looked at is what PyTorch's CUDA kernels assert, or take without a look (ATen/native/cuda: CUDA_KERNEL_ASSERT).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from rekindle.process.dispatch_mode import DispatchMode

_Check = Callable[..., None]


def checked_indices(tensors: Iterable[Tensor]) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which no operator reads or writes outside of its tensors, for trials on these tensors' devices.

    In it, operators raise IndexError before a kernel that would. It waits for the device; for tensors of the CPU it does nothing.
    """
    return IndicesChecked() if any(tensor.device.type != "cpu" for tensor in tensors) else contextlib.nullcontext()


class IndicesChecked(DispatchMode):
    """Looks at the indices that operators are given on an accelerator."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function, unless an index of its arguments is outside; raises IndexError then."""
        kwargs = kwargs or {}
        if not isinstance(function, OpOverload):
            return function(*args, **kwargs)
        if (check := _check_of(function)) is not None and not _is_planned(args):
            check(*_in_order(function, args, kwargs))
        elif check is None and function._can_decompose():
            with self:  # made of others, which PyTorch has not taken apart where autograd is off
                return function.decompose(*args, **kwargs)
        return function(*args, **kwargs)


def _is_planned(args: Sequence[Any]) -> bool:
    """Tells whether an operator is asked for sizes only, as by a session that makes a plan."""
    return any(isinstance(value, Tensor) and value.is_meta for value in args)


@functools.cache
def _check_of(function: Any) -> _Check | None:
    """Returns what looks at the arguments of an operator: found by its name, or by that of the overload where these differ."""
    name = function._schema.name.removeprefix("aten::")
    return _CHECKS.get(f"{name}.{function._overloadname}") or _CHECKS.get(name.rstrip("_"))


def _in_order(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Returns all arguments by their places in the schema, with defaults."""
    rest = [kwargs.get(one.name, one.default_value) for one in function._schema.arguments[len(args) :]]
    return [*args, *rest]


def _within(values: Tensor, low: float, high: float, what: str) -> None:
    """Raises IndexError where a number is below `low` or above `high`, or none. It may lie on the CPU, as an index may."""
    if values.numel() == 0:
        return
    inside = ((values >= low) & (values <= high)).all()
    if not inside.item():
        raise IndexError(f"{what} outside of {low} to {high}")


def _along_dim(tensor: Tensor, dim: int, index: Tensor, *_: Any) -> None:
    size = tensor.shape[dim] if tensor.dim() else 1
    _within(index, 0, size - 1, "an index")


def _from_either_end(tensor: Tensor, dim: int, index: Tensor, *_: Any) -> None:
    size = tensor.shape[dim] if tensor.dim() else 1
    _within(index, -size, size - 1, "an index")


def _rows(weight: Tensor, indices: Tensor, *_: Any) -> None:
    _within(indices, 0, weight.shape[0] - 1, "a row")


def _bags(weight: Tensor, indices: Tensor, offsets: Tensor, *_: Any) -> None:
    _rows(weight, indices)
    _within(offsets, 0, indices.numel(), "an offset")
    _within(offsets.diff(), 0, indices.numel(), "the length of a bag")


def _rows_of_gradient(gradient: Tensor, indices: Tensor, rows: int, *_: Any) -> None:
    _within(indices, 0, rows - 1, "a row")


def _indexed(tensor: Tensor, indices: Sequence[Tensor | None], *_: Any) -> None:
    dim = 0
    for index in indices:
        if index is None:
            dim += 1
        elif index.dtype in (torch.bool, torch.uint8):  # a mask, whose shape is checked
            dim += index.dim()
        else:
            _from_either_end(tensor, dim, index)
            dim += 1


def _flat(tensor: Tensor, index: Tensor, *_: Any) -> None:
    _within(index, -tensor.numel(), tensor.numel() - 1, "an index")


def _classes(scores: Tensor, target: Tensor, ignored: int) -> None:
    classes = scores.shape[1 if scores.dim() > 1 else 0]
    _within(target[target != ignored], 0, classes - 1, "a class")


def _nll(scores: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int, *_: Any) -> None:
    _classes(scores, target, ignored)


def _nll_backward(_gradient: Tensor, *given: Any) -> None:
    _nll(*given)


def _margin(scores: Tensor, target: Tensor, *_: Any) -> None:
    _within(target, 0, scores.shape[-1] - 1, "a class")


def _margins(scores: Tensor, target: Tensor, *_: Any) -> None:
    _within(target, -1, scores.shape[-1] - 1, "a class")


def _ctc(scores: Tensor, targets: Tensor, *_: Any) -> None:
    _within(targets, 0, scores.shape[-1] - 1, "a class")


def _probability(values: Tensor, *_: Any) -> None:
    _within(values, 0, 1, "a probability")


def _second_probability(_tensor: Tensor, values: Tensor, *_: Any) -> None:
    _probability(values)


def _weights(weights: Tensor, *_: Any) -> None:
    _within(weights, 0, torch.finfo(weights.dtype).max, "a weight")
    _within(weights.sum(-1), torch.finfo(weights.dtype).tiny, torch.finfo(weights.dtype).max, "a sum of weights")


def _rate(values: Tensor, *_: Any) -> None:
    _within(values, 0, torch.finfo(values.dtype).max, "a rate")


def _trials(count: Tensor, probability: Tensor, *_: Any) -> None:
    _rate(count)
    _probability(probability)


def _unpooled(tensor: Tensor, indices: Tensor, output_size: Sequence[int], *_: Any) -> None:
    room = 1
    for size in output_size:
        room *= size
    _within(indices, 0, room - 1, "a place")


def _masked(tensor: Tensor, mask: Tensor, source: Tensor) -> None:
    places = mask.expand(torch.broadcast_shapes(mask.shape, tensor.shape)).sum()
    _within(places, 0, source.numel(), "a count of places")


def _repeats(*given: Any) -> None:
    for repeats in given:
        if isinstance(repeats, Tensor) and not repeats.is_floating_point():
            _within(repeats, 0, torch.iinfo(repeats.dtype).max, "a count of repeats")


def _holds(condition: Tensor, *_: Any) -> None:
    if not condition.all().item():
        raise IndexError("an assertion does not hold")


def _not_packed(*given: Any) -> None:
    if any(isinstance(starts, Tensor) for starts in given[3:6] if starts is not None and not starts.is_floating_point()):
        raise IndexError("the starts of packed sequences are not looked at")


_CHECKS: dict[str, _Check] = {
    **dict.fromkeys(("index_select", "gather", "index_add", "index_copy", "index_reduce"), _along_dim),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), _along_dim),
    "index_fill": _from_either_end,
    **dict.fromkeys(("embedding", "embedding_renorm"), _rows),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _bags),
    "embedding_dense_backward": _rows_of_gradient,
    **dict.fromkeys(("index", "_unsafe_index", "index_put", "_unsafe_index_put", "_index_put_impl"), _indexed),
    **dict.fromkeys(("take", "put"), _flat),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _nll),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _nll_backward),
    "multi_margin_loss": _margin,
    "multilabel_margin_loss_forward": _margins,
    **dict.fromkeys(("_ctc_loss", "_cudnn_ctc_loss"), _ctc),
    **dict.fromkeys(("bernoulli.default", "bernoulli.out", "binary_cross_entropy"), _probability),
    **dict.fromkeys(("bernoulli.Tensor", "bernoulli_.Tensor"), _second_probability),
    "multinomial": _weights,
    "poisson": _rate,
    "binomial": _trials,
    **dict.fromkeys(("max_unpool2d", "max_unpool3d"), _unpooled),
    "masked_scatter": _masked,
    "repeat_interleave": _repeats,
    "_assert_async": _holds,
    **dict.fromkeys(("_flash_attention_forward", "_efficient_attention_forward"), _not_packed),
}
