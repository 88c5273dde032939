"""What a trace would silently lose, made visible while the module's forward runs.

A TorchFunctionMode sees every torch call of the forward. It makes stop-gradients explicit (`detach`, `.data`, `no_grad`
regions), answers questions about sizes outside the trace (an export is for fixed sizes, which are part of its key), and
refuses what a graph cannot repeat: branches on tensor values, in-place writes to parameters, changes of grad mode.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from rekindle.reasons import Bypass, Reason

_SIZE_QUERIES = {
    torch.Tensor.size,
    torch.Tensor.shape.__get__,
    torch.Tensor.numel,
    torch.Tensor.nelement,
    torch.Tensor.dim,
    torch.Tensor.ndimension,
    torch.Tensor.ndim.__get__,
    torch.Tensor.__len__,
    torch.Tensor.stride,
    torch.Tensor.is_contiguous,
    torch.numel,
}
_VALUE_QUERIES = {
    torch.Tensor.__bool__,
    torch.Tensor.__int__,
    torch.Tensor.__float__,
    torch.Tensor.__complex__,
    torch.Tensor.__index__,
    torch.Tensor.__contains__,
    torch.Tensor.item,
    torch.Tensor.tolist,
    torch.Tensor.numpy,
    torch.Tensor.__array__,
    torch.equal,
    torch.Tensor.equal,
    torch.allclose,
    torch.Tensor.allclose,
    torch.is_nonzero,
    torch.Tensor.is_nonzero,
}
_GRADIENTS = {torch.Tensor.grad.__get__, torch.Tensor.grad.__set__}
_HOOKS = {
    torch.Tensor.register_hook,
    torch.Tensor.register_post_accumulate_grad_hook,
    torch.Tensor.retain_grad,
    torch.Tensor.grad_fn.__get__,
}
_GENERATORS = {torch.manual_seed, torch.seed, torch.set_rng_state}
_IN_PLACE_DUNDERS = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__",
                     "__ipow__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"}


def _user_frame() -> str:
    """`file.py:12 in forward`: the innermost frame outside torch and Rekindle."""
    for frame in reversed(traceback.extract_stack()):
        name = frame.filename.replace("\\", "/")
        if "/torch/" not in name and "/rekindle/" not in name:
            return f"{name.rsplit('/', 1)[-1]}:{frame.lineno} in {frame.name}"
    return "unknown code"


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Run what must not become part of the graph."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


def _is_in_place(function: Any, kwargs: dict[str, Any]) -> bool:
    name = getattr(function, "__name__", "")
    if kwargs.get("out") is not None or name in _IN_PLACE_DUNDERS:
        return True
    return name.endswith("_") and not name.endswith("__") and name != "requires_grad_"


def _target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an in-place call writes."""
    return kwargs.get("out") if kwargs.get("out") is not None else (args[0] if args else None)


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Any:
    """torch.batch_norm, whose operator writes the running statistics without a word; here the writes are seen."""
    if not training or mean is None:
        return torch.batch_norm(x, weight, bias, mean, variance, training, momentum, eps, cudnn)
    normalize = torch.ops.aten._native_batch_norm_legit_functional
    y, _, _, new_mean, new_variance = normalize(x, weight, bias, mean.clone(), variance.clone(), True, momentum, eps)
    mean.copy_(new_mean)
    variance.copy_(new_variance)
    return y


def _instance_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, use_input: bool, momentum: float, eps: float, cudnn: bool
) -> Any:
    """torch.instance_norm, in the same way: a batch norm of one sample whose channels are all samples' channels."""
    if not use_input or mean is None:
        return torch.instance_norm(x, weight, bias, mean, variance, use_input, momentum, eps, cudnn)
    with untraced():
        samples, channels, *rest = x.shape
        sizes = [samples, channels, *rest]
    repeated = [None if each is None else each.repeat(samples) for each in (weight, bias, mean, variance)]
    normalize = torch.ops.aten._native_batch_norm_legit_functional
    as_one = x.contiguous().view(1, samples * channels, *rest)
    y, _, _, new_mean, new_variance = normalize(as_one, *repeated, True, momentum, eps)
    mean.copy_(new_mean.view(samples, channels).mean(0))
    variance.copy_(new_variance.view(samples, channels).mean(0))
    return y.view(sizes)


_SEEN_TO_WRITE = {torch.batch_norm: _batch_norm, torch.instance_norm: _instance_norm}


