"""A backward that does the forward again in eager has the gradients of the first, or raises where that cannot be told."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn


class Critic(nn.Module):
    """Has a hidden result, a batch norm in training, a buffer, and an input that only dead code reads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.names = nn.Embedding(3, 2)
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.names(ids)
        hidden = torch.tanh(self.norm(self.first(x)) + self.shift)
        return self.last(hidden), hidden


Result = tuple[torch.Tensor, torch.Tensor]


def penalized(real: Result, fake: Result, x: torch.Tensor) -> None:
    (gradient,) = torch.autograd.grad(real[0].sum(), [x], create_graph=True)
    (gradient.square().sum() - fake[0].mean()).backward()


def kept(real: Result, fake: Result, x: torch.Tensor) -> None:
    real[1].retain_grad()
    (real[0].mean() - fake[0].mean() + real[1].exp().sum()).backward()


def batched(real: Result, fake: Result, x: torch.Tensor) -> None:
    torch.autograd.grad(real[1], [x], torch.eye(48).view(48, 6, 8), is_grads_batched=True, retain_graph=True)
    (real[0].mean() - fake[0].mean()).backward()


def watched(real: Result, fake: Result, x: torch.Tensor) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        (real[0].mean() - fake[0].mean()).backward()


WAYS = [penalized, kept, batched, watched]


def gradients(module: Any, way: Callable[..., None], between: Callable[[Any, torch.Tensor], None]) -> list[Any]:
    torch.manual_seed(1)
    x, fake, ids = torch.randn(6, 4, requires_grad=True), torch.randn(6, 4), torch.tensor([0, 2])
    module.zero_grad()
    results = module(x, ids), module(fake, ids)
    between(module, fake)
    way(*results, x)
    return [x.grad, *(parameter.grad for parameter in module.parameters()), *module.buffers()]


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("way", WAYS)
def test_a_batch_norm_may_be_called_again_before_the_backward(way: Callable[..., None]) -> None:
    eager = Critic()
    graphed = rekindle.Module(copy.deepcopy(eager), rekindle.Options(start="wait", fallback="error"))
    for _ in range(2):
        theirs, ours = (gradients(module, way, lambda *_: None) for module in (eager, graphed))
        torch.testing.assert_close(ours, theirs)


def write_buffer(module: Any, fake: torch.Tensor) -> None:
    module.shift.mul_(2)


def write_parameter(module: Any, fake: torch.Tensor) -> None:
    with torch.no_grad():
        module.first.bias.add_(1)


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in RekindleBackward")
@pytest.mark.parametrize("write", [write_buffer, write_parameter])
@pytest.mark.parametrize("way", WAYS)
def test_what_the_forward_read_must_not_be_written_before_it_is_done_again(
    way: Callable[..., None], write: Callable[[Any, torch.Tensor], None]
) -> None:
    graphed = rekindle.Module(Critic(), rekindle.Options(start="wait", fallback="error"))
    with pytest.raises(RuntimeError, match=r"was modified by an inplace operation since the forward.*Change it after"):
        gradients(graphed, way, write)


@pytest.mark.parametrize("write", [write_buffer, write_parameter])
def test_a_graphs_own_backward_does_not_mind(write: Callable[[Any, torch.Tensor], None]) -> None:
    eager = Critic()
    graphed = rekindle.Module(copy.deepcopy(eager), rekindle.Options(start="wait", fallback="error"))
    way = lambda real, fake, x: (real[0].mean() - fake[0].mean()).backward()  # noqa: E731
    theirs, ours = (gradients(module, way, write) for module in (eager, graphed))
    torch.testing.assert_close(ours, theirs)


def test_an_input_that_was_written_must_not_be_read_again() -> None:
    graphed = rekindle.Module(Critic(), rekindle.Options(start="wait", fallback="error"))
    x, ids = torch.randn(6, 4), torch.tensor([0, 2])
    score, _ = graphed(x, ids)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(score.sum(), [graphed.last.weight], create_graph=True)
