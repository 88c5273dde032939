"""How many kernels a step launches on the test device, which counts each operator that reaches it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import rekindle
import torch
from rekindle.process.dispatch_mode import DispatchMode
from torch import nn


class Turned(nn.Module):
    """Norms columns."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.t()).t().exp()


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


class _Given(DispatchMode):
    """Notes whether all that layer norms are given lies row by row, which CUDA's kernels take for granted."""

    def __init__(self) -> None:
        super().__init__()
        self.lies: list[bool] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "layer_norm" in str(function):
            self.lies += [x.is_contiguous() for x in args if isinstance(x, torch.Tensor)]
        return function(*args, **(kwargs or {}))


def test_layer_norms_are_given_memory_that_lies_row_by_row() -> None:
    norm = nn.LayerNorm(4).to("test:0")
    wrapped = rekindle.Module(Turned(norm), rekindle.Options(cache="off", fallback="error", log="error"))
    x = torch.randn(4, 6, device="test:0", requires_grad=True)
    wrapped(x)
    graph = wrapped._runtime.serving_graph((x,), {})
    graph.session.set_replay(None)  # or a backward within a mode would run eager's operators
    with _Given() as given:  # within which a wrapped module runs in eager
        graph.run([x]).sum().backward()
    assert len(given.lies) >= 7 and all(given.lies)


def test_plans_of_a_device_split_no_batch_norm() -> None:
    plans = {}
    for device in ("cpu", "test:0"):
        module = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
        wrapped = rekindle.Module(module.to(device), rekindle.Options(cache="off", fallback="error", log="error"))
        x = torch.randn(4, 3, 8, 8, device=device)
        wrapped(x).sum().backward()
        plans[device] = wrapped._runtime.serving_graph((x,), {}).session.describe_plan()
    assert "BatchStatistics" in plans["cpu"] and "BatchStatistics" not in plans["test:0"]
