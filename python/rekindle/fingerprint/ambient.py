"""Leaves of the ambient state that decides what a forward computes and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import DeviceContext

from rekindle.fingerprint.values import Walker
from rekindle.reasons import Bypass, Reason

_AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "xla", "privateuseone")

_FLAGS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("grad_mode", torch.is_grad_enabled),
    ("inference_mode", torch.is_inference_mode_enabled),
    ("anomaly_mode", torch.is_anomaly_enabled),
    ("default_dtype", lambda: str(torch.get_default_dtype())),
    ("deterministic.enabled", torch.are_deterministic_algorithms_enabled),
    ("deterministic.warn_only", torch.is_deterministic_algorithms_warn_only_enabled),
    ("deterministic.fill_uninitialized", lambda: torch.utils.deterministic.fill_uninitialized_memory),
    ("float32_matmul_precision", torch.get_float32_matmul_precision),
    ("cuda.allow_fp16_reduced", lambda: str(torch._C._get_cublas_allow_fp16_reduced_precision_reduction())),
    ("cuda.allow_bf16_reduced", lambda: str(torch._C._get_cublas_allow_bf16_reduced_precision_reduction())),
    ("cudnn.enabled", torch._C._get_cudnn_enabled),
    ("cudnn.benchmark", torch._C._get_cudnn_benchmark),
    ("cudnn.deterministic", torch._C._get_cudnn_deterministic),
    ("mkldnn.enabled", torch._C._get_mkldnn_enabled),
    ("sdp.flash", torch.backends.cuda.flash_sdp_enabled),
    ("sdp.mem_efficient", torch.backends.cuda.mem_efficient_sdp_enabled),
    ("sdp.math", torch.backends.cuda.math_sdp_enabled),
    ("sdp.cudnn", torch.backends.cuda.cudnn_sdp_enabled),
    ("opt_einsum", lambda: f"{torch.backends.opt_einsum.enabled} {torch.backends.opt_einsum.strategy}"),
    ("mha_fastpath", torch.backends.mha.get_fastpath_enabled),
)
_PRECISIONS = (("generic", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"))
_PRECISIONS += (("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn"))

_autocast_devices: list[str] = []


def add_ambient(walker: Walker) -> None:
    """Add the leaves of the ambient state; raises Bypass where a mode that may rewrite any call is active."""
    _refuse_modes()
    for name, read in _FLAGS:
        walker.emit(f"ambient.{name}", read())
    walker.emit("ambient.default_device", str(torch.get_default_device()))
    for backend, op in _PRECISIONS:
        walker.emit(f"ambient.fp32_precision.{backend}.{op}", torch._C._get_fp32_precision_getter(backend, op))
    walker.emit("ambient.autocast.cache", torch.is_autocast_cache_enabled())
    for device in _supported_autocast_devices():
        walker.emit(f"ambient.autocast.{device}.enabled", torch.is_autocast_enabled(device))
        walker.emit(f"ambient.autocast.{device}.dtype", str(torch.get_autocast_dtype(device)))


def _supported_autocast_devices() -> list[str]:
    if not _autocast_devices:
        for device in _AUTOCAST_DEVICES:
            try:
                torch.is_autocast_enabled(device)
                torch.get_autocast_dtype(device)
            except RuntimeError:
                continue  # this build of torch has no autocast for the device
            _autocast_devices.append(device)
    return _autocast_devices


def _refuse_modes() -> None:
    for mode in torch.overrides._get_current_function_mode_stack():
        if not isinstance(mode, DeviceContext):  # the default device, which has a leaf of its own
            raise _active(f"TorchFunctionMode {type(mode).__qualname__}")
    for mode in torch.utils._python_dispatch._get_current_dispatch_mode_stack():
        raise _active(f"TorchDispatchMode {type(mode).__qualname__}")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise _active("functorch transform (vmap, grad or functionalize)")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise _active("pair of saved-tensor hooks")
    if torch.autograd.forward_ad._current_level >= 0:
        raise _active("level of forward-mode differentiation")
    if torch.jit.is_tracing() or torch.compiler.is_compiling():
        raise _active("trace or compilation")


def _active(what: str) -> Bypass:
    return Bypass(Reason.MODE_STACK, f"a {what} is active around the call; call the module outside of it")
