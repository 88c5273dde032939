"""How many kernels a step launches on the test device, which counts each operator that reaches it."""

from __future__ import annotations

import copy

import pytest
import rekindle
import torch
from torch import nn


class Halved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (0.5 * x + 1.5) / 3.0


def _kernels(layer: nn.Module, is_wrapped: bool) -> int:
    module = nn.Sequential(nn.Linear(8, 8), copy.deepcopy(layer), nn.Tanh()).to("test:0")
    called = rekindle.Module(module, rekindle.Options(cache="off", fallback="error", log="error")) if is_wrapped else module
    x = torch.randn(4, 8, device="test:0")
    for _ in range(2):  # the first exports
        before = torch.ops.test_device.kernels()
        called(x).sum().backward()
    return torch.ops.test_device.kernels() - before


@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.3), nn.LayerNorm(8), nn.Linear(8, 8), Halved()], ids=["dropout", "layer norm", "linear", "numbers"]
)
def test_a_layer_launches_no_more_than_in_eager(layer: nn.Module) -> None:
    ours, eagers = (_kernels(layer, is_wrapped) - _kernels(nn.Identity(), is_wrapped) for is_wrapped in (True, False))
    assert ours <= eagers
