"""A generator for tensors that tests make on the default device."""

from __future__ import annotations

import torch


def seeded(seed: int) -> torch.Generator:
    """Returns one for the default device; the device of tests takes that of the CPU."""
    device = torch.get_default_device()
    return torch.Generator("cpu" if device.type == "test" else device).manual_seed(seed)
