"""Reads the settings that torch's functions leave behind for the rest of a process or thread, and that no graph sets.

An example: a forward that calls `torch.set_grad_enabled(self.training)`, and not as a context manager, leaves gradients off for
the whole program. Settings that the key has, as the default dtype, are compared with it and not here.
"""

from __future__ import annotations

from typing import Any

import torch

from rekindle.process.torch_internals import is_multithreading_enabled


def left_settings() -> dict[str, Any]:
    """Returns the settings as they are, by the name of what sets them."""
    return {
        "torch.set_grad_enabled": torch.is_grad_enabled(),
        "torch.autograd.set_multithreading_enabled": is_multithreading_enabled(),
        "torch.__future__.set_swap_module_params_on_conversion": torch.__future__.get_swap_module_params_on_conversion(),
        "torch.__future__.set_overwrite_module_params_on_conversion": (
            torch.__future__.get_overwrite_module_params_on_conversion()
        ),
        "torch.set_printoptions": tuple(sorted(vars(torch._tensor_str.PRINT_OPTS).items())),
    }


def set_by(before: dict[str, Any]) -> str | None:
    """Names what has set something since the settings were `before`; None if nothing has."""
    now = left_settings()
    return next((name for name, value in before.items() if now[name] != value), None)
