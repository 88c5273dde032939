"""Loads the device of tests/device into a process: `torch.device("test")`, with two indices."""

from __future__ import annotations

import pathlib
import types

import torch

_LIBRARY = pathlib.Path(__file__).parents[2] / "build" / "tests" / "librekindle_test_device.so"


def load_test_device() -> None:
    """Makes it the accelerator of the process; raises OSError where `scripts/setup` has not built it."""
    torch.ops.load_library(_LIBRARY)
    own = torch.ops.test_device
    index_of = lambda device: torch.device(device).index or 0  # noqa: E731
    module = types.ModuleType("torch.test")
    vars(module).update(
        _initialized=True,
        _is_in_bad_fork=lambda: False,
        manual_seed_all=own.manual_seed,
        get_rng_state=lambda device="test": own.random_state(index_of(device)),
        set_rng_state=lambda state, device="test": own.set_random_state(index_of(device), state),
        current_device=torch.accelerator.current_device_index,
        device=lambda device: torch.accelerator.device_index(device if type(device) is int else index_of(device)),
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
        is_available=lambda: True,
        device_count=lambda: 2,
    )
    torch._register_device_module("test", module)
