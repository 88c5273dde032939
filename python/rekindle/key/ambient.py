"""Adds the leaves of the ambient state, which decides what a forward computes and how."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._device import DeviceContext

from rekindle import _native
from rekindle.key.values.walker import Walker
from rekindle.process.torch_internals import (
    function_modes,
    innermost_transform,
    is_in_forward_mode,
    operator_modes,
    saved_tensors_hooks,
)
from rekindle.reasons import Bypass, Reason

_EINSUM = torch.backends.opt_einsum.set_flags.__globals__
# (namespace, name): the switches that torch keeps in Python. bindings/ambient.h has the others.
PLACES: tuple[tuple[dict[str, Any], str], ...] = (
    (vars(torch.backends.mha), "_is_fastpath_enabled"),
    (_EINSUM, "enabled"),
    (_EINSUM, "strategy"),
)


def add_ambient(walker: Walker) -> None:
    """Adds a leaf for each switch of the ambient state; raises Bypass where a mode that may rewrite any call is active."""
    refuse_modes()
    for name, value in _native.ambient_fields():
        walker.emit(f"ambient.{name}", value)
    walker.emit("ambient.default_device", walker.devices.name(torch.get_default_device()))
    for namespace, name in PLACES:
        walker.emit(f"ambient.{namespace['__name__']}.{name}", namespace[name])


def refuse_modes() -> None:
    """Raises Bypass where a mode that may rewrite any call is active."""
    for mode in function_modes():
        if not isinstance(mode, DeviceContext):  # the default device, which has a leaf of its own
            raise _active(f"TorchFunctionMode {type(mode).__qualname__}")
    for mode in operator_modes():
        raise _active(f"TorchDispatchMode {type(mode).__qualname__}")
    if innermost_transform() is not None:
        raise _active("functorch transform (vmap, grad or functionalize)")
    if saved_tensors_hooks() is not None:
        raise _active("pair of saved-tensor hooks")
    if is_in_forward_mode():
        raise _active("level of forward-mode differentiation")
    if torch.jit.is_tracing() or torch.compiler.is_compiling():
        raise _active("trace or compilation")


def _active(what: str) -> Bypass:
    return Bypass(Reason.MODE_STACK, f"a {what} is active around the call; call the module outside of it")
