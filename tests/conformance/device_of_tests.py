"""Loads the device of tests/device into a process: `torch.device("test")`, with two indices."""

from __future__ import annotations

import pathlib
import types

import torch

_LIBRARY = pathlib.Path(__file__).parents[2] / "build" / "tests" / "librekindle_test_device.so"


def load_test_device() -> None:
    """Makes it the accelerator of the process; raises OSError where `scripts/setup` has not built it."""
    torch.ops.load_library(_LIBRARY)
    module = types.ModuleType("torch.test")
    vars(module).update(
        _is_in_bad_fork=lambda: False,
        manual_seed_all=torch.ops.test_device.manual_seed,
        is_available=lambda: True,
        device_count=lambda: 2,
    )
    torch._register_device_module("test", module)
