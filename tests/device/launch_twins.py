"""Twins of which the wrapped one's launches are recorded, and replayed; for tests with the fixture `recorder`."""

from __future__ import annotations

import torch
from device_twins import Twins
from torch import nn


def twins_of(module: nn.Module) -> Twins:
    """Both on the test device."""
    return Twins(module, cuda_graphs=True, log="warning")


def rows(count: int = 3) -> torch.Tensor:
    """An argument of Made."""
    return torch.randn(count, 4, device="test:0")


def wait() -> None:
    """Lets the host wait for the current stream."""
    torch.zeros((), device="test:0").item()


def replays_of(twins: Twins, calls: int) -> int:
    """How many of so many further calls are replayed."""
    before = twins.status.replayed_calls
    for _ in range(calls):
        twins.call(rows())
    return twins.status.replayed_calls - before