class TraceMode(TorchFunctionMode):
    """Active around the one forward of an export. `parameters` must not be written, `writable` (arguments and buffers) may be;
    `grad` is the caller's grad mode.

    autocast_dtypes: those of the autocast regions, around the forward or in it, in which torch was called.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], writable: Iterable[torch.Tensor], grad: bool) -> None:
        super().__init__()
        self._storages = {tensor.untyped_storage().data_ptr() for tensor in parameters}
        self._writable = {tensor.untyped_storage().data_ptr() for tensor in writable}
        self._grad = grad
        self._views_without_grad = False  # whether views were made in a no_grad region, which detach makes others of
        self.autocast_dtypes: set[torch.dtype] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch._C._get_tracing_state() is None:  # inside of an autograd Function: to the graph it is one op, whatever it does
            return function(*args, **kwargs)
        if function in _SIZE_QUERIES:
            with untraced():
                return function(*args, **kwargs)
        if function == torch.tensor and not any(isinstance(x, torch.Tensor) for x in tree_leaves((args, kwargs))):
            with untraced():  # a constant, whatever it is made of
                return function(*args, **kwargs)
        if function in _VALUE_QUERIES:
            raise Bypass(
                Reason.VALUE_SPECIALIZED,
                f"{_user_frame()} turns a tensor into a Python value ({getattr(function, '__name__', function)}); "
                "the graph would repeat this call's answer. Use torch.where or pass a Python number",
            )
        if function in _GRADIENTS:
            raise Bypass(Reason.STATE_MUTATED, f"{_user_frame()} reads or writes the gradient of a tensor in the forward")
        # A checkpoint asks whether what it was given has a gradient.
        if function in _HOOKS and sys._getframe(1).f_globals.get("__name__") != "torch.utils.checkpoint":
            name = "grad_fn" if function is torch.Tensor.grad_fn.__get__ else function.__name__
            raise Bypass(Reason.SIDE_EFFECT, f"{_user_frame()} uses {name} of a tensor in the forward, where the graph has none")
        if function in _GENERATORS or kwargs.get("generator") is not None:
            raise Bypass(Reason.NONDETERMINISTIC, f"{_user_frame()} uses a random generator of its own")
        if function == torch.Tensor.data.__get__:  # a new object each time it is asked for
            return args[0].detach()
        self.autocast_dtypes.update(map(torch.get_autocast_dtype, filter(torch.is_autocast_enabled, ("cpu", "cuda"))))
        in_place = _is_in_place(function, kwargs)
        if in_place:
            self._check_write(function, args, kwargs)
        stopped = self._grad and not torch.is_grad_enabled()
        if torch.is_grad_enabled() and not self._grad:
            raise Bypass(Reason.GRAD_MODE_REGION, f"{_user_frame()} enables gradients inside a no_grad call")
        result = _SEEN_TO_WRITE.get(function, function)(*args, **kwargs)
        if not stopped or (in_place and self._is_writable(_target(args, kwargs))):
            return result
        if in_place:
            raise Bypass(Reason.GRAD_MODE_REGION, f"{_user_frame()} writes in place inside a no_grad region")
        return tree_map_only(torch.Tensor, self._stopped, result)

    def _stopped(self, tensor: torch.Tensor) -> torch.Tensor:
        self._views_without_grad |= tensor._is_view()
        return tensor.detach()

    def check_views(self, layout: Any) -> None:
        """Raises Bypass(unsupported_output) for a result (see contract.py) that may hold a view made in a no_grad region."""
        if self._views_without_grad and any(view["detached"] for view in layout.get("with_views", ())):
            raise Bypass(Reason.UNSUPPORTED_OUTPUT, "an output may be a view that was made in a no_grad region; return a clone")

    def _is_writable(self, target: Any) -> bool:
        return isinstance(target, torch.Tensor) and target.untyped_storage().data_ptr() in self._writable

    def _check_write(self, function: Any, args: Any, kwargs: dict[str, Any]) -> None:
        target = _target(args, kwargs)
        if self._is_writable(target) and target.is_leaf and target.requires_grad:
            raise Bypass(Reason.INPUT_MUTATED, f"{_user_frame()} writes in place to an input that requires a gradient; write to a clone")
        if isinstance(target, torch.Tensor) and target.untyped_storage().data_ptr() in self._storages:
            raise Bypass(
                Reason.STATE_MUTATED,
                f"{_user_frame()} writes a parameter in place ({getattr(function, '__name__', function)})",
            )
