"""Writes norms with running statistics so that a trace sees these written.

An example: the operator of torch.batch_norm writes its running mean without a word. Here an operator returns the new mean, and
`mean.copy_(new_mean)` is a write that the trace sees.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch
from torch.nn import functional as F

from rekindle.export.trace.open_sizes import sizes_to_follow
from rekindle.process.torch_internals import untraced

_BATCH_NORM_MODULE = torch.nn.modules.batchnorm._BatchNorm.forward.__code__


def _raise_as(function: Any, *args: Any) -> None:
    """Raises what `function` does for these arguments: what runs in its place may take more than it."""
    with untraced(), torch.no_grad():
        function(*(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args))


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Any:
    """Runs torch.batch_norm, whose operator writes the running statistics without a word, with writes that are seen."""
    if not training or mean is None:
        return torch.batch_norm(x, weight, bias, mean, variance, training, momentum, eps, cudnn)
    with untraced():
        empty, is_plain = x.numel() == 0, _is_plain(x, weight, bias, mean, variance)
    if not is_plain:
        _raise_as(torch.batch_norm, x, weight, bias, mean, variance, training, momentum, eps, cudnn)
    if empty:
        return torch.batch_norm(x, weight, bias, None, None, training, momentum, eps, cudnn)  # the statistics stay as they are
    normalize = torch.ops.aten._native_batch_norm_legit_functional
    if (count := _batches_averaged()) is not None:
        y, _, _, of_batch, variance_of_batch = normalize(x, weight, bias, mean.clone(), variance.clone(), True, 1.0, eps)
        share = count.to(torch.float64).reciprocal()
        mean.copy_(share * of_batch + (1 - share) * mean)
        variance.copy_(share * variance_of_batch + (1 - share) * variance)
        return y
    y, _, _, new_mean, new_variance = normalize(x, weight, bias, mean.clone(), variance.clone(), True, momentum, eps)
    mean.copy_(new_mean)
    variance.copy_(new_variance)
    return y


def _is_plain(x: torch.Tensor, *of_channels: torch.Tensor | None) -> bool:
    """Tells whether a batch norm surely takes these: channels of several numbers each, all of one dtype that it computes in."""
    if x.dtype not in (torch.float32, torch.float64) or x.dim() < 2 or x.numel() <= x.shape[1]:
        return False
    return all(each is None or (each.dtype == x.dtype and each.shape == x.shape[1:2]) for each in of_channels)


def counts_batches(asking: types.FrameType) -> bool:
    """Tells whether a batch norm without momentum asks for the number of its batches, of which `_batch_norm` takes the tensor."""
    return asking.f_code is _BATCH_NORM_MODULE


def _batches_averaged() -> Any:
    """Returns how many batches the calling batch norm has seen, a tensor, if it averages over all: its momentum then varies."""
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("rekindle."):
        frame = frame.f_back
    module = frame.f_back.f_locals.get("self") if frame.f_code is F.batch_norm.__code__ and frame.f_back else None
    averages = module is not None and counts_batches(frame.f_back) and module.momentum is None
    return module.num_batches_tracked if averages and module.track_running_stats else None


def _native_batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    """Runs torch.native_batch_norm and the operator that says that it writes, in the same way."""
    if not training or mean is None:
        return torch.native_batch_norm(x, weight, bias, mean, variance, training, momentum, eps)
    normalize = torch.ops.aten._native_batch_norm_legit_functional
    *results, new_mean, new_variance = normalize(x, weight, bias, mean.clone(), variance.clone(), True, momentum, eps)
    mean.copy_(new_mean)
    variance.copy_(new_variance)
    return tuple(results)


def _batch_norm_with_update(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> tuple[Any, Any, Any, Any]:
    """Runs the operator of that name, whose fourth result is for its own backward, in the same way."""
    normalize = torch.ops.aten._batch_norm_with_update_functional
    *results, new_mean, new_variance = normalize(x, weight, bias, mean.clone(), variance.clone(), momentum, eps)
    mean.copy_(new_mean)
    variance.copy_(new_variance)
    return tuple(results)


def _instance_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, use_input: bool, momentum: float, eps: float, cudnn: bool
) -> Any:
    """Runs torch.instance_norm in the same way: a batch norm of one sample whose channels are all samples' channels."""
    if not use_input or mean is None:
        return torch.instance_norm(x, weight, bias, mean, variance, use_input, momentum, eps, cudnn)
    _raise_as(torch.instance_norm, x, weight, bias, mean, variance, use_input, momentum, eps, cudnn)
    samples, channels, *rest = sizes = sizes_to_follow(x)
    repeated = [None if each is None else each.repeat(samples) for each in (weight, bias, mean, variance)]
    normalize = torch.ops.aten._native_batch_norm_legit_functional
    as_one = x.contiguous().view(1, samples * channels, *rest)
    y, _, _, new_mean, new_variance = normalize(as_one, *repeated, True, momentum, eps)
    mean.copy_(new_mean.view(samples, channels).mean(0))
    variance.copy_(new_variance.view(samples, channels).mean(0))
    return y.view(sizes)


NORMS: dict[Any, Any] = {
    torch.batch_norm: _batch_norm,
    torch.native_batch_norm: _native_batch_norm,
    torch._native_batch_norm_legit: _native_batch_norm,
    torch.ops.aten._native_batch_norm_legit.default: _native_batch_norm,
    torch.ops.aten._batch_norm_with_update: _batch_norm_with_update,
    torch.ops.aten._batch_norm_with_update.default: _batch_norm_with_update,
    torch.instance_norm: _instance_norm,
}
